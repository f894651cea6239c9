#include "harness/cli/options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <charconv>

#include "harness/cli/interrupt.h"
#include "harness/cli/known_answer.h"
#include "harness/cli/output.h"
#include "harness/io/description_yaml.h"
#include "harness/io/files.h"
#include "harness/io/nearest.h"
#include "harness/io/spec_library.h"
#include "oracle/spec/spec_yaml.h"
#include "oracle/spec/validate.h"

namespace samebits::harness {
namespace {

// That of many published routers; what a law says does not depend on it.
constexpr std::int64_t kAssumedHiddenSize = 4096;

}  // namespace

UsageError out_of_memory(const std::string& what) {
  return UsageError(
      fmt::format("memory ran out with {}; choose a smaller shape, e.g. with --set shape.hidden_size=N or --set "
                  "shape.num_experts=N, "
                  "or cases of fewer rows",
                  what));
}

std::string shape_text(const oracle::RouterSpec& spec) {
  return fmt::format("a spec of H={} E={} k={}", spec.shape.hidden_size.value_or(0), spec.shape.num_experts.value_or(0),
                     spec.shape.top_k.value_or(0));
}

CLI::Validator whole_number(std::uint64_t least, std::uint64_t most) {
  const auto check = [least, most](std::string& text) -> std::string {
    std::uint64_t number = 0;
    const char* end = text.data() + text.size();
    const auto [rest, error] = std::from_chars(text.data(), end, number);
    if (error == std::errc() && rest == end && number >= least && number <= most) return "";
    return fmt::format("found {}; allowed: a whole number from {} to {}", text, least, most);
  };
  return CLI::Validator(check, "");
}

void add_spec_options(CLI::App& command, SpecOptions& options) {
  command.add_option("--spec", options.spec, "Built-in spec (see `list specs`) or a spec file")
      ->required()
      ->type_name("S");
  add_resolution_options(command, options);
}

void add_resolution_options(CLI::App& command, SpecOptions& options) {
  command.add_option("--variant", options.variant, "A named variant of the spec (see `show --spec S`)")->type_name("V");
  command
      .add_option("--layer", options.layer,
                  "Apply the spec's overrides for this layer: a number, or a name of the spec")
      ->type_name("L");
  command.add_option("--set", options.set, "Change a field, e.g. --set selection.bias=bf16; may be repeated")
      ->type_name("PATH=VALUE")
      ->take_all()
      ->allow_extra_args(false);
}

namespace {

std::vector<oracle::Assignment> assignments(const std::vector<std::string>& texts) {
  std::vector<oracle::Assignment> set;
  for (const std::string& text : texts) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) {
      throw UsageError(fmt::format("--set {}: allowed is PATH=VALUE, e.g. --set shape.top_k=4", text));
    }
    if (text.find(" #") != std::string::npos || text.find("\t#") != std::string::npos) {
      throw UsageError(fmt::format("--set {}: found a YAML comment; allowed is PATH=VALUE alone", text));
    }
    set.push_back({text.substr(0, equals), text.substr(equals + 1)});
  }
  return set;
}

}  // namespace

namespace {

// Explicit tensors under a changed spec: those that it no longer has are left out; one that it has now cannot be made
// up.
void fit_tensors(const oracle::RouterSpec& spec, oracle::RouterInputs& data) {
  const auto fit = [](const char* name, bool wanted, auto& values) {
    if (!wanted) values.clear();
    if (!wanted || !values.empty()) return;
    throw UsageError(
        fmt::format("the changed spec needs the tensor {}, which the case does not have; change the spec in "
                    "another way, or add the tensor to the case file",
                    name));
  };
  const bool full = !data.from_logits();
  fit("selection_bias", spec.selection.bias != oracle::BiasType::kNone, data.selection_bias);
  if (spec.selection.bias == oracle::BiasType::kNone) data.row_class.clear();
  if (full || spec.gate.linear_bias == oracle::BiasType::kNone) {
    fit("linear_bias", spec.gate.linear_bias != oracle::BiasType::kNone, data.linear_bias);
  }
  fit("input_scale_vector", full && spec.gate.input_scale_vector, data.input_scale_vector);
  fit("per_expert_scale", spec.weights.per_expert_scale, data.per_expert_scale);
  const bool hashed = spec.selection.method == oracle::SelectionMethod::kHashTable;
  fit("hash_table", hashed, data.hash_table);
  fit("token_ids", hashed && data.num_tokens > 0, data.token_ids);
  fit("global_scale", spec.weights.global_scale, data.global_scale);
}

}  // namespace

std::string SpecChanges::words() const {
  std::string words;
  if (!variant.empty()) words += "--variant " + shell_word(variant) + " ";
  for (const std::string& change : set) words += "--set " + shell_word(change) + " ";
  return words;
}

void add_spec_changes(CLI::App& command, SpecChanges& changes) {
  command.add_option("--variant", changes.variant, "Ask this variant of the case's spec instead (see `show --spec S`)")
      ->type_name("V");
  command.add_option("--set", changes.set, "Change a field of the case's spec; may be repeated")
      ->type_name("PATH=VALUE")
      ->take_all()
      ->allow_extra_args(false);
}

void change_spec(CaseFile& file, const SpecChanges& changes) {
  if (changes.variant.empty() && changes.set.empty()) return;
  oracle::Resolution resolution;
  oracle::SpecFile spec;
  if (changes.variant.empty()) {
    spec.base = file.full_spec ? *file.full_spec : file.c.spec;
  } else {
    spec = load_spec(file.c.spec_name);
    resolution.variant = changes.variant;
    if (!file.layer.empty()) resolution.layer = file.layer;
    file.c.variant = changes.variant;
  }
  resolution.set = assignments(changes.set);
  const oracle::RouterSpec changed = oracle::resolve(spec, resolution);
  const oracle::RouterSpec shaped = properties::apply_shape(changed, file.c.description);
  if (!oracle::find_problems(shaped).empty()) {
    const oracle::Problem problem = oracle::find_problems(shaped).front();
    throw UsageError(fmt::format("with these sizes, {}: {}", problem.path, problem.message));
  }
  if (file.c.description.data) fit_tensors(shaped, *file.c.description.data);
  file.full_spec = changed;
  file.c.spec = shaped;
  file.expected.reset();
}

ChosenSpec resolve_spec(const SpecOptions& options) {
  oracle::Resolution resolution;
  if (!options.variant.empty()) resolution.variant = options.variant;
  resolution.layer = options.layer;
  resolution.set = assignments(options.set);
  ChosenSpec chosen;
  chosen.name = options.spec;
  chosen.variant = options.variant;
  chosen.spec = oracle::resolve(load_spec(options.spec), resolution);
  if (options.layer) {
    chosen.layer = *options.layer;
    chosen.notes.push_back(fmt::format("layer {}", chosen.layer));
  }
  return chosen;
}

void require_runnable(const std::string& name, const oracle::RouterSpec& spec) {
  const auto require = [&](const char* field, const std::optional<std::int64_t>& value) {
    if (!value) {
      throw UsageError(fmt::format("spec {}: {} is not known; give it with --set {}=N", name, field, field));
    }
  };
  require("shape.num_experts", spec.shape.num_experts);
  require("shape.top_k", spec.shape.top_k);
  if (const auto reason = oracle::unsupported_reason(spec)) {
    throw UsageError(fmt::format("spec {} cannot be run: {}", name, *reason));
  }
  const std::int64_t gate_rows = oracle::gate_rows(spec), hidden_size = spec.shape.hidden_size.value_or(1);
  if (gate_rows * hidden_size > kMaxElements) {
    throw UsageError(
        fmt::format("spec {}: {} gate rows x hidden_size {}: a gate weight of more than {} elements; "
                    "choose a smaller shape with --set shape.num_experts=N or --set shape.hidden_size=N",
                    name, gate_rows, hidden_size, kMaxElements));
  }
}

ChosenSpec resolve_runnable_spec(const SpecOptions& options) {
  ChosenSpec chosen = resolve_spec(options);
  require_runnable(chosen.name, chosen.spec);
  if (assume_hidden_size(chosen)) print_error("spec {}: {}\n", chosen.name, chosen.notes.back());
  return chosen;
}

bool assume_hidden_size(ChosenSpec& chosen) {
  if (chosen.spec.shape.hidden_size) return false;
  chosen.spec.shape.hidden_size = kAssumedHiddenSize;
  chosen.notes.push_back(
      fmt::format("shape.hidden_size is not known and taken as {}; give another with --set shape.hidden_size=N",
                  kAssumedHiddenSize));
  return true;
}

void add_backend_options(CLI::App& command, BackendChoice& choice) {
  CLI::Option* backend = command.add_option("--backend", choice.backend,
                                            "Router of this program: cpu, cuda, mutant:NAME (see `list backends`)");
  backend->type_name("B");
  command
      .add_option("--plugin", choice.plugin, "Shared library with the C ABI of samebits.h; runs in a worker process")
      ->type_name("LIB.so")
      ->excludes(backend);
  command.add_option("--timeout", choice.timeout, "Time limit of one call into a plug-in")
      ->type_name("TIME")
      ->capture_default_str();
}

std::string BackendChoice::words() const {
  if (plugin.empty()) return "--backend " + shell_word(backend);
  return "--plugin " + shell_word(plugin) + (timeout == "20s" ? "" : " --timeout " + shell_word(timeout));
}

std::unique_ptr<properties::Subject> open(const BackendChoice& choice) {
  if (!choice.given())
    throw UsageError("no router to test: give --backend NAME (see `samebits list backends`) or --plugin LIB.so");
  BackendOptions options;
  options.name = choice.backend;
  if (!choice.plugin.empty()) options.plugin = choice.plugin;
  options.timeout = parse_duration("--timeout", choice.timeout);
  options.interrupted = interrupted;
  return open_backend(options);
}

void add_laws_option(CLI::App& command, std::vector<std::string>& laws) {
  command.add_option("--laws", laws, "Judge these laws only, e.g. --laws selection,weights (see `list laws`)")
      ->delimiter(',')
      ->type_name("A,B")
      ->allow_extra_args(false);
}

void require_known_laws(const std::vector<std::string>& laws) {
  const std::vector<std::string> names = law_names();
  for (const std::string& id : laws) {
    if (std::find(names.begin(), names.end(), id) != names.end()) continue;
    throw UsageError(fmt::format("--laws: unknown law \"{}\"; {}", id, suggest_names(id, names)));
  }
}

void add_ledger_option(CLI::App& command, std::string& ledger) {
  command.add_option("--ledger", ledger, "Known faults: findings to tolerate, cases to leave out (see docs/files.md)")
      ->type_name("FILE");
}

void add_progress_option(CLI::App& command, std::string& mode) {
  command.add_option("--progress", mode, "auto (rewrites one line on a terminal), plain (a line every 10 s), none")
      ->check(CLI::IsMember({"auto", "plain", "none"}))
      ->type_name("MODE")
      ->default_str("auto");
}

ProgressMode progress_mode(const std::string& mode) {
  if (mode == "none") return ProgressMode::kNone;
  return mode == "plain" ? ProgressMode::kPlain : ProgressMode::kAuto;
}

std::chrono::milliseconds parse_duration(const std::string& option, const std::string& text) {
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(end, text.data() + text.size());
  const double factor = unit == "ms"                   ? 1.0
                        : unit == "s" || unit.empty()  ? 1e3
                        : unit == "m" || unit == "min" ? 6e4
                        : unit == "h"                  ? 3.6e6
                                                       : 0.0;
  const double milliseconds = number * factor;
  if (error != std::errc() || !(milliseconds >= 1.0) || milliseconds > 1e12) {
    throw UsageError(fmt::format("{} {}: allowed is a time such as 500ms, 60s, 5m or 1h", option, text));
  }
  return std::chrono::milliseconds(static_cast<std::int64_t>(milliseconds));
}

}  // namespace samebits::harness
