#include <algorithm>
#include <cstddef>
#include <utility>

#include "properties/explain_row.h"
#include "properties/laws/laws.h"
#include "properties/laws/rows.h"
#include "properties/oracle_answers.h"

namespace samebits::properties {
namespace {

std::int64_t slot_of(const oracle::RowAnswer<float>& answer, std::int64_t id) {
  const auto found = std::find(answer.ids.begin(), answer.ids.end(), id);
  return found == answer.ids.end() ? -1 : found - answer.ids.begin();
}

// The weights of one row can be compared where they do not depend on experts that only one side chose: everywhere for
// equal sets, at the common experts when every weight is that of its own score.
bool comparable(const oracle::RouterSpec& spec, const oracle::RowAnswer<float>& answer,
                std::span<const std::int64_t> ids) {
  const bool same_set = std::all_of(ids.begin(), ids.end(), [&](std::int64_t id) { return slot_of(answer, id) >= 0; });
  return same_set || (spec.weights.renormalize == oracle::Renormalize::kNone &&
                      spec.score.stage == oracle::ScoreStage::kBeforeTopk);
}

std::optional<Violation> check_exact(const Evidence& evidence, std::int64_t row, const RowView& seen) {
  const oracle::RowAnswer<float>& answer = evidence.oracle.row(row);
  for (std::size_t i = 0; i < seen.ids.size(); ++i) {
    const std::int64_t slot = slot_of(answer, seen.ids[i]);
    if (slot < 0) continue;
    const float observed = seen.weights[i];
    const float expected = answer.weights[static_cast<std::size_t>(slot)];
    if (same_bits(observed, expected)) continue;
    const Difference difference{"weight", static_cast<std::int64_t>(i), text(observed), text(expected),
                                ulp_text(observed, expected)};
    Violation violation =
        violation_of(difference, kWeights.id, row,
                     " of expert " + std::to_string(seen.ids[i]) + " (slot " + std::to_string(i) + ", score " +
                         text(answer.scores[static_cast<std::size_t>(seen.ids[i])]) + ")");
    for (std::string& note : explain_weights(evidence.c.spec, evidence.oracle.logits(row),
                                             evidence.inputs.selection_bias, seen.ids, seen.weights)) {
      violation.notes.push_back(std::move(note));
    }
    return violation;
  }
  return std::nullopt;
}

std::optional<Violation> check_bounded(const Evidence& evidence, std::int64_t row, const RowView& seen) {
  const std::vector<Interval> bounds = weight_bounds(evidence.c.spec, evidence.oracle.bounded(row), seen.ids);
  for (std::size_t i = 0; i < seen.ids.size(); ++i) {
    if (bounds[i].contains(static_cast<double>(seen.weights[i]))) continue;
    Violation violation;
    violation.law = kWeights.id;
    violation.row = row;
    violation.slot = static_cast<std::int64_t>(i);
    violation.observed = text(seen.weights[i]);
    violation.expected = "a value in " + text(bounds[i]);
    violation.summary = "row " + std::to_string(row) + ": weight of expert " + std::to_string(seen.ids[i]) + " (slot " +
                        std::to_string(i) + ") is " + violation.observed +
                        ", outside the bound of the declared arithmetic: expected " + violation.expected;
    return violation;
  }
  return std::nullopt;
}

LawOutcome check(const Evidence& evidence) {
  LawOutcome outcome;
  const bool exact = evidence.claims.bit_exact();
  for (const JudgedRow& judged : judged_rows(evidence)) {
    const std::int64_t row = judged.row;
    const RowView& seen = judged.seen;
    if (!ids_problem(seen.ids, oracle::num_experts(evidence.c.spec)).empty()) continue;
    if (exact ? !comparable(evidence.c.spec, evidence.oracle.row(row), seen.ids)
              : !evidence.oracle.bounded(row).judged) {
      continue;
    }
    outcome.relevant += judged.in_main() ? 1 : 0;
    if (outcome.violation) continue;
    outcome.violation = exact ? check_exact(evidence, row, seen) : check_bounded(evidence, row, seen);
    if (outcome.violation) name_run(*outcome.violation, judged);
  }
  return outcome;
}

}  // namespace

constinit const Law kWeights = {
    .id = "weights",
    .statement =
        "the weight of every chosen expert comes from its own score as the spec says: unbiased or biased, "
        "renormalised or not, scaled once",
    .source =
        "vllm-project/vllm#12002 (weight from the biased score), flashinfer-ai/flashinfer#3875 (score recovered "
        "from the key), vllm-project/vllm#24119 (scaled twice), sgl-project/sglang#33631 (bf16 weights)",
    .hazards = "biases far above the scores, scores that underflow, sums of 0, both signs of the bias",
    .min_relevant = 8,
    .not_applicable = [](const oracle::RouterSpec&, const Claims&) -> std::optional<std::string> {
      return std::nullopt;
    },
    .check = check,
};

}  // namespace samebits::properties
