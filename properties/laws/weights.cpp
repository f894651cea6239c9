#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "properties/explain_row.h"
#include "properties/laws/laws.h"
#include "properties/laws/rows.h"
#include "properties/oracle_answers.h"
#include "properties/spec_features.h"

namespace samebits::properties {
namespace {

// The weights of one row can be compared where they do not depend on experts that only one side chose: everywhere for
// equal sets, at the common experts when every weight is that of its own score.
bool comparable(const oracle::RouterSpec& spec, const oracle::RowAnswer<float>& answer,
                std::span<const std::int64_t> ids) {
  if (std::is_permutation(ids.begin(), ids.end(), answer.ids.begin(), answer.ids.end())) return true;
  return spec.weights.renormalize == oracle::Renormalize::kNone && scores_before_selection(spec) &&
         !renames_zero_experts(spec);
}

// Slots by id; several of id 0 (renamed zero experts) by weight, the larger first.
std::vector<std::size_t> slots_by_id(std::span<const std::int64_t> ids, std::span<const float> weights) {
  std::vector<std::size_t> slots(ids.size());
  std::iota(slots.begin(), slots.end(), std::size_t{0});
  std::stable_sort(slots.begin(), slots.end(), [&](std::size_t a, std::size_t b) {
    return ids[a] != ids[b] ? ids[a] < ids[b] : weights[a] > weights[b];
  });
  return slots;
}

std::optional<Violation> check_exact(const Evidence& evidence, std::int64_t row, const RowView& seen) {
  const oracle::RowAnswer<float>& answer = evidence.oracle.row(row);
  // The answer as it is, slot by slot; below, slots are matched by id.
  if (std::equal(seen.ids.begin(), seen.ids.end(), answer.ids.begin(), answer.ids.end()) &&
      std::equal(seen.weights.begin(), seen.weights.end(), answer.weights.begin(), answer.weights.end(), same_bits)) {
    return std::nullopt;
  }
  const std::vector<std::int64_t> expected = answer_ids(answer);
  const std::vector<std::size_t> ours = slots_by_id(expected, answer.weights);
  auto next = ours.begin();
  for (const std::size_t i : slots_by_id(seen.ids, seen.weights)) {
    while (next != ours.end() && expected[*next] < seen.ids[i]) ++next;
    if (next == ours.end() || expected[*next] != seen.ids[i]) continue;
    const std::size_t slot = *next++;
    if (same_bits(seen.weights[i], answer.weights[slot])) continue;
    const auto id = static_cast<std::size_t>(answer.expert_ids[slot]);
    const Difference difference{"weight", static_cast<std::int64_t>(i), text(seen.weights[i]),
                                text(answer.weights[slot]), ulp_text(seen.weights[i], answer.weights[slot])};
    Violation violation = violation_of(difference, kWeights.id, row,
                                       " of expert " + std::to_string(seen.ids[i]) + " (slot " + std::to_string(i) +
                                           ", score " + text(answer.scores[id]) + ")");
    for (std::string& note :
         explain_weights(evidence.c.spec, evidence.inputs, row, evidence.oracle.logits(row), seen.ids, seen.weights)) {
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
  for (const JudgedRow& judged : answered_rows(evidence)) {
    const std::int64_t row = judged.row;
    const RowView& seen = judged.seen;
    if (!ids_problem(evidence.c.spec, seen).empty()) continue;
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
        "renormalised or not, scaled once, and by its own learned scale",
    .source =
        "vllm-project/vllm#12002 (weight from the biased score), flashinfer-ai/flashinfer#3875 (score recovered "
        "from the key), vllm-project/vllm#24119 (scaled twice), sgl-project/sglang#33631 (bf16 weights)",
    .hazards =
        "biases far above the scores, scores that underflow, sums of 0, both signs of the bias, shared experts that "
        "dominate, learned scales of any value, thresholds met within one ulp",
    .min_relevant = 8,
    .not_applicable = [](const oracle::RouterSpec&, const Claims&) -> std::optional<std::string> {
      return std::nullopt;
    },
    .check = check,
};

}  // namespace samebits::properties
