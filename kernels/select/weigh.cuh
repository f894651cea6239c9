// Values of the chosen experts, their weights, and the finished columns of a row. By one warp.
#pragma once

#include "kernels/select/log_space.cuh"
#include "kernels/select/row.cuh"
#include "kernels/select/score.cuh"

namespace samebits::cuda {

// chosen_logits and values of the K ids: the score, or the key as it was before a mask; NaN becomes +0. The values of
// sparsemixer are there already.
__device__ inline void value_experts(const RouterView& router, const float* bias, const RowMemory& memory) {
  const samebits_router_spec& spec = router.spec;
  const int lane = Warp().rank(), n = router.columns;
  for (int c = lane; c < n; c += kWarpSize) memory.chosen_logits[c] = memory.logits[memory.ids[c]];
  __syncwarp();
  if (spec.score_stage == SAMEBITS_SCORE_AFTER_TOPK) {
    apply_score_func(Warp(), spec, memory.chosen_logits, n, memory.values);
  } else if (spec.selection_method != SAMEBITS_SELECT_SPARSEMIXER) {
    const bool biased = spec.weight_source == SAMEBITS_WEIGHT_BIASED_SCORE;
    for (int c = lane; c < n; c += kWarpSize) {
      const int id = memory.ids[c];
      memory.values[c] = biased ? rank_key(spec, bias, memory.logits, memory.scores, id) : memory.scores[id];
    }
  }
  for (int c = lane; c < n; c += kWarpSize) {
    if (is_nan(memory.values[c])) memory.values[c] = 0.0f;
  }
  __syncwarp();
}

// The factor on the weights; 1 changes no bit.
__device__ inline float scale_of(const samebits_router_spec& spec) {
  return spec.scale_stage == SAMEBITS_SCALE_ON_EXPERT_OUTPUT ? 1.0f : spec.routed_scaling_factor;
}

// From the left fold of the values in slot order.
__device__ inline float denominator(const samebits_router_spec& spec, int n, const float* values) {
  float sum = values[0];
  for (int c = 1; c < n; ++c) sum = fadd(sum, values[c]);
  if (spec.eps_mode == SAMEBITS_EPS_ADD) return fadd(sum, spec.eps);
  if (spec.eps_mode == SAMEBITS_EPS_CLAMP_MIN) return sum > spec.eps ? sum : spec.eps;
  return sum;
}

__device__ inline bool any_infinite(int n, const float* values) {
  bool found = false;
  for (int c = Warp().rank(); c < n; c += kWarpSize) found = found || values[c] == infinity();
  return __any_sync(kAllLanes, found) != 0;
}

// These return false where the row takes no learned scale: its weights are 0 or stand for +inf.

// Where a value is +inf, the infinite ones count as 1 and the others as 0.
__device__ inline bool renormalized_weights(const samebits_router_spec& spec, int n, const RowMemory& memory) {
  const int lane = Warp().rank();
  float* const values = memory.values;
  if (any_infinite(n, values)) {
    for (int c = lane; c < n; c += kWarpSize) values[c] = values[c] == infinity() ? 1.0f : 0.0f;
    __syncwarp();
  }
  const float divisor = denominator(spec, n, values), scale = scale_of(spec);
  const bool scale_first = spec.scale_stage == SAMEBITS_SCALE_BEFORE_DIVIDE;
  for (int c = lane; c < n; c += kWarpSize) {
    const float weight = scale_first ? fdiv(fmul(values[c], scale), divisor) : fmul(fdiv(values[c], divisor), scale);
    memory.weights[c] = divisor == 0.0f ? 0.0f : weight;
  }
  return divisor != 0.0f;
}

__device__ inline bool plain_weights(const samebits_router_spec& spec, int n, const RowMemory& memory) {
  const bool infinite = any_infinite(n, memory.values);
  const float scale = scale_of(spec);
  for (int c = Warp().rank(); c < n; c += kWarpSize) {
    const float value = memory.values[c];
    const float stand_in = value == infinity() ? from_bits(kMaxFloatBits) : 0.0f;
    memory.weights[c] = infinite ? stand_in : fmul(value, scale);
  }
  return !infinite;
}

__device__ inline bool weights_before_learned_scales(const samebits_router_spec& spec, int n, const RowMemory& memory) {
  switch (spec.renormalize) {
    case SAMEBITS_RENORM_L1:
      return renormalized_weights(spec, n, memory);
    case SAMEBITS_RENORM_LOG_SPACE_L1:
      return log_space_weights(n, scale_of(spec), memory);
    default:
      return plain_weights(spec, n, memory);
  }
}

// weights[0 .. K) in slot order, from chosen_logits and values, which it overwrites.
__device__ inline void weigh_experts(const RouterView& router, const RowMemory& memory) {
  const samebits_router_spec& spec = router.spec;
  const bool learned_scales = weights_before_learned_scales(spec, router.columns, memory);
  for (int c = Warp().rank(); c < router.columns; c += kWarpSize) {
    float weight = memory.weights[c];
    if (learned_scales && router.per_expert_scale != nullptr) {
      weight = fmul(weight, router.per_expert_scale[memory.ids[c]]);
    }
    if (learned_scales && router.global_scale != nullptr) weight = fmul(weight, *router.global_scale);
    if (spec.weights_dtype == SAMEBITS_BF16) weight = round_to_bf16(weight);
    memory.weights[c] = is_finite(weight) ? weight : 0.0f;
  }
}

}  // namespace samebits::cuda
