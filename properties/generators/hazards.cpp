#include "properties/generators/hazards.h"

#include <algorithm>
#include <array>
#include <bit>

namespace samebits::properties {
namespace {

using oracle::BiasType;
using oracle::RouterSpec;
using oracle::ScoreFunc;

constexpr std::uint32_t kNaN = 0x7fffffffu;
constexpr std::uint32_t kNegativeNaN = 0xffc10001u;  // another sign and payload, also after the cut to bf16
constexpr std::uint32_t kInf = 0x7f800000u;
constexpr std::uint32_t kNegativeInf = 0xff800000u;
constexpr std::uint32_t kOne = 0x3f800000u;
constexpr std::uint32_t kNegativeZero = 0x80000000u;
constexpr std::uint32_t kLargestBf16 = 0x7f7f0000u;

bool always(const RouterSpec&) {
  return true;
}
bool has_selection_bias(const RouterSpec& spec) {
  return spec.selection.bias != BiasType::kNone;
}
bool has_bias(const RouterSpec& spec) {
  return has_selection_bias(spec) || spec.gate.linear_bias != BiasType::kNone;
}
bool has_groups(const RouterSpec& spec) {
  return spec.selection.n_group > 1;
}

// One of n, by bits that no other choice of the same hazard uses.
std::size_t choose(const Draw& draw, int shift, std::size_t n) {
  return ((draw.choices >> shift) & 0xff) % n;
}

void bias(CaseDescription& d, BiasFamily family, float offset = 0.0f, float spread = 1.0f) {
  d.selection_bias = family;
  d.linear_bias = family;
  d.bias_offset = offset;
  d.bias_spread = spread;
}

void no_bias(CaseDescription& d) {
  bias(d, BiasFamily::kZero);
}

// Offsets and ranges of published checkpoints: GLM-5.3-Flash 11.54 .. 11.96, DeepSeek-V4-Flash about 8.08, others near
// 7, 12 and 35.
void large_bias(const Draw& draw, CaseDescription& d) {
  struct Range {
    float offset, spread;
  };
  constexpr std::array<Range, 5> kRanges = {
      {{11.54f, 0.42f}, {7.0f, 1.0f}, {8.03f, 0.1f}, {12.0f, 0.5f}, {35.0f, 2.0f}}};
  const Range range = kRanges[choose(draw, 8, kRanges.size())];
  bias(d, BiasFamily::kUniform, range.offset, range.spread);
}

// A bias as a trained checkpoint may have it, of the size of the scores' differences.
void usual_bias(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  if (!has_selection_bias(spec)) return bias(d, BiasFamily::kNormal, 0.0f, 0.5f);
  if (spec.score.func == ScoreFunc::kSoftmax) {
    return bias(d, BiasFamily::kNormal, 0.0f, 1.0f / static_cast<float>(oracle::num_experts(spec)));
  }
  if (choose(draw, 8, 2) == 0) return bias(d, BiasFamily::kUniform, 11.54f, 0.42f);
  bias(d, BiasFamily::kNormal, 0.0f, 0.1f);
}

void logits(CaseDescription& d, LogitsFamily family, float offset = 0.0f, float spread = 1.0f) {
  d.logits = family;
  d.logits_offset = offset;
  d.logits_spread = spread;
}

void plant(CaseDescription& d, TensorId tensor, std::int64_t row, std::int64_t column, std::uint32_t bits) {
  d.plants.push_back({tensor, row, column, bits});
}

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
  usual_bias(spec, draw, d);
}

void order_sensitive(const RouterSpec&, const Draw&, CaseDescription& d) {
  d.hidden = HiddenFamily::kOrderSensitive;
  d.weight = WeightFamily::kOrderSensitive;
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
  if (has_selection_bias(spec) && choose(draw, 16, 2) == 1) {
    logits(d, LogitsFamily::kAllEqual);
    return bias(d, BiasFamily::kFewDistinct, choose(draw, 24, 2) == 0 ? 11.5f : -4.0f, 0.25f);
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
  if (spec.score.func == ScoreFunc::kSoftmax) {
    logits(d, LogitsFamily::kNormal, 0.0f, 100.0f);  // all but the largest underflow; the largest logit is subtracted
  } else {
    // Far below the last logits whose score is not 0, around them, and where sums are tiny: about 1e-39, 1e-34, 1e-30,
    // on both sides of the guards and of the least normal number that faulty routers put there.
    constexpr std::array<float, 5> kLogits = {-153.0f, -102.0f, -90.0f, -80.0f, -71.0f};
    const float logit = kLogits[choose(draw, 24, kLogits.size())];
    logits(d, LogitsFamily::kNormal, spec.score.func == ScoreFunc::kSqrtSoftplus ? 2.0f * logit : logit, 2.0f);
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
  const std::int64_t last = d.num_experts - 1;
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
  const std::int64_t last = d.num_experts - 1;
  usual_bias(spec, draw, d);
  switch (choose(draw, 16, 4)) {
    case 1:  // fewer than k experts without NaN
      plant(d, id, 0, -1, kNaN);
      for (std::int64_t i = 0; i + 1 < d.top_k; ++i) plant(d, id, 0, last - i, kOne);
      return;
    case 2:
      return plant(d, id, 0, -1, kNegativeInf);
    default:
      plant(d, id, 0, 0, kNaN);
      plant(d, id, 0, last / 3, kNegativeNaN);
      plant(d, id, 0, last / 2, kNegativeInf);
      plant(d, id, 0, last, kInf);
  }
}

void non_finite_logits(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  const auto id = TensorId::kRouterLogits;
  const std::int64_t last = d.num_experts - 1;
  // Everything in the row but k - 1 finite experts, at the end of the row.
  const auto all_but = [&](std::int64_t row, std::uint32_t bits) {
    plant(d, id, row, -1, bits);
    for (std::int64_t i = 0; i + 1 < d.top_k; ++i) {
      plant(d, id, row, last - i, kOne + (static_cast<std::uint32_t>(i) << 20));
    }
  };
  plant(d, id, 0, 0, kNaN);
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
    Hazard{"exact_ties", HazardStage::kAny, always, 16, 4, exact_ties},
    Hazard{"ties_across_cut", HazardStage::kLogits, always, 33, 6, ties_across_cut},
    Hazard{"ulp_gap", HazardStage::kLogits, always, 15, 6, ulp_gap},
    Hazard{"large_bias_offset", HazardStage::kAny, has_selection_bias, 31, 6, large_bias_offset},
    Hazard{"bf16_collapse", HazardStage::kLogits, has_selection_bias, 32, 6, bf16_collapse},
    Hazard{"negative_keys", HazardStage::kLogits, always, 9, 5, negative_keys},
    Hazard{"group_hazards", HazardStage::kLogits, has_groups, 64, 6, group_hazards},
    Hazard{"saturated", HazardStage::kLogits, always, 32, 5, saturated},
    Hazard{"underflow_zero_sum", HazardStage::kLogits, always, 8, 4, underflow_zero_sum},
    Hazard{"non_finite_hidden", HazardStage::kFull, always, 8, 4, non_finite_hidden},
    Hazard{"non_finite_weight", HazardStage::kFull, always, 5, 3, non_finite_weight},
    Hazard{"non_finite_bias", HazardStage::kAny, has_bias, 7, 3, non_finite_bias},
    Hazard{"non_finite_logits", HazardStage::kGivenOnly, always, 12, 5, non_finite_logits},
    Hazard{"signed_zero", HazardStage::kLogits, always, 4, 3, signed_zero},
    Hazard{"subnormal", HazardStage::kAny, always, 3, 3, subnormal},
    Hazard{"padding", HazardStage::kAny, always, 19, 4, padding},
    Hazard{"large_batch", HazardStage::kAny, always, 1025, 0, large_batch},
    Hazard{"plain", HazardStage::kAny, always, 0, 8, plain},
    Hazard{"wide_exponent", HazardStage::kFull, always, 0, 3, wide_exponent},
    Hazard{"few_terms", HazardStage::kFull, always, 0, 6, few_terms},
};

}  // namespace

std::span<const Hazard> all_hazards() {
  return kHazards;
}

bool possible(const Hazard& hazard, const RouterSpec& spec, const GenerateOptions& options) {
  if (!hazard.applies(spec)) return false;
  if (hazard.stage == HazardStage::kFull) return options.full_stage;
  if (hazard.stage == HazardStage::kGivenOnly) return options.logits_stage;
  // A linear bias acts before the logits are finished.
  if (hazard.build == non_finite_bias && !has_selection_bias(spec)) return options.full_stage;
  return true;
}

Stage stage_of(const Hazard& hazard, const GenerateOptions& options, const Draw& draw) {
  if (!options.logits_stage) return Stage::kFull;
  if (!options.full_stage) return Stage::kFromLogits;
  switch (hazard.stage) {
    case HazardStage::kFull:
      return Stage::kFull;
    case HazardStage::kLogits:
      // A few go through the gate weight, so that the whole path meets them too.
      return choose(draw, 32, 16) == 15 ? Stage::kFull : Stage::kFromLogits;
    case HazardStage::kGivenOnly:
      return Stage::kFromLogits;
    case HazardStage::kAny:
      break;
  }
  if (hazard.build == non_finite_bias) return Stage::kFull;
  return choose(draw, 32, 8) == 7 ? Stage::kFromLogits : Stage::kFull;
}

CaseDescription describe(const Hazard& hazard, const RouterSpec& spec, const GenerateOptions& options,
                         const Draw& draw) {
  CaseDescription d;
  d.hazard = hazard.label;
  d.stage = stage_of(hazard, options, draw);
  d.num_tokens = options.max_tokens > 0 ? std::min(draw.num_tokens, options.max_tokens) : draw.num_tokens;
  d.hidden_size = d.stage == Stage::kFull ? oracle::hidden_size(spec) : 0;
  d.num_experts = oracle::num_experts(spec);
  d.top_k = oracle::top_k(spec);
  d.n_group = spec.selection.n_group;
  d.topk_group = spec.selection.topk_group;
  if (d.stage == Stage::kFull) {
    if (hazard.stage == HazardStage::kLogits) {
      d.hidden = HiddenFamily::kUnitRows;
      d.weight = WeightFamily::kLogits;
      d.gate_weight_dtype = oracle::FloatType::kFp32;  // bf16 could not hold steps of one ulp
    } else if (choose(draw, 40, 16) == 15) {
      d.gate_weight_dtype = oracle::FloatType::kFp32;
    }
  }
  hazard.build(spec, draw, d);
  if (choose(draw, 48, 16) == 15 && !d.num_valid_rows) d.num_valid_rows = static_cast<std::int32_t>(d.num_tokens / 2);
  return d;
}

}  // namespace samebits::properties
