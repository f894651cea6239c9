// Hazards of constants: values that no distribution draws. Directed alone, each in specs that have room for it, but for
// the last.
#include <bit>

#include "properties/generators/hazard_parts.h"

namespace samebits::properties {
namespace {

using oracle::RouterSpec;

constexpr std::uint32_t kTwoTo126 = 0x7e800000u, kHalf = 0x3f000000u;

std::int64_t rows_of_gate(const CaseDescription& d) {
  return d.num_experts + d.zero_experts + d.shared_in_gate;
}

// A subnormal of both fp32 and bf16, 2^-133 to 2^-126.
std::uint32_t small(std::int64_t i) {
  return static_cast<std::uint32_t>(i * 37 % 127 + 1) << 16;
}

// Row 0: 2^126 times the weights of column 0, which are subnormal, so that logits of up to 1 hang on them alone. Row 1:
// zeros, so that a logit is its linear bias, which is subnormal too, as is every second scale of an expert.
void subnormal_constants(const RouterSpec& spec, CaseDescription& d) {
  no_bias(d);
  for (const std::int64_t row : {0, 1}) plant(d, TensorId::kHiddenStates, row, -1, 0);
  plant(d, TensorId::kHiddenStates, 0, 0, kTwoTo126);
  const bool fp32 = d.gate_weight_dtype == oracle::FloatType::kFp32;
  for (std::int64_t e = 0; e < rows_of_gate(d); ++e) {
    plant(d, TensorId::kGateWeight, e, 0, small(e) | (fp32 ? static_cast<std::uint32_t>(e) * 251 & 0xffff : 0));
    if (spec.gate.linear_bias != oracle::BiasType::kNone) plant(d, TensorId::kLinearBias, -1, e, small(e + 5));
    if (spec.weights.per_expert_scale && e % 2 == 1) plant(d, TensorId::kPerExpertScale, -1, e, small(e));
  }
}

void subnormal_bf16_constants(const RouterSpec& spec, const Draw&, CaseDescription& d) {
  d.gate_weight_dtype = oracle::FloatType::kBf16;
  subnormal_constants(spec, d);
}

// The weights of fp32, and infinities among them: with 1/2, which keeps the largest finite number in range, and with 0.
void extreme_fp32_constants(const RouterSpec& spec, const Draw&, CaseDescription& d) {
  d.gate_weight_dtype = oracle::FloatType::kFp32;
  subnormal_constants(spec, d);
  if (d.hidden_size < 2) return;
  plant(d, TensorId::kHiddenStates, 2, -1, 0);
  plant(d, TensorId::kHiddenStates, 2, 1, kHalf);
  plant(d, TensorId::kGateWeight, 0, 1, kInf);
  plant(d, TensorId::kGateWeight, d.num_experts + d.zero_experts - 1, 1, kNegativeInf);
}

bool bias_ranks_zero_scores(const RouterSpec& spec) {
  return has_selection_bias(spec) && spec.selection.rank_by == oracle::RankBy::kScore;
}

// Scores of 0, so that subnormal biases rank; the one expert whose score is not 0 has a NaN for its bias.
void bias_of_zero_scores(const RouterSpec& spec, const Draw&, CaseDescription& d) {
  const std::int64_t count = d.num_experts + d.zero_experts;
  logits(d, LogitsFamily::kAllEqual, spec.score.func == oracle::ScoreFunc::kIdentity ? 0.0f : -300.0f, 0.0f);
  no_bias(d);
  for (std::int64_t e = 0; e < count; ++e) plant(d, TensorId::kSelectionBias, -1, e, small(e));
  plant_logit(d, -1, count / 2, 5.0f);
  plant(d, TensorId::kSelectionBias, -1, count / 2, kNaN);
}

// The bias of two experts that lead every row, and would lead with a bias of 0, is NaN.
void nan_bias_of_leaders(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  const std::int64_t count = d.num_experts + d.zero_experts;
  const auto first = static_cast<std::int64_t>(choose(draw, 16, 256)) % count;
  bias(d, BiasFamily::kNormal, 0.0f, spec.score.func == oracle::ScoreFunc::kSoftmax ? 0.01f : 0.05f);
  for (const std::int64_t e : {first, (first + count / 2) % count}) {
    plant_logit(d, -1, e, 6.0f + static_cast<float>(e) / 1024.0f);
    plant(d, TensorId::kSelectionBias, -1, e, choose(draw, 24, 2) == 0 ? kNaN : kNegativeNaN);
  }
}

constexpr std::array kHazards = {
    Hazard{"extreme_fp32_constants", HazardStage::kFull, always, 5, 0, extreme_fp32_constants, 1},
    Hazard{"subnormal_bf16_constants", HazardStage::kFull, always, 4, 0, subnormal_bf16_constants, 2},
    Hazard{"bias_of_zero_scores", HazardStage::kLogits, bias_ranks_zero_scores, 3, 0, bias_of_zero_scores, 3},
    Hazard{"nan_bias_of_leaders", HazardStage::kLogits, has_selection_bias, 0, 4, nan_bias_of_leaders},
};

}  // namespace

std::span<const Hazard> constant_hazards() {
  return kHazards;
}

}  // namespace samebits::properties
