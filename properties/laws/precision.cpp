#include <bit>
#include <cmath>
#include <cstddef>
#include <utility>
#include <vector>

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

// Given logits come out as they went in, whatever the claims; a NaN as any NaN where bits are not claimed.
std::optional<Violation> check_given(const Evidence& evidence, std::int64_t row, std::span<const float> observed) {
  constexpr float kNaN = std::bit_cast<float>(0x7fffffffu);
  const std::span<const float> given = evidence.oracle.logits(row);
  std::vector<float> expected(given.begin(), given.end());
  for (std::size_t e = 0; e < expected.size(); ++e) {
    if (!std::isnan(expected[e])) continue;
    expected[e] = !evidence.claims.bit_exact() && std::isnan(observed[e]) ? observed[e] : kNaN;
  }
  const auto difference = first_difference({{}, {}, observed}, {{}, {}, expected});
  if (!difference) return std::nullopt;
  return violation_of(*difference, kPrecision.id, row, "of given logits ");
}

LawOutcome check(const Evidence& evidence) {
  LawOutcome outcome;
  const bool exact = evidence.claims.bit_exact(), given = evidence.inputs.from_logits();
  for (const JudgedRow& judged : judged_rows(evidence)) {
    const std::span<const float> observed = judged.seen.logits;
    if (observed.empty() || (!given && !exact && !evidence.oracle.bounded(judged.row).judged)) continue;
    outcome.relevant += judged.in_main() ? 1 : 0;
    if (outcome.violation) continue;
    outcome.violation = given   ? check_given(evidence, judged.row, observed)
                        : exact ? check_bits(evidence, judged.row, observed)
                                : check_bounds(evidence.oracle, judged.row, observed);
    if (outcome.violation) name_run(*outcome.violation, judged);
  }
  return outcome;
}

}  // namespace

constinit const Law kPrecision = {
    .id = "precision",
    .statement =
        "returned logits have the bits of the declared contract, or lie within the declared error bound; given ones "
        "come "
        "out as they went in",
    .source = "sgl-project/sglang#38695, sgl-project/sglang#34758, vllm-project/vllm#58076",
    .hazards =
        "sums whose result depends on the order of additions, wide exponents, cancellation, prepared inputs; given "
        "logits of every kind, NaN and -0 too",
    .min_relevant = 8,
    .not_applicable = not_applicable,
    .check = check,
};

}  // namespace samebits::properties
