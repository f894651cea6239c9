// samebits explain: one row of a case, step by step, and what other arithmetic would have chosen.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "harness/cli/campaign.h"
#include "harness/cli/options.h"
#include "harness/cli/program.h"
#include "harness/io/float_text.h"
#include "harness/report/case_text.h"
#include "oracle/emulate/tc256.h"
#include "oracle/reference/answer.h"
#include "oracle/tensors/bf16.h"

namespace samebits::harness {
namespace {

using Answer = oracle::RowAnswer<float>;

struct ExplainOptions {
  std::string case_path;
  std::optional<std::int64_t> row;
  BackendChoice backend;
};

// Experts by rank: larger key first, NaN after all numbers, excluded ones last; among equal keys `higher_id_first`.
std::vector<std::int32_t> ranking(const Answer& answer, bool higher_id_first) {
  std::vector<std::int32_t> experts(answer.keys.size());
  std::iota(experts.begin(), experts.end(), 0);
  const auto excluded = [&](std::int32_t expert) {
    return !answer.excluded.empty() && answer.excluded[static_cast<std::size_t>(expert)] != 0;
  };
  std::stable_sort(experts.begin(), experts.end(), [&](std::int32_t a, std::int32_t b) {
    if (excluded(a) != excluded(b)) return excluded(b);
    const float key_a = answer.keys[static_cast<std::size_t>(a)], key_b = answer.keys[static_cast<std::size_t>(b)];
    if (std::isnan(key_a) != std::isnan(key_b)) return std::isnan(key_b);
    if (key_a != key_b && !std::isnan(key_a)) return key_a > key_b;
    return higher_id_first ? a > b : a < b;
  });
  return experts;
}

std::vector<std::int32_t> sorted(std::vector<std::int32_t> ids) {
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::string difference(const std::vector<std::int32_t>& contract, const std::vector<std::int32_t>& other) {
  const std::vector<std::int32_t> before = sorted(contract), after = sorted(other);
  std::vector<std::int32_t> lost, won;
  std::set_difference(before.begin(), before.end(), after.begin(), after.end(), std::back_inserter(lost));
  std::set_difference(after.begin(), after.end(), before.begin(), before.end(), std::back_inserter(won));
  if (lost.empty())
    return contract == other ? "the same experts in the same order" : "the same experts in another order";
  return fmt::format("another set: {} instead of {}", fmt::join(won, ", "), fmt::join(lost, ", "));
}

void print_experts(const oracle::RouterSpec& spec, const Answer& answer, const std::vector<float>& bias) {
  constexpr std::size_t kRejectedShown = 3, kChosenShown = 16;
  const std::vector<std::int32_t> ranked = ranking(answer, false);
  const std::int64_t group_size = oracle::num_experts(spec) / spec.selection.n_group;
  fmt::print("{:>4} {:>6} {:>14} {:>14} {:>14} {:>14} {:>12}{}\n", "rank", "expert", "logit", "score", "bias", "key",
             "weight", spec.selection.n_group > 1 ? "  group" : "");
  std::size_t rejected = 0, chosen = 0;
  for (std::size_t rank = 0; rank < ranked.size() && rejected < kRejectedShown; ++rank) {
    const std::int32_t id = ranked[rank];
    const auto expert = static_cast<std::size_t>(id);
    const auto place = std::find(answer.ids.begin(), answer.ids.end(), id);
    const bool is_chosen = place != answer.ids.end();
    if (is_chosen && ++chosen > kChosenShown && id != answer.last_chosen) continue;
    if (!is_chosen && rejected++ == 0) fmt::print("{:->86}\n", " cut");
    std::string line = fmt::format(
        "{:>4} {:>6} {:>14} {:>14} {:>14} {:>14} {:>12}", rank + 1, id, fp32_text(answer.logits[expert]),
        fp32_text(answer.scores[expert]), bias.empty() ? "-" : fp32_text(bias[expert]), fp32_text(answer.keys[expert]),
        is_chosen ? fp32_text(answer.weights[static_cast<std::size_t>(place - answer.ids.begin())]) : "-");
    if (spec.selection.n_group > 1) line += fmt::format("  {:>5}", id / group_size);
    if (!answer.excluded.empty() && answer.excluded[expert] != 0) line += "  excluded";
    fmt::print("{}\n", line);
  }
}

void print_groups(const oracle::RouterSpec& spec, const Answer& answer) {
  if (answer.group_scores.empty()) return;
  fmt::print("groups (score by {}, {} of {} kept):",
             spec.selection.group_score == oracle::GroupScore::kMax ? "max" : "top2_sum", spec.selection.topk_group,
             spec.selection.n_group);
  for (std::size_t group = 0; group < answer.group_scores.size(); ++group) {
    fmt::print(" {}={}{}", group, fp32_text(answer.group_scores[group]), answer.group_kept[group] != 0 ? " kept" : "");
  }
  fmt::print("\n");
}

void print_cut(const Answer& answer) {
  if (answer.last_chosen < 0 || answer.first_rejected < 0) {
    fmt::print("cut: no expert is rejected by its key\n");
    return;
  }
  const float above = answer.keys[static_cast<std::size_t>(answer.last_chosen)];
  const float below = answer.keys[static_cast<std::size_t>(answer.first_rejected)];
  std::string gap = "not between two finite keys";
  if (std::isfinite(above) && std::isfinite(below)) {
    const std::int64_t ulps = oracle::ulp_distance(above, below);
    gap = ulps == 0
              ? "0: a tie, the lower id wins"
              : fmt::format("{:g}, {} ulp", static_cast<double>(above) - static_cast<double>(below), grouped(ulps));
  }
  fmt::print("cut: expert {} ({}) is in, expert {} ({}) is out; gap {}\n", answer.last_chosen, fp32_text(above),
             answer.first_rejected, fp32_text(below), gap);
}

void print_alternatives(const oracle::RouterSpec& spec, const Answer& answer, const std::vector<float>& logits,
                        const std::vector<float>& bias) {
  fmt::print("with other arithmetic the router would choose:\n");
  if (spec.selection.bias == oracle::BiasType::kFp32) {
    oracle::RouterSpec rounded = spec;
    rounded.selection.bias = oracle::BiasType::kBf16;
    fmt::print("  bias rounded to bf16      {}\n",
               difference(answer.ids, oracle::route_row(rounded, std::span(logits), bias).ids));
  }
  if (spec.gate.logits_dtype == oracle::FloatType::kFp32) {
    std::vector<float> rounded = logits;
    for (float& logit : rounded) logit = oracle::round_to_bf16(logit);
    fmt::print("  logits rounded to bf16    {}\n",
               difference(answer.ids, oracle::route_row(spec, std::span<const float>(rounded), bias).ids));
  }
  std::vector<std::int32_t> higher = ranking(answer, true);
  higher.resize(answer.ids.size());
  const bool by_key = spec.selection.sort == oracle::SlotOrder::kByKeyDesc;
  fmt::print("  ties to the higher id     {}\n", difference(answer.ids, by_key ? higher : sorted(higher)));
}

// Verdicts of a router on the whole case; returns the row of the first violation.
std::optional<std::int64_t> print_verdicts(const CaseFile& file, const BackendChoice& choice) {
  const std::unique_ptr<properties::Subject> subject = open(choice);
  if (const auto reason = subject->unsupported(file.c.spec)) {
    fmt::print("{}: does not support this case: {}\n", choice.name(), *reason);
    return std::nullopt;
  }
  const CaseRuns runs = run_case(file.c, *subject);
  std::optional<std::int64_t> row;
  bool failed = false;
  for (const properties::LawResult& result : properties::judge(file.c, subject->claims(), runs.inputs, runs.runs)) {
    if (!result.outcome.violation) continue;
    failed = true;
    const properties::Violation& violation = *result.outcome.violation;
    if (!row && violation.row >= 0) row = violation.row;
    fmt::print("{}: breaks {}: {}\n", choice.name(), result.law->id, violation.summary);
  }
  if (!failed) fmt::print("{}: breaks no law on this case\n", choice.name());
  return row;
}

int explain(const ExplainOptions& options) {
  const CaseFile file = read_case_file(options.case_path);
  const properties::Case& c = file.c;
  require_runnable(options.case_path, c.spec);
  const oracle::RouterInputs inputs = properties::materialize(c);
  const std::optional<std::int64_t> wanted = options.row;
  if (wanted && (*wanted < 0 || *wanted >= inputs.num_tokens)) {
    throw UsageError(fmt::format("--row {}: the case has rows 0 to {}", *wanted, inputs.num_tokens - 1));
  }
  fmt::print("case {}: spec {}{}, {}\n", options.case_path, c.spec_name,
             c.variant.empty() ? "" : ", variant " + c.variant, case_sizes(c));
  std::optional<std::int64_t> row = wanted;
  if (options.backend.given()) {
    const std::optional<std::int64_t> failing = print_verdicts(file, options.backend);
    if (!row) row = failing;
  }
  if (inputs.num_tokens == 0) {
    fmt::print("no rows\n");
    return 0;
  }
  const std::int64_t r = row.value_or(0);
  if (r >= inputs.valid_rows()) {
    fmt::print("row {}: padding (valid rows {}): every id is -1, every weight 0\n", r, inputs.valid_rows());
    return 0;
  }
  std::vector<float> logits;
  if (inputs.from_logits()) {
    const auto begin = inputs.router_logits.begin() + r * inputs.num_experts;
    logits.assign(begin, begin + inputs.num_experts);
  } else {
    const std::int64_t rows[] = {r};
    logits = oracle::tc256_logits(c.spec, inputs, rows);
  }
  const Answer answer = oracle::route_row(c.spec, std::span<const float>(logits), inputs.selection_bias);
  fmt::print("row {} of {}, by the contract tc256 (logits {}):\n", r, inputs.num_tokens,
             inputs.from_logits() ? "given" : fmt::format("{} products each", inputs.hidden_size));
  print_experts(c.spec, answer, inputs.selection_bias);
  print_groups(c.spec, answer);
  print_cut(answer);
  std::vector<std::string> weights;
  for (const float weight : answer.weights) weights.push_back(fp32_text(weight));
  fmt::print("weights: sum of the chosen scores {}, divided by {}\n", fp32_text(answer.sum),
             fp32_text(answer.denominator));
  fmt::print("answer: ids {}; weights {}\n", fmt::join(answer.ids, ", "), fmt::join(weights, ", "));
  print_alternatives(c.spec, answer, logits, inputs.selection_bias);
  return 0;
}

}  // namespace

void add_explain(CLI::App& app, Program& program) {
  CLI::App* command =
      app.add_subcommand("explain", "Show one row step by step, and what other arithmetic would choose");
  auto options = std::make_shared<ExplainOptions>();
  command->add_option("--case", options->case_path, "Case file")->required()->type_name("FILE");
  command->add_option("--row", options->row, "Row to explain [the first that fails on the router, or 0]")
      ->type_name("R");
  add_backend_options(*command, options->backend);
  command->footer("Example:\n  samebits explain --case fixtures/cases/article_figure_3.yaml --row 0");
  command->callback([options, &program] { program.action = [options] { return explain(*options); }; });
}

}  // namespace samebits::harness
