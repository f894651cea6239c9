// The columns of a row whose experts block_choice.cuh has chosen, as the caller wants them.
#pragma once

#include "kernels/cuda/view.h"
#include "kernels/select/block_choice.cuh"

namespace samebits::cuda {

// Of a router that lean.h knows, whether block_choice.cuh serves it: groups are 32 experts, or there are none.
inline bool can_choose_by_block(const RouterView& router) {
  const samebits_router_spec& spec = router.spec;
  const bool has_known_groups = spec.n_group <= 1 || (spec.num_experts == spec.n_group * kWarpSize && spec.top_k > 1 &&
                                                      spec.group_score == SAMEBITS_GROUP_SCORE_TOP2_SUM &&
                                                      spec.group_mask != SAMEBITS_GROUP_MASK_ZERO);
  return has_known_groups && router.top_k <= kMostChosen && router.gate_rows <= kMostChoiceWarps * kWarpSize;
}

// How columns are written. A weight is its score divided by max(sum + eps, least_divisor), times scale.
struct alignas(16) ColumnRule {
  float eps, least_divisor, scale;
  unsigned rare;  // bits below; 0: int32 ids and fp32 weights as they are, no slots
};
inline constexpr unsigned kWideIds = 1, kRoundWeights = 2, kNarrowWeights = 4, kSlots = 8;

// Of a router that lean.h knows.
inline ColumnRule column_rule(const RouterView& router, const CallView& call) {
  const samebits_router_spec& spec = router.spec;
  ColumnRule rule{};
  // Scores are no less than +0, and so is their sum: no eps is an eps of 0, and only a floor is above -1.
  rule.eps = spec.eps_mode == SAMEBITS_EPS_ADD ? spec.eps : 0.0f;
  rule.least_divisor = spec.eps_mode == SAMEBITS_EPS_CLAMP_MIN ? spec.eps : -1.0f;
  rule.scale = spec.scale_stage == SAMEBITS_SCALE_ON_EXPERT_OUTPUT ? 1.0f : spec.routed_scaling_factor;
  rule.rare = (call.ids_int64 ? kWideIds : 0) | (spec.weights_dtype == SAMEBITS_BF16 ? kRoundWeights : 0) |
              (call.weights_bf16 ? kNarrowWeights : 0) | (call.slot_ids != nullptr ? kSlots : 0);
  return rule;
}

// Where a column goes.
struct Column {
  unsigned char *id, *weight;
  std::int32_t* slot;
};
__device__ __forceinline__ void write_rare_column(unsigned rare, const Column& column, std::int32_t id, float weight) {
  if ((rare & kRoundWeights) != 0) weight = round_to_bf16(weight);
  if (!is_finite(weight)) weight = 0.0f;
  if ((rare & kWideIds) != 0) {
    *reinterpret_cast<std::int64_t*>(column.id) = id;
  } else {
    *reinterpret_cast<std::int32_t*>(column.id) = id;
  }
  if ((rare & kNarrowWeights) != 0) {
    const float rounded = round_to_bf16(weight);  // may be Inf
    *reinterpret_cast<std::uint16_t*>(column.weight) = float_to_bf16(is_finite(rounded) ? rounded : 0.0f);
  } else {
    *reinterpret_cast<float*>(column.weight) = weight;
  }
  if ((rare & kSlots) != 0) *column.slot = id;
}

// The column of the chosen of this rank, below k.
__device__ __forceinline__ void write_chosen(int rank, const Column& column, const ColumnRule& rule_at,
                                             const BlockChoice& choice) {
  const float4 low = reinterpret_cast<const float4*>(choice.scores)[0];
  const float4 high = reinterpret_cast<const float4*>(choice.scores)[1];
  const float value = choice.scores[rank];
  const int id = choice.ids[rank];
  const ColumnRule rule = rule_at;
  float sum = fadd(fadd(fadd(low.x, low.y), low.z), low.w);
  sum = fadd(fadd(fadd(fadd(sum, high.x), high.y), high.z), high.w);  // +0 behind the last
  float divisor = fadd(sum, rule.eps);
  divisor = divisor > rule.least_divisor ? divisor : rule.least_divisor;
  const float weight = divisor == 0.0f ? 0.0f : fmul(fdiv(value, divisor), rule.scale);
  if (rule.rare == 0 || rule.rare == kSlots) {
    *reinterpret_cast<std::int32_t*>(column.id) = id;
    *reinterpret_cast<float*>(column.weight) = is_finite(weight) ? weight : 0.0f;
    if (rule.rare != 0) *column.slot = id;
  } else {
    write_rare_column(rule.rare, column, id, weight);
  }
}

}  // namespace samebits::cuda
