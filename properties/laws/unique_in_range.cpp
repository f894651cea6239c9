#include <utility>

#include "properties/explain_row.h"
#include "properties/laws/laws.h"
#include "properties/laws/rows.h"
#include "properties/oracle_answers.h"

namespace samebits::properties {
namespace {

std::optional<Violation> check_ids(const Evidence& evidence, const Run& run, std::int64_t r) {
  const RowView row = row_view(run, r);
  const std::string problem = ids_problem(evidence.c.spec, row);
  if (problem.empty()) return std::nullopt;
  Violation violation;
  violation.law = kUniqueInRange.id;
  violation.row = case_row(run, r);
  violation.observed = text(row.ids);
  violation.expected = std::to_string(row.ids.size()) + " distinct ids in 0 .. " +
                       std::to_string(oracle::gate_rows(evidence.c.spec) - 1);
  violation.summary = "row " + std::to_string(violation.row) + ": " + problem + " (run " + run.request.id +
                      (is_kept(run, r) ? ")" : ", where this row was replaced by NaN, Inf or huge values)");
  violation.notes.push_back("ids of the row: " + violation.observed);
  return violation;
}

std::optional<Violation> check_no_answer(const Evidence& evidence, const Run& run, std::int64_t r) {
  const auto answer = first_answer(row_view(run, r));
  if (!answer) return std::nullopt;
  Violation violation = violation_of(*answer, kUniqueInRange.id, case_row(run, r), "");
  violation.summary += " (run " + run.request.id + ")";
  violation.notes.emplace_back("the token id or the class of this row is out of range: it has no answer");
  const std::int64_t row = case_row(run, r);
  if (!is_kept(run, r) || row >= evidence.oracle.num_rows()) return violation;
  for (std::string& note :
       explain_ids(evidence.c.spec, evidence.inputs, row, evidence.oracle.logits(row), row_view(run, r).ids)) {
    violation.notes.push_back(std::move(note));
  }
  return violation;
}

LawOutcome check(const Evidence& evidence) {
  LawOutcome outcome;
  for (const Run& run : evidence.runs) {
    if (!is_usable(evidence, run)) continue;
    for (std::int64_t r = 0; r < valid_rows(run); ++r) {
      ++outcome.relevant;
      if (outcome.violation) continue;
      outcome.violation =
          has_answer(evidence, case_row(run, r)) ? check_ids(evidence, run, r) : check_no_answer(evidence, run, r);
    }
  }
  return outcome;
}

}  // namespace

constinit const Law kUniqueInRange = {
    .id = "unique_in_range",
    .statement =
        "every valid row gets K distinct ids in 0 .. G - 1 (zero experts that are renamed to 0 apart), and one whose "
        "token id or class is out of range gets ids -1 and weights 0",
    .source =
        "flashinfer-ai/flashinfer#1347 (id -1), lightseekorg/tokenspeed#605 (id E), vllm-project/vllm#39244 "
        "(expert 0 K times)",
    .hazards =
        "rows of NaN, -inf and equal values, fewer than K finite experts, E that no vector width divides, token ids "
        "and classes out of range",
    .min_relevant = 8,
    .not_applicable = [](const oracle::RouterSpec&, const Claims&) -> std::optional<std::string> {
      return std::nullopt;
    },
    .check = check,
};

}  // namespace samebits::properties
