// samebits explain: one row of a case, step by step, beside what a router returned and what known mistakes would.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include "harness/cli/campaign.h"
#include "harness/cli/explain_arithmetics.h"
#include "harness/cli/explain_contract.h"
#include "harness/cli/explain_router.h"
#include "harness/cli/options.h"
#include "harness/cli/output.h"
#include "harness/cli/program.h"
#include "harness/report/case_text.h"
#include "harness/report/printable.h"
#include "oracle/emulate/prepared_input.h"
#include "oracle/emulate/tc256.h"
#include "oracle/reference/answer.h"

namespace samebits::harness {
namespace {

struct ExplainOptions {
  std::string case_path;
  std::optional<std::int64_t> row;
  bool all = false;
  std::vector<std::string> arithmetics;  // empty: a fixed list
  SpecChanges changes;
  BackendChoice backend;
};

// What a router did with the whole case.
struct Judged {
  std::vector<properties::Run> runs;    // empty: it does not support the case
  std::optional<std::int64_t> failing;  // row of the first violation
  bool sorted_slots = true;             // it promises the contract's order of slots
};

Judged print_verdicts(const CaseFile& file, const BackendChoice& choice) {
  Judged judged;
  const std::unique_ptr<properties::Subject> subject = open(choice);
  if (const auto reason = subject->unsupported(file.c.spec)) {
    print_out("{}: does not support this case: {}\n", choice.name(), printable_line(*reason));
    return judged;
  }
  CaseRuns runs = run_case(file.c, *subject);
  const properties::Claims& claims = subject->claims();
  bool failed = false;
  for (const properties::LawResult& result : properties::judge(file.c, claims, runs.inputs, runs.runs)) {
    if (!result.outcome.violation) continue;
    failed = true;
    const properties::Violation& violation = *result.outcome.violation;
    if (!judged.failing && violation.row >= 0) judged.failing = violation.row;
    print_out("{}: breaks {}: {}\n", choice.name(), result.law->id, printable_line(violation.summary));
  }
  if (!failed) print_out("{}: breaks no law on this case\n", choice.name());
  judged.runs = std::move(runs.runs);
  judged.sorted_slots = claims.output_order == properties::OutputOrder::kKeyDescThenIndex;
  return judged;
}

ExplainedRow route(const properties::Case& c, const oracle::RouterInputs& inputs, std::int64_t r) {
  ExplainedRow row{c.spec, inputs, r};
  row.constants = oracle::row_constants(c.spec, inputs, r);
  if (inputs.from_logits()) {
    const auto begin = inputs.router_logits.begin() + r * inputs.gate_rows;
    row.logits.assign(begin, begin + inputs.gate_rows);
  } else {
    const std::int64_t rows[] = {r};
    row.logits = oracle::tc256_logits(c.spec, inputs, rows);
    if (oracle::prepares_input(c.spec)) row.prepared_input = oracle::prepared_input(c.spec, inputs, r);
    if (c.spec.logits.softcap) {
      oracle::RouterSpec uncapped = c.spec;
      uncapped.logits.softcap.reset();
      row.uncapped_logits = oracle::tc256_logits(uncapped, inputs, rows);
    }
  }
  row.answer = oracle::route_row(c.spec, std::span<const float>(row.logits), row.constants);
  return row;
}

int explain(const ExplainOptions& options) {
  CaseFile file = read_case_file(options.case_path);
  change_spec(file, options.changes);
  const properties::Case& c = file.c;
  require_runnable(options.case_path, c.spec);
  const oracle::RouterInputs inputs = properties::materialize(c);
  const std::optional<std::int64_t> wanted = options.row;
  if (wanted && (*wanted < 0 || *wanted >= inputs.num_tokens)) {
    throw UsageError(fmt::format("--row {}: the case has rows 0 to {}", *wanted, inputs.num_tokens - 1));
  }
  if (inputs.from_logits() && !options.arithmetics.empty()) {
    throw UsageError(
        fmt::format("--arithmetic {}: found a case of given logits, which are summed already; allowed: a case "
                    "that starts from hidden states",
                    options.arithmetics.front()));
  }
  const std::vector<oracle::ArithmeticModel> arithmetics =
      chosen_arithmetics(options.arithmetics, c.spec, inputs.hidden_size);
  print_out("case {}: spec {}{}{}, {}\n", options.case_path, c.spec_name,
            c.variant.empty() ? "" : ", variant " + c.variant, file.layer.empty() ? "" : ", layer " + file.layer,
            case_sizes(c));
  for (const std::string& change : options.changes.set) print_out("changed: {}\n", change);
  Judged judged;
  if (options.backend.given()) judged = print_verdicts(file, options.backend);
  if (inputs.num_tokens == 0) {
    print_out("no rows\n");
    return 0;
  }
  const std::int64_t r = wanted.value_or(judged.failing.value_or(0));
  if (r >= inputs.valid_rows()) {
    print_out("row {}: padding (valid rows {}): every id is -1, every weight 0\n", r, inputs.valid_rows());
    return 0;
  }
  const ExplainedRow row = route(c, inputs, r);
  const std::optional<ObservedRow> found = observe(row, r, judged.runs);
  const ObservedRow* observed = found ? &*found : nullptr;
  print_out("row {} of {}, by the contract tc256:\n", r, inputs.num_tokens);
  print_steps(row);
  if (row.constants.routable) {
    print_experts(row, observed, options.all);
    print_groups(row);
    print_cut(row);
    if (!inputs.from_logits()) print_exact_choice(row);
    print_passes(row);
    print_weights(row);
  } else {
    print_out("no answer exists for this row: every id is -1, every weight 0\n");
  }
  std::vector<std::string> weights;
  for (const float weight : row.answer.weights) weights.push_back(number_text(weight));
  print_out("answer: ids {}; weights {}\n", fmt::join(row.answer.ids, ", "), fmt::join(weights, ", "));
  if (observed != nullptr) {
    print_observed(row, *observed, options.backend.name(), judged.sorted_slots);
    print_runs(row, r, judged.runs, options.backend.name());
  } else if (!judged.runs.empty()) {
    print_out("{} returned nothing for this row\n", options.backend.name());
  }
  if (row.constants.routable && !inputs.from_logits()) print_arithmetics(row, arithmetics);
  if (row.constants.routable) print_alternatives(row, observed, judged.sorted_slots);
  return 0;
}

}  // namespace

void add_explain(CLI::App& app, Program& program) {
  CLI::App* command = app.add_subcommand("explain", "Show one row step by step, and what known mistakes would choose");
  auto options = std::make_shared<ExplainOptions>();
  command->add_option("--case", options->case_path, "Case file")->required()->type_name("FILE");
  command->add_option("--row", options->row, "Row to explain [the first that fails on the router, or 0]")
      ->type_name("R")
      ->check(whole_number(0, INT64_MAX));
  command->add_flag("--all", options->all, "Show all experts, not only those around the cut");
  command
      ->add_option("--arithmetic", options->arithmetics,
                   "Show the row in this arithmetic instead of a fixed list (see `list arithmetics`); may be repeated")
      ->type_name("NAME")
      ->take_all()
      ->allow_extra_args(false);
  add_spec_changes(*command, options->changes);
  add_backend_options(*command, options->backend);
  command->footer("Example:\n  samebits explain --case fixtures/cases/article_figure_3.yaml --row 0");
  command->callback([options, &program] { program.action = [options] { return explain(*options); }; });
}

}  // namespace samebits::harness
