// samebits sweep: its options, and which kind of sweep they ask for.
#include "harness/cli/sweep.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>

#include "harness/cli/known_answer.h"
#include "harness/cli/program.h"

namespace samebits::harness {
namespace {

constexpr std::int64_t kMostPoolRows = 65537;

int sweep(const SweepOptions& options, const std::string& program) {
  require_known_laws(options.laws);
  const auto refuse = [](const char* option, const std::string& value, const char* advice) {
    throw UsageError(fmt::format("{}{}{}: {}", option, value.empty() ? "" : " ", value, advice));
  };
  if (std::find(options.laws.begin(), options.laws.end(), known_answer_law().id) != options.laws.end()) {
    refuse("--laws", known_answer_law().id, "allowed in fuzz, replay and check; the cases of a sweep state no answers");
  }
  if (!options.exhaustive.empty()) {
    if (options.boundaries) refuse("--boundaries", "", "allowed without --exhaustive; run the two one after the other");
    return sweep_exhaustive(options, program);
  }
  if (options.spec.spec.empty()) refuse("--spec", "", "found none; name a spec (see `samebits list specs`)");
  if (!options.boundaries) return sweep_row_counts(options, program);
  if (!options.laws.empty()) refuse("--laws", "", "allowed without --boundaries, which judges batch_invariance alone");
  return sweep_boundaries(options, program);
}

}  // namespace

Report sweep_header(const SweepOptions& options, const ChosenSpec& spec, const properties::Subject& subject) {
  Report header;
  header.command = "sweep";
  header.spec = spec.name;
  header.variant = spec.variant;
  header.notes = spec.notes;
  header.backend = options.backend.name();
  header.claims = subject.claims();
  header.seed = options.seed;
  return header;
}

void add_sweep(CLI::App& app, Program& program) {
  CLI::App* command = app.add_subcommand(
      "sweep", "Judge every row count where kernels change, or every input of a kind; or find where bits change");
  auto options = std::make_shared<SweepOptions>();
  add_spec_options(*command, options->spec);
  command->get_option("--spec")->required(false);  // an exhaustive sweep has specs of its own
  add_backend_options(*command, options->backend);
  add_laws_option(*command, options->laws);
  command
      ->add_option("--exhaustive", options->exhaustive,
                   "Instead: every input of one kind, or of all kinds (see `list sweeps`)")
      ->type_name("NAME|all");
  command->add_flag("--boundaries", options->boundaries,
                    "Instead: search the row counts, up to --rows, at which the bits of a row change");
  command->add_option("--seed", options->seed, "Seed of the pool")
      ->type_name("N")
      ->check(whole_number(0, UINT64_MAX))
      ->capture_default_str();
  command->add_option("--rows", options->rows, "Rows of the pool, and the most rows of a call")
      ->type_name("N")
      ->check(whole_number(1, kMostPoolRows))
      ->capture_default_str();
  command->add_option("--corpus", options->corpus, "Folder for failing cases of --exhaustive")
      ->type_name("DIR")
      ->capture_default_str();
  command->add_option("--json", options->json, "Write the report as JSON")->type_name("FILE");
  add_progress_option(*command, options->progress);
  command->footer(
      "Examples:\n  samebits sweep --spec deepseek-v3 --backend cuda --json report.json\n"
      "  samebits sweep --exhaustive all --backend cpu\n"
      "  samebits sweep --boundaries --spec deepseek-v3 --plugin ./librouter.so");
  command->callback(
      [options, &program] { program.action = [options, path = program.path] { return sweep(*options, path); }; });
}

}  // namespace samebits::harness
