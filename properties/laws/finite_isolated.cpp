#include <cmath>
#include <cstddef>
#include <utility>

#include "properties/laws/laws.h"
#include "properties/laws/rows.h"

namespace samebits::properties {
namespace {

// The run with the same rows in the same places and nothing replaced.
const Run* quiet_run(const Evidence& evidence, const Run& loud) {
  for (const Run& run : evidence.runs) {
    if (run.request.replace.empty() && run.request.rows == loud.request.rows &&
        run.request.num_valid_rows == loud.request.num_valid_rows && is_usable(evidence, run)) {
      return &run;
    }
  }
  return nullptr;
}

std::optional<Violation> non_finite_weight(const Run& run, std::int64_t r) {
  const RowView row = row_view(run, r);
  for (std::size_t i = 0; i < row.weights.size(); ++i) {
    if (std::isfinite(row.weights[i])) continue;
    Violation violation;
    violation.law = kFiniteIsolated.id;
    violation.row = case_row(run, r);
    violation.slot = static_cast<std::int64_t>(i);
    violation.observed = text(row.weights[i]);
    violation.expected = "a finite weight";
    violation.summary = "row " + std::to_string(violation.row) + ": the weight in slot " + std::to_string(i) +
                        " (expert " + std::to_string(row.ids[i]) + ") is " + violation.observed + " (run " +
                        run.request.id + (is_kept(run, r) ? ")" : ", where this row was replaced)");
    return violation;
  }
  return std::nullopt;
}

LawOutcome check(const Evidence& evidence) {
  LawOutcome outcome;
  for (const Run& run : evidence.runs) {
    if (!is_usable(evidence, run)) continue;
    const bool loud = !run.request.replace.empty();
    for (std::int64_t r = 0; r < valid_rows(run); ++r) {
      // Any row could have a weight that is not finite, but only a hostile one, or one that has it, is a test of that.
      std::optional<Violation> violation = non_finite_weight(run, r);
      if ((loud && !is_kept(run, r)) || violation) ++outcome.relevant;
      if (!outcome.violation) outcome.violation = std::move(violation);
    }
    // A router that claims nothing about repeated calls cannot be held to equal bits here either.
    if (!loud || evidence.claims.determinism == Determinism::kNone) continue;
    const Run* quiet = quiet_run(evidence, run);
    if (quiet == nullptr) continue;
    for (std::int64_t r = 0; r < valid_rows(run); ++r) {
      if (!is_kept(run, r)) continue;
      ++outcome.relevant;
      if (outcome.violation) continue;
      const RowView observed = row_view(run, r);
      const RowView expected = row_view(*quiet, r);
      if (const auto difference = first_difference(observed, expected)) {
        outcome.violation =
            violation_of(*difference, kFiniteIsolated.id, case_row(run, r), " beside rows of NaN, Inf and huge values");
        outcome.violation->notes.push_back(count_differences(observed, expected));
        outcome.violation->notes.push_back("same row count and places as run " + quiet->request.id +
                                           ": only the values of other rows differ");
      }
    }
  }
  return outcome;
}

}  // namespace

constinit const Law kFiniteIsolated = {
    .id = "finite_isolated",
    .statement =
        "weights are finite for any input, and what other rows hold, NaN and Inf included, changes no bit of a "
        "row",
    .source = "vllm-project/vllm#39391, vllm-project/vllm#47367, sgl-project/sglang#30989",
    .hazards = "neighbours of NaN, Inf and huge values, loud padding rows",
    .min_relevant = 8,
    .not_applicable = [](const oracle::RouterSpec&, const Claims&) -> std::optional<std::string> {
      return std::nullopt;
    },
    .check = check,
};

}  // namespace samebits::properties
