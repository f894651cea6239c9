// Options that several subcommands share, with the same words everywhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <new>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/backend/backend.h"
#include "harness/cli/progress.h"
#include "harness/io/case_file.h"
#include "oracle/spec/router_spec.h"

// Sources that add options include CLI/CLI.hpp, which costs each that does three seconds to compile.
namespace CLI {
class App;
class Validator;
}  // namespace CLI

namespace samebits::harness {

// The command line contradicts itself or names something that does not exist: exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Of a case or spec that is legal but larger than this machine's memory; `what` names its shape.
UsageError out_of_memory(const std::string& what);
// Does `work`; memory that runs out on the way is out_of_memory(what()).
template <class Work, class What>
auto within_memory(const What& what, const Work& work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    throw out_of_memory(what());
  } catch (const std::length_error&) {
    throw out_of_memory(what());
  }
}
std::string shape_text(const oracle::RouterSpec& spec);  // "a spec of H=64 E=8 k=2"

// Checks the text of a whole number before it is converted, which would wrap around.
CLI::Validator whole_number(std::uint64_t least, std::uint64_t most);

struct SpecOptions {
  std::string spec, variant;
  std::optional<std::string> layer;
  std::vector<std::string> set;  // path=value
};
void add_spec_options(CLI::App& command, SpecOptions& options);
void add_resolution_options(CLI::App& command, SpecOptions& options);  // the same without --spec

struct ChosenSpec {
  std::string name, variant, layer;  // layer as it was given; empty: none
  oracle::RouterSpec spec;
  std::vector<std::string> notes;  // what a reader of the report must know: the layer, a size that was assumed
};
// Throws SpecError or UsageError; does not ask whether the spec can be run.
ChosenSpec resolve_spec(const SpecOptions& options);
// As resolve_spec. A hidden size that the spec does not know is assumed, with a message on standard error. A spec that
// this program cannot run is refused with the reason.
ChosenSpec resolve_runnable_spec(const SpecOptions& options);
// Sets a hidden size that the spec does not know, with a note. True: it did.
bool assume_hidden_size(ChosenSpec& chosen);
// Of a case or of a resolved spec. The hidden size may be unknown: where logits are given it has no meaning.
void require_runnable(const std::string& name, const oracle::RouterSpec& spec);

// --variant and --set for a case file: the same tensors, asked of another spec. What the file expects no longer counts.
struct SpecChanges {
  std::string variant;
  std::vector<std::string> set;
  std::string words() const;  // the options again, for a REPRO line, with a space behind them
};
void add_spec_changes(CLI::App& command, SpecChanges& changes);
// Throws SpecError or UsageError, also where the tensors do not fit the changed spec.
void change_spec(CaseFile& file, const SpecChanges& changes);

struct BackendChoice {
  std::string backend, plugin, timeout = "20s";
  std::string words() const;  // the options again, for a REPRO line
  std::string name() const { return plugin.empty() ? backend : plugin; }
  bool given() const { return !backend.empty() || !plugin.empty(); }
};
void add_backend_options(CLI::App& command, BackendChoice& choice);
std::unique_ptr<properties::Subject> open(const BackendChoice& choice);

void add_laws_option(CLI::App& command, std::vector<std::string>& laws);
void require_known_laws(const std::vector<std::string>& laws);

void add_ledger_option(CLI::App& command, std::string& ledger);

void add_progress_option(CLI::App& command, std::string& mode);
ProgressMode progress_mode(const std::string& mode);

// "500ms", "60s", "5m", "1h"; a bare number is seconds.
std::chrono::milliseconds parse_duration(const std::string& option, const std::string& text);

}  // namespace samebits::harness
