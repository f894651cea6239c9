#include <algorithm>
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

// A row before num_valid_rows that looks like padding.
std::optional<Violation> check_valid_row(const Run& run, std::int64_t r) {
  const RowView row = row_view(run, r);
  if (std::any_of(row.ids.begin(), row.ids.end(), [](std::int64_t id) { return id != -1; })) return std::nullopt;
  Violation violation;
  violation.law = kPadding.id;
  violation.row = case_row(run, r);
  violation.observed = "id -1 in every slot";
  violation.expected = "an answer";
  violation.summary = "row " + std::to_string(violation.row) +
                      " has id -1 in every slot like padding, though num_valid_rows is " +
                      std::to_string(*run.request.num_valid_rows) + " (row " + std::to_string(r) + " of " +
                      std::to_string(num_rows(run)) + ", run " + run.request.id + ")";
  return violation;
}

LawOutcome check(const Evidence& evidence) {
  LawOutcome outcome;
  for (const Run& run : evidence.runs) {
    if (!is_usable(evidence, run)) continue;
    for (std::int64_t r = 0; run.request.num_valid_rows && r < valid_rows(run); ++r) {
      if (!has_answer(evidence, case_row(run, r))) continue;
      ++outcome.relevant;
      if (!outcome.violation) outcome.violation = check_valid_row(run, r);
    }
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
    .statement =
        "rows from num_valid_rows on, and only those, get id -1 and weight 0 in every column, and their logits are not "
        "written; a count below 0 is 0, one above T is T",
    .source = "sgl-project/sglang#31838, vllm-project/vllm#57946, ROCm/aiter#4530",
    .hazards = "num_valid_rows at 0, 1, T - 1, T and outside 0 .. T; padding rows that hold NaN, Inf and huge values",
    .min_relevant = 4,
    .not_applicable = [](const oracle::RouterSpec&, const Claims&) -> std::optional<std::string> {
      return std::nullopt;
    },
    .check = check,
};

}  // namespace samebits::properties
