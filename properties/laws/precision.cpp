#include <cstddef>
#include <utility>

#include "properties/explain_row.h"
#include "properties/laws/laws.h"
#include "properties/laws/rows.h"
#include "properties/oracle_answers.h"

namespace samebits::properties {
namespace {

std::optional<std::string> not_applicable(const oracle::RouterSpec&, const Claims& claims) {
  if (claims.returns_logits) return std::nullopt;
  return "the router does not return its logits";
}

std::optional<Violation> check_bits(const Evidence& evidence, std::int64_t row, std::span<const float> observed) {
  const std::span<const float> expected = evidence.oracle.logits(row);
  const RowView seen{{}, {}, observed};
  const RowView wanted{{}, {}, expected};
  const auto difference = first_difference(seen, wanted);
  if (!difference) return std::nullopt;
  Violation violation = violation_of(*difference, kPrecision.id, row, "");
  violation.notes.push_back(count_differences(seen, wanted));
  for (std::string& note : explain_logits(evidence.c.spec, evidence.inputs, row, expected, observed)) {
    violation.notes.push_back(std::move(note));
  }
  return violation;
}

std::optional<Violation> check_bounds(OracleAnswers& answers, std::int64_t row, std::span<const float> observed) {
  const BoundedRow& bounded = answers.bounded(row);
  for (std::size_t e = 0; e < observed.size(); ++e) {
    const Interval& bound = bounded.logits[e];
    if (bound.contains(static_cast<double>(observed[e]))) continue;
    Violation violation;
    violation.law = kPrecision.id;
    violation.row = row;
    violation.observed = text(observed[e]);
    violation.expected = "a value in " + text(bound);
    violation.summary = "row " + std::to_string(row) + ": logit of expert " + std::to_string(e) + " is " +
                        violation.observed + ", outside the bound of the declared arithmetic: expected " +
                        violation.expected;
    return violation;
  }
  return std::nullopt;
}

LawOutcome check(const Evidence& evidence) {
  LawOutcome outcome;
  if (evidence.inputs.from_logits()) return outcome;
  const bool exact = evidence.claims.bit_exact();
  for (const JudgedRow& judged : judged_rows(evidence)) {
    const std::span<const float> observed = judged.seen.logits;
    if (observed.empty() || (!exact && !evidence.oracle.bounded(judged.row).judged)) continue;
    outcome.relevant += judged.in_main() ? 1 : 0;
    if (outcome.violation) continue;
    outcome.violation =
        exact ? check_bits(evidence, judged.row, observed) : check_bounds(evidence.oracle, judged.row, observed);
    if (outcome.violation) name_run(*outcome.violation, judged);
  }
  return outcome;
}

}  // namespace

constinit const Law kPrecision = {
    .id = "precision",
    .statement = "returned logits have the bits of the declared contract, or lie within the declared error bound",
    .source = "sgl-project/sglang#38695, sgl-project/sglang#34758, vllm-project/vllm#58076",
    .hazards = "sums whose result depends on the order of additions, wide exponents, cancellation, prepared inputs",
    .min_relevant = 8,
    .not_applicable = not_applicable,
    .check = check,
};

}  // namespace samebits::properties
