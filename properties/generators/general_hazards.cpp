// Hazards of every router: sums, ties, biases, groups, saturation, values that are not finite, padding.
#include <algorithm>
#include <array>
#include <bit>

#include "properties/generators/hazard_parts.h"

namespace samebits::properties {
namespace {

using oracle::RouterSpec;
using oracle::ScoreFunc;

// Builders. Those of stage kAny leave the logits at their default, N(0, 1).

void plain(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  usual_bias(spec, draw, d);
  if (choose(draw, 16, 4) == 1) {  // exact dot products, many ties
    d.hidden = HiddenFamily::kSmallInteger;
    d.weight = WeightFamily::kSmallInteger;
  }
}

void single_row(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  d.num_tokens = 1;
  // All 24 bits of a weight count, in every run of the case.
  if (d.stage == Stage::kFull && choose(draw, 16, 2) == 0) d.gate_weight_dtype = oracle::FloatType::kFp32;
  usual_bias(spec, draw, d);
}

void order_sensitive(const RouterSpec&, const Draw&, CaseDescription& d) {
  d.hidden = HiddenFamily::kOrderSensitive;
  d.weight = WeightFamily::kOrderSensitive;
  d.scales = ScaleFamily::kUnit;  // of the input: other factors would leave pairs that do not cancel
  bias(d, BiasFamily::kNormal, 0.0f, 0.05f);
}

// Other sums of three terms than the right ones cannot hide behind an error bound that grows with H.
void few_terms(const RouterSpec&, const Draw&, CaseDescription& d) {
  d.hidden = HiddenFamily::kFewTerms;
  bias(d, BiasFamily::kNormal, 0.0f, 0.05f);
}

void wide_exponent(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  d.hidden = HiddenFamily::kWideExponent;
  d.weight = choose(draw, 16, 2) == 0 ? WeightFamily::kNormal : WeightFamily::kWideExponent;
  usual_bias(spec, draw, d);
}

void exact_ties(const RouterSpec&, const Draw& draw, CaseDescription& d) {
  d.weight = choose(draw, 16, 4) == 1 ? WeightFamily::kZero : WeightFamily::kDuplicateRows;
  logits(d, LogitsFamily::kAllEqual);
  no_bias(d);
}

void ties_across_cut(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  if (has_selection_bias(spec)) {
    switch (choose(draw, 16, 3)) {
      case 0:  // Scores that differ and a bias that absorbs the difference: keys that tie only because they are fp32.
        logits(d, LogitsFamily::kUlpSteps, spec.score.func == ScoreFunc::kSigmoid ? -1.5f : 1.0f);
        return bias(d, BiasFamily::kUniform, 11.5f, 0.0f);
      case 1:
        logits(d, LogitsFamily::kAllEqual);
        return bias(d, BiasFamily::kFewDistinct, choose(draw, 24, 2) == 0 ? 11.5f : -4.0f, 0.25f);
      default:
        break;
    }
  }
  logits(d, LogitsFamily::kFewDistinct, -2.0f, 0.5f);
  no_bias(d);
}

void ulp_gap(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  if (has_selection_bias(spec) && choose(draw, 16, 2) == 0) {
    // Equal scores; consecutive fp32 values of the bias in [8, 16), and so of the keys.
    logits(d, LogitsFamily::kAllEqual);
    return bias(d, BiasFamily::kStepped, 11.5f, 0x1p-20f);
  }
  // Where a step of one ulp in the logit is about one ulp of the score.
  logits(d, LogitsFamily::kUlpSteps, spec.score.func == ScoreFunc::kSigmoid ? -1.5f : 1.0f);
  no_bias(d);
}

void large_bias_offset(const RouterSpec&, const Draw& draw, CaseDescription& d) {
  large_bias(draw, d);
}

void bf16_collapse(const RouterSpec&, const Draw&, CaseDescription& d) {
  logits(d, LogitsFamily::kNormal, 0.0f, 0.125f);  // the bias decides
  bias(d, BiasFamily::kUniform, 11.54f, 0.42f);
}

void negative_keys(const RouterSpec&, const Draw&, CaseDescription& d) {
  logits(d, LogitsFamily::kNormal, -4.0f, 1.0f);
  bias(d, BiasFamily::kUniform, -2.5f, 1.0f);
}

void group_hazards(const RouterSpec&, const Draw& draw, CaseDescription& d) {
  if (choose(draw, 16, 3) == 1) {  // group scores tie at the cut between the groups
    logits(d, LogitsFamily::kFewDistinct, -2.0f, 0.5f);
    return no_bias(d);
  }
  // sigmoid: 0 | 0.56, 0.69 | 0.95: two middle ones outweigh the best alone. With the bias most keys of a chosen group
  // are negative, so that a mask of 0 in the place of -Inf would win.
  logits(d, LogitsFamily::kSparse, -8.0f, 11.0f);
  bias(d, BiasFamily::kUniform, -0.6f, 0.01f);
}

void saturated(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  logits(d, LogitsFamily::kSaturated);
  if (choose(draw, 16, 2) == 0) {
    no_bias(d);
  } else {
    usual_bias(spec, draw, d);
  }
}

void underflow_zero_sum(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  // Far below the last logits whose score is not 0, around them, and where sums are tiny: about 1e-39, 1e-34, 1e-30,
  // on both sides of the guards and of the least normal number that faulty routers put there.
  constexpr std::array<float, 5> kLogits = {-153.0f, -102.0f, -90.0f, -80.0f, -71.0f};
  const bool softmax = spec.score.func == ScoreFunc::kSoftmax;
  const float unit = spec.score.func == ScoreFunc::kSqrtSoftplus ? 2.0f : 1.0f;
  const std::size_t choice = choose(draw, 24, kLogits.size() + 1);
  std::int64_t first = 1;
  if (choice == 0) {
    logits(d, LogitsFamily::kScoreZones);
    // The second time round, one expert stands far above the others: what it adds to the sum leaves them tiny weights.
    for (std::int64_t row = kNumScoreZones; row < 2 * kNumScoreZones; ++row) {
      plant_logit(d, row, row * 5 % d.num_experts, row + 1 < 2 * kNumScoreZones ? 0.0f : 20.0f);
    }
    first = 2 * kNumScoreZones;
  } else if (softmax) {
    // All but the largest underflow once that one is subtracted, and all of them do where something else is.
    constexpr std::array<float, 3> kOffsets = {-600.0f, 0.0f, 600.0f};
    logits(d, LogitsFamily::kNormal, kOffsets[choice % kOffsets.size()], 100.0f);
  } else {
    logits(d, LogitsFamily::kNormal, unit * kLogits[choice - 1], 2.0f);
  }
  // Rows whose sums are about 1e-30, 1e-20, 1e-12 and 1e-8.
  constexpr std::array<float, 4> kRows = {-71.0f, -48.0f, -30.0f, -20.0f};
  for (std::size_t i = 0; !softmax && i < kRows.size(); ++i) {
    plant_logit(d, first + static_cast<std::int64_t>(i), -1, unit * kRows[i]);
  }
  if (choose(draw, 16, 2) == 0) return no_bias(d);
  large_bias(draw, d);
}

void non_finite_hidden(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  const std::int64_t last = d.hidden_size - 1;
  const auto id = TensorId::kHiddenStates;
  plant(d, id, 0, 0, kNaN);
  plant(d, id, 1, last, kNegativeNaN);
  plant(d, id, 2, last / 2, kInf);
  plant(d, id, 3, 0, kInf);
  plant(d, id, 3, last, kNegativeInf);
  plant(d, id, 4, -1, kLargestBf16);
  plant(d, id, 5, -1, kNaN);
  usual_bias(spec, draw, d);
}

void non_finite_weight(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  if (choose(draw, 16, 6) >= 3) d.gate_weight_dtype = oracle::FloatType::kFp32;
  const std::int64_t last = d.num_experts + d.zero_experts - 1;
  const auto id = TensorId::kGateWeight;
  if (choose(draw, 16, 3) == 1) {  // fewer than k experts without NaN
    plant(d, id, -1, 0, kNaN);
    for (std::int64_t i = 0; i + 1 < d.top_k; ++i) plant(d, id, last - 2 * i >= 0 ? last - 2 * i : i, 0, kOne);
  } else {
    plant(d, id, 0, 0, kNaN);
    plant(d, id, last / 2, d.hidden_size / 2, kInf);
    plant(d, id, last, d.hidden_size - 1, kNegativeInf);
  }
  usual_bias(spec, draw, d);
}

void non_finite_bias(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  const bool selection = has_selection_bias(spec);
  // A linear bias is already in given logits: planted there, it would provoke nothing.
  const auto id = selection ? TensorId::kSelectionBias : TensorId::kLinearBias;
  const std::int64_t last = d.num_experts + d.zero_experts - 1;
  usual_bias(spec, draw, d);
  switch (choose(draw, 16, 4)) {
    case 1:  // fewer than k experts without NaN
      plant(d, id, -1, -1, kNaN);
      for (std::int64_t i = 0; i + 1 < d.top_k; ++i) plant(d, id, -1, last - i, kOne);
      return;
    case 2:
      return plant(d, id, -1, -1, kNegativeInf);
    default:
      plant(d, id, -1, 0, kNaN);
      plant(d, id, -1, last / 3, kNegativeNaN);
      plant(d, id, -1, last / 2, kNegativeInf);
      plant(d, id, -1, last, kInf);
  }
}

void non_finite_logits(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  const auto id = TensorId::kRouterLogits;
  const std::int64_t last = d.num_experts + d.zero_experts - 1;
  // Everything in the row but k - 1 finite experts, the last that compete.
  const auto all_but = [&](std::int64_t row, std::uint32_t bits) {
    plant(d, id, row, -1, bits);
    for (std::int64_t i = 0; i + 1 < d.top_k; ++i) {
      plant(d, id, row, last - i, kOne + (static_cast<std::uint32_t>(i) << 20));
    }
  };
  // NaN in front of the best: in a kernel whose lanes hold every 32nd expert all of them are in one.
  plant(d, id, 0, 0, kNaN);
  for (std::int64_t e = 32; e <= last && e <= 32 * d.top_k; e += 32) {
    plant(d, id, 0, e, kOne + (static_cast<std::uint32_t>(e) << 17));
  }
  plant(d, id, 1, last, kNegativeNaN);
  plant(d, id, 1, last / 2, kNegativeInf);
  plant(d, id, 2, last, kInf);
  all_but(3, kNaN);
  all_but(4, kNegativeInf);
  plant(d, id, 5, -1, kNaN);
  plant(d, id, 6, -1, kNegativeInf);
  plant(d, id, 7, -1, kInf);
  plant(d, id, 8, -1, kNegativeInf);  // -Inf comes before NaN
  for (std::int64_t e = 0; e < last; e += 2) plant(d, id, 8, e, kNaN);
  if (d.shared_in_gate > 0) {
    plant(d, id, 9, last + 1, kNaN);
    plant(d, id, 10, last + 1, kInf);
    plant(d, id, 11, -1, kNegativeInf);
    plant(d, id, 11, last + d.shared_in_gate, kOne);
  }
  usual_bias(spec, draw, d);
}

void signed_zero(const RouterSpec&, const Draw&, CaseDescription& d) {
  logits(d, LogitsFamily::kSignedZero);
  no_bias(d);
  if (d.stage == Stage::kFull) {
    plant(d, TensorId::kHiddenStates, -1, -1, kNegativeZero);
    d.weight = WeightFamily::kNormal;
  }
}

void subnormal(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  d.hidden = HiddenFamily::kSubnormal;
  // Logits about 2^-127 with kNormal: subnormal in fp32, though not all of their products are in range.
  d.weight = choose(draw, 16, 2) == 0 ? WeightFamily::kNormal : WeightFamily::kWideExponent;
  logits(d, LogitsFamily::kUlpSteps, 0.0f);
  no_bias(d);
  if (choose(draw, 24, 2) == 1) usual_bias(spec, draw, d);
}

void padding(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  // Where there are as many rows as experts, a mask of rows can be laid along experts.
  const std::int64_t experts = d.num_experts + d.zero_experts + d.shared_in_gate;
  if (choose(draw, 24, 2) == 0) d.num_tokens = std::min(d.num_tokens, experts);
  const std::int64_t T = d.num_tokens;
  const std::array<std::int64_t, 8> valid = {T / 3, 0, 1, T - 1, T, T + 5, -3, T / 2};
  const std::int64_t rows = valid[choose(draw, 16, valid.size())];
  d.num_valid_rows = static_cast<std::int32_t>(rows);
  const auto id = d.stage == Stage::kFull ? TensorId::kHiddenStates : TensorId::kRouterLogits;
  const std::array<std::uint32_t, 3> loud = {kNaN, kInf, kLargestBf16};
  for (std::int64_t i = 0; i < 3; ++i) {
    const std::int64_t row = std::max<std::int64_t>(rows, 0) + i;
    if (row < T) plant(d, id, row, -1, loud[static_cast<std::size_t>(i)]);
  }
  usual_bias(spec, draw, d);
}

void large_batch(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  order_sensitive(spec, draw, d);
}

// In the order of the directed cases.
constexpr std::array kHazards = {
    Hazard{"order_sensitive", HazardStage::kFull, always, 17, 12, order_sensitive},
    Hazard{"dispatch_boundary", HazardStage::kAny, always, 18, 8, plain},
    Hazard{"single_row", HazardStage::kAny, always, 1, 2, single_row},
    Hazard{"exact_ties", HazardStage::kAny, always, 16, 4, exact_ties, 7},
    Hazard{"ties_across_cut", HazardStage::kLogits, always, 33, 6, ties_across_cut},
    Hazard{"ulp_gap", HazardStage::kLogits, always, 15, 6, ulp_gap},
    Hazard{"large_bias_offset", HazardStage::kAny, has_selection_bias, 31, 6, large_bias_offset},
    Hazard{"bf16_collapse", HazardStage::kLogits, has_selection_bias, 32, 6, bf16_collapse, 6},
    Hazard{"negative_keys", HazardStage::kLogits, always, 9, 5, negative_keys, 8},
    Hazard{"group_hazards", HazardStage::kLogits, has_groups, 64, 6, group_hazards},
    Hazard{"saturated", HazardStage::kLogits, always, 32, 5, saturated},
    Hazard{"underflow_zero_sum", HazardStage::kLogits, always, 2 * kNumScoreZones + 4, 4, underflow_zero_sum},
    Hazard{"non_finite_hidden", HazardStage::kFull, always, 8, 4, non_finite_hidden},
    Hazard{"non_finite_weight", HazardStage::kFull, always, 5, 3, non_finite_weight},
    Hazard{"non_finite_bias", HazardStage::kBias, has_bias, 7, 3, non_finite_bias},
    Hazard{"non_finite_logits", HazardStage::kGivenOnly, always, 12, 5, non_finite_logits},
    Hazard{"signed_zero", HazardStage::kLogits, always, 4, 3, signed_zero, 5},
    Hazard{"subnormal", HazardStage::kAny, always, 3, 3, subnormal, 4},
    Hazard{"padding", HazardStage::kAny, always, 19, 4, padding},
    Hazard{"large_batch", HazardStage::kAny, always, 1025, 0, large_batch},
    Hazard{"plain", HazardStage::kAny, always, 0, 8, plain},
    Hazard{"wide_exponent", HazardStage::kFull, always, 0, 3, wide_exponent},
    Hazard{"few_terms", HazardStage::kFull, always, 0, 6, few_terms},
};

}  // namespace

std::span<const Hazard> general_hazards() {
  return kHazards;
}

}  // namespace samebits::properties
