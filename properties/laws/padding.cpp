#include <bit>
#include <cstddef>

#include "properties/laws/laws.h"
#include "properties/laws/rows.h"

namespace samebits::properties {
namespace {

std::optional<Violation> check_row(const Run& run, std::int64_t r) {
  const RowView row = row_view(run, r);
  Violation violation;
  violation.law = kPadding.id;
  violation.row = case_row(run, r);
  const std::string where = "padding row " + std::to_string(violation.row) + " (" + std::to_string(valid_rows(run)) +
                            " rows are valid, run " + run.request.id + "): ";
  if (const auto answer = first_answer(row)) {
    violation.slot = answer->slot;
    violation.observed = answer->observed;
    violation.expected = answer->expected;
    violation.summary = where + answer->what + " is " + answer->observed + ", expected " + answer->expected;
    return violation;
  }
  for (std::size_t e = 0; e < row.logits.size(); ++e) {
    if (std::bit_cast<std::uint32_t>(row.logits[e]) == run.request.poison) continue;
    violation.observed = text(row.logits[e]);
    violation.expected = "what was there before the call";
    violation.summary = where + "logit of expert " + std::to_string(e) + " was written: " + violation.observed;
    return violation;
  }
  return std::nullopt;
}

LawOutcome check(const Evidence& evidence) {
  LawOutcome outcome;
  for (const Run& run : evidence.runs) {
    if (!is_usable(evidence, run)) continue;
    for (std::int64_t r = valid_rows(run); r < num_rows(run); ++r) {
      ++outcome.relevant;
      if (!outcome.violation) outcome.violation = check_row(run, r);
    }
  }
  return outcome;
}

}  // namespace

constinit const Law kPadding = {
    .id = "padding",
    .statement = "rows from num_valid_rows on get id -1 and weight 0 in every column, and their logits are not written",
    .source = "sgl-project/sglang#31838, vllm-project/vllm#57946, ROCm/aiter#4530",
    .hazards = "num_valid_rows at 0, 1, T - 1, T and outside 0 .. T; padding rows that hold NaN, Inf and huge values",
    .min_relevant = 4,
    .not_applicable = [](const oracle::RouterSpec&, const Claims&) -> std::optional<std::string> {
      return std::nullopt;
    },
    .check = check,
};

}  // namespace samebits::properties
