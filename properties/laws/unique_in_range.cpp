#include "properties/laws/laws.h"
#include "properties/laws/rows.h"

namespace samebits::properties {
namespace {

LawOutcome check(const Evidence& evidence) {
  LawOutcome outcome;
  const std::int64_t num_experts = oracle::num_experts(evidence.c.spec);
  for (const Run& run : evidence.runs) {
    if (!is_usable(evidence, run)) continue;
    for (std::int64_t r = 0; r < valid_rows(run); ++r) {
      ++outcome.relevant;
      if (outcome.violation) continue;
      const RowView row = row_view(run, r);
      const std::string problem = ids_problem(row.ids, num_experts);
      if (problem.empty()) continue;
      Violation violation;
      violation.law = kUniqueInRange.id;
      violation.row = case_row(run, r);
      violation.observed = text(row.ids);
      violation.expected = std::to_string(row.ids.size()) + " distinct ids in 0 .. " + std::to_string(num_experts - 1);
      violation.summary = "row " + std::to_string(violation.row) + ": " + problem + " (run " + run.request.id +
                          (is_kept(run, r) ? ")" : ", where this row was replaced by NaN, Inf or huge values)");
      violation.notes.push_back("ids of the row: " + violation.observed);
      outcome.violation = violation;
    }
  }
  return outcome;
}

}  // namespace

constinit const Law kUniqueInRange = {
    .id = "unique_in_range",
    .statement = "every valid row gets K distinct expert ids in 0 .. E - 1",
    .source =
        "flashinfer-ai/flashinfer#1347 (id -1), lightseekorg/tokenspeed#605 (id E), vllm-project/vllm#39244 "
        "(expert 0 K times)",
    .hazards = "rows of NaN, -inf and equal values, fewer than K finite experts, E that no vector width divides",
    .min_relevant = 8,
    .not_applicable = [](const oracle::RouterSpec&, const Claims&) -> std::optional<std::string> {
      return std::nullopt;
    },
    .check = check,
};

}  // namespace samebits::properties
