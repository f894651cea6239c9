// Answers of two calls that must be related, whatever the right answer is. Which relations are exact, and why:
//
//   duplicate rows     bits: a row's bits depend on the row alone
//   permuted_experts   bits, ids exchanged: no sum changes its terms or their pairs (variation.cpp). Only rows without
//                      equal keys where a tie would decide, as ties go to the lower id; the oracle's keys say which.
//   doubled_scale      ids; weights doubled bit for bit: a power of two commutes with every rounding. Not where a
//                      factor on the way may be subnormal or overflow, nor for `before_divide`, whose factors are not
//                      seen.
//   other_scale        ids: the scale is no part of a key
//   bf16_weights       ids; weights rounded once
//   all_groups         bits: where every group is kept, none is rejected
//   shifted_logits     bits: x + 4 is exact (variation.cpp), so every x - max x is the same number
//   appended_expert    bits: exp(-Inf) adds +0 to a sum of terms >= 0; its key is the last, and a tie goes to lower
//   ids.
//                      Not where an expert is chosen whose key is NaN, which is below it.
//   raised_biases      bits: biases b and b + 8 are exact (variation.cpp), so that both keys are roundings of s + b and
//                      of 8 more, which keep the order. Only rows without ties under either.
//   softmax_of_chosen  a bound, for the experts that both choose (equal scores may come from different logits): see
//                      softmax_bound
//
// Logits and the choice do not depend on the weights, so the relations of scales and bf16 weights hold for every router
// that is deterministic; the others for the contract's arithmetic alone: another router may compute another shape in
// another order.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <span>
#include <utility>

#include "properties/laws/laws.h"
#include "properties/laws/rows.h"
#include "properties/oracle_answers.h"
#include "properties/spec_features.h"

namespace samebits::properties {
namespace {

std::optional<std::string> not_applicable(const oracle::RouterSpec&, const Claims& claims) {
  if (claims.determinism != Determinism::kNone) return std::nullopt;
  return "the router does not claim that a repeated call gives the same bits";
}

// A row of a derived router and the same row of the one to compare with; both have an answer.
struct Pair {
  RowView observed, base;
  std::int64_t row;  // of the case
};

// Why the rows are not related as they must be; nullopt: they are. `relevant` false: the relation says nothing here.
using Relation = std::optional<Difference> (*)(const Evidence& evidence, const Pair& pair, bool& relevant);

std::optional<Difference> ids_differ(const Pair& pair) {
  return first_difference({pair.observed.ids, {}, {}}, {pair.base.ids, {}, {}});
}

std::optional<Difference> same_bits_everywhere(const Evidence&, const Pair& pair, bool&) {
  return first_difference(pair.observed, pair.base);
}

std::optional<Difference> same_ids(const Evidence&, const Pair& pair, bool&) {
  return ids_differ(pair);
}

std::optional<Difference> weights_rounded(const Evidence& evidence, const Pair& pair, bool&) {
  if (!evidence.claims.bit_exact()) return ids_differ(pair);
  const std::vector<float> weights = rounded_weights(pair.base.weights);
  return first_difference(pair.observed, {pair.base.ids, weights, pair.base.logits});
}

// Whether every product of the weight on its way is a normal number with room above, doubled or not.
bool scales_exactly(const Evidence& evidence, float weight, std::int64_t id) {
  constexpr double kLeast = 0x1p-120, kMost = 0x1p120;
  const oracle::RouterInputs& inputs = evidence.inputs;
  double value = std::fabs(static_cast<double>(weight));
  const auto fits = [&] { return value > kLeast && value < kMost; };
  if (!fits()) return false;
  if (!inputs.global_scale.empty()) value /= std::fabs(static_cast<double>(inputs.global_scale.front()));
  if (!fits()) return false;
  if (!inputs.per_expert_scale.empty()) {
    value /= std::fabs(static_cast<double>(inputs.per_expert_scale[static_cast<std::size_t>(id)]));
  }
  return fits();
}

std::optional<Difference> weights_doubled(const Evidence& evidence, const Pair& pair, bool& relevant) {
  if (const auto difference = ids_differ(pair)) return difference;
  const oracle::RouterSpec& spec = evidence.c.spec;
  const bool scaled = spec.weights.scale_stage != oracle::ScaleStage::kOnExpertOutput;
  if (spec.weights.scale_stage == oracle::ScaleStage::kBeforeDivide &&
      spec.weights.renormalize != oracle::Renormalize::kNone) {
    return std::nullopt;
  }
  relevant = false;
  std::vector<float> expected(pair.observed.weights.begin(), pair.observed.weights.end());
  for (std::size_t i = 0; i < expected.size(); ++i) {
    if (!scales_exactly(evidence, pair.base.weights[i], pair.base.ids[i])) continue;
    relevant = true;
    expected[i] = (scaled ? 2.0f : 1.0f) * pair.base.weights[i];
  }
  return first_difference({{pair.observed.ids}, pair.observed.weights, {}}, {pair.observed.ids, expected, {}});
}

// Whether a tie could decide anything: without groups among the chosen and the first that is not, with groups anywhere.
bool has_ties(const oracle::RouterSpec& spec, std::vector<float> keys) {
  const auto worse = [](float a, float b) { return a > b || (std::isnan(b) && !std::isnan(a)); };
  std::sort(keys.begin(), keys.end(), worse);
  std::size_t count = keys.size();
  if (spec.selection.n_group == 1) count = std::min(count, static_cast<std::size_t>(oracle::top_k(spec)) + 1);
  for (std::size_t i = 1; i < count; ++i) {
    if (keys[i] == keys[i - 1] || std::isnan(keys[i - 1])) return true;
  }
  return false;
}

// Given logits are finite, so that a key is NaN where its bias is.
std::optional<Difference> expert_appended(const Evidence& evidence, const Pair& pair, bool& relevant) {
  const auto bias = oracle::row_constants(evidence.c.spec, evidence.inputs, pair.row).selection_bias;
  const auto is_nan = [&](std::int64_t id) { return std::isnan(bias[static_cast<std::size_t>(id)]); };
  relevant = bias.empty() || std::none_of(pair.base.ids.begin(), pair.base.ids.end(), is_nan);
  return relevant ? first_difference(pair.observed, pair.base) : std::nullopt;
}

// What a router derived with given logits reads of one row.
oracle::RouterInputs one_row(const oracle::RouterInputs& inputs, std::int64_t row) {
  const auto at = static_cast<std::size_t>(row);
  oracle::RouterInputs one;
  one.num_tokens = 1;
  one.gate_rows = inputs.gate_rows;
  one.hidden_size = inputs.hidden_size;
  const auto cut = [&](const auto& matrix, std::int64_t width, auto& to) {
    if (!matrix.empty()) to.assign(matrix.begin() + row * width, matrix.begin() + (row + 1) * width);
  };
  cut(inputs.hidden_states, inputs.hidden_size, one.hidden_states);
  cut(inputs.router_logits, inputs.gate_rows, one.router_logits);
  if (!inputs.row_class.empty()) one.row_class = {inputs.row_class[at]};
  one.selection_bias = inputs.selection_bias;
  one.per_expert_scale = inputs.per_expert_scale;
  one.global_scale = inputs.global_scale;
  return one;
}

std::optional<Difference> biases_raised(const Evidence& evidence, const Pair& pair, bool& relevant) {
  for (const Variation variation : {Variation::kRoundBiases, Variation::kRaisedBiases}) {
    const DerivedRouter derived = derive(evidence.c.spec, one_row(evidence.inputs, pair.row), variation);
    const auto answer = oracle::route_row(derived.spec, std::span<const float>(derived.inputs.router_logits),
                                          oracle::row_constants(derived.spec, derived.inputs, 0));
    relevant = relevant && !has_ties(derived.spec, answer.keys);
  }
  return relevant ? first_difference(pair.observed, pair.base) : std::nullopt;
}

std::optional<Difference> experts_permuted(const Evidence& evidence, const Pair& pair, bool& relevant) {
  const oracle::RouterSpec& spec = evidence.c.spec;
  relevant = has_table(spec) || !has_ties(spec, evidence.oracle.row(pair.row).keys);
  if (!relevant) return std::nullopt;
  std::vector<std::pair<std::int64_t, float>> slots;
  for (std::size_t i = 0; i < pair.base.ids.size(); ++i) {
    slots.emplace_back(permuted_id(spec, pair.base.ids[i]), pair.base.weights[i]);
  }
  if (spec.selection.sort == oracle::SlotOrder::kByIndex) {
    std::sort(slots.begin(), slots.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  }
  std::vector<std::int64_t> ids;
  std::vector<float> weights, logits(pair.base.logits.begin(), pair.base.logits.end());
  for (const auto& [id, weight] : slots) {
    ids.push_back(id);
    weights.push_back(weight);
  }
  for (std::size_t e = 0; e < logits.size(); ++e) {
    logits[static_cast<std::size_t>(permuted_id(spec, static_cast<std::int64_t>(e)))] = pair.base.logits[e];
  }
  return first_difference(pair.observed, {ids, weights, logits});
}

// Relative, of two weights. Both start from the same K values e_i = exp(x_i - m), as the largest logit m is chosen.
// With u = 2^-24 for each rounding: s_i = e_i / Z has 1, their left fold K - 1 more at the most, s_i / D and the
// product with the scale 2: K + 3 (Z cancels). The softmax over the chosen: sum32 of K terms at the most K / 32 + 5,
// the quotient and the product 2. Together less than 1.04 K + 11; 2 K + 16 leaves room for the products of errors, as K
// <= 64 or so.
double softmax_bound(std::int64_t k) {
  return (2.0 * static_cast<double>(k) + 16.0) * 0x1p-24;
}

std::optional<Difference> softmax_agrees(const Evidence& evidence, const Pair& pair, bool& relevant) {
  // Below, a score e_i / Z could be subnormal: Z <= R, and the weight is a score over D >= 1 / R times the scales.
  constexpr float kLeast = 0x1p-60f;
  const std::vector<std::int64_t> sorted_base = [&] {
    std::vector<std::int64_t> ids(pair.base.ids.begin(), pair.base.ids.end());
    std::sort(ids.begin(), ids.end());
    return ids;
  }();
  std::vector<std::int64_t> sorted(pair.observed.ids.begin(), pair.observed.ids.end());
  std::sort(sorted.begin(), sorted.end());
  relevant = sorted == sorted_base;
  if (!relevant) return std::nullopt;
  std::map<std::int64_t, float> weight_of;
  for (std::size_t i = 0; i < pair.base.ids.size(); ++i) weight_of[pair.base.ids[i]] = pair.base.weights[i];
  const double bound = softmax_bound(oracle::top_k(evidence.c.spec));
  for (std::size_t i = 0; i < pair.observed.ids.size(); ++i) {
    const float a = pair.observed.weights[i], b = weight_of[pair.observed.ids[i]];
    if (std::fabs(b) < kLeast) continue;
    const double difference = std::fabs(static_cast<double>(a) - static_cast<double>(b));
    if (difference <= bound * std::fabs(static_cast<double>(b))) continue;
    return Difference{"weight of expert " + std::to_string(pair.observed.ids[i]), static_cast<std::int64_t>(i), text(a),
                      text(b) + " within " + text(bound) + " of it", ulp_text(a, b)};
  }
  return std::nullopt;
}

Relation relation_of(Variation variation) {
  switch (variation) {
    case Variation::kPermutedExperts:
      return experts_permuted;
    case Variation::kDoubledScale:
      return weights_doubled;
    case Variation::kOtherScale:
      return same_ids;
    case Variation::kBf16Weights:
      return weights_rounded;
    case Variation::kAllGroups:
    case Variation::kShiftedLogits:
      return same_bits_everywhere;
    case Variation::kAppendedExpert:
      return expert_appended;
    case Variation::kRaisedBiases:
      return biases_raised;
    case Variation::kSoftmaxOfChosen:
      return softmax_agrees;
    case Variation::kNone:
    case Variation::kNoGroups:
    case Variation::kGivenLogits:
    case Variation::kRoundBiases:
      break;
  }
  return nullptr;
}

const Run* run_of(const Evidence& evidence, Variation variation) {
  if (variation == Variation::kNone) return usable(evidence, "main");
  for (const Run& run : evidence.runs) {
    if (run.request.variation == variation) return is_complete(evidence, run) ? &run : nullptr;
  }
  return nullptr;
}

void check_relation(const Evidence& evidence, const Run& run, LawOutcome& outcome) {
  const Variation variation = run.request.variation;
  const Relation relation = relation_of(variation);
  const Run* base = run_of(evidence, base_of(evidence.c.spec, variation));
  if (relation == nullptr || base == nullptr || !is_complete(evidence, run)) return;
  const bool of_main = base->request.variation == Variation::kNone;
  for (std::int64_t r = 0; r < valid_rows(run); ++r) {
    const std::int64_t row = case_row(run, r);
    const std::int64_t base_row = of_main ? row : r;
    if (base_row >= valid_rows(*base) || row >= evidence.oracle.num_rows() || !has_answer(evidence, row)) continue;
    bool relevant = true;
    const Pair pair{row_view(run, r), row_view(*base, base_row), row};
    const auto difference = relation(evidence, pair, relevant);
    if (relevant) ++outcome.relevant;
    if (!difference || outcome.violation) continue;
    outcome.violation = violation_of(*difference, kMetamorphic.id, row, " (run " + run.request.id + ")");
    outcome.violation->summary += "; expected follows from its value in run " + base->request.id;
    outcome.violation->notes.push_back(count_differences(pair.observed, pair.base));
  }
}

// Rows that a run has more than once.
void check_duplicates(const Evidence& evidence, const Run& run, LawOutcome& outcome) {
  if (!run.request.replace.empty() || !is_usable(evidence, run)) return;
  std::map<std::int64_t, std::int64_t> first_place;
  for (std::int64_t r = 0; r < valid_rows(run); ++r) {
    const std::int64_t row = case_row(run, r);
    const auto [place, is_first] = first_place.emplace(row, r);
    if (is_first) continue;
    ++outcome.relevant;
    if (outcome.violation) continue;
    const auto difference = first_difference(row_view(run, r), row_view(run, place->second));
    if (!difference) continue;
    outcome.violation =
        violation_of(*difference, kMetamorphic.id, row, " as row " + std::to_string(r) + " of run " + run.request.id);
    outcome.violation->summary += "; expected is its value as row " + std::to_string(place->second) + " of that run";
  }
}

LawOutcome check(const Evidence& evidence) {
  LawOutcome outcome;
  for (const Run& run : evidence.runs) {
    if (run.request.variation != Variation::kNone) check_relation(evidence, run, outcome);
    if (evidence.claims.determinism == Determinism::kBatchInvariant) check_duplicates(evidence, run, outcome);
  }
  return outcome;
}

}  // namespace

constinit const Law kMetamorphic = {
    .id = "metamorphic",
    .statement =
        "routers whose specs or inputs are related give related answers: experts exchanged, scale doubled or another, "
        "bf16 weights, all groups kept, logits shifted under a softmax, biases raised, a hopeless expert appended, "
        "rows "
        "repeated",
    .source =
        "relations of any right router; vllm-project/vllm#24119 and sgl-project/sglang#35152 (factors applied twice or "
        "never), flashinfer-ai/flashinfer#2822 (shifted logits), vllm-project/vllm#13474 (groups)",
    .hazards =
        "derived routers of every kind that the spec has, two a case; rows without ties, with ties, with values that "
        "are not finite, repeated rows",
    .min_relevant = 8,
    .not_applicable = not_applicable,
    .check = check,
};

}  // namespace samebits::properties
