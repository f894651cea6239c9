#include "kernels/cpu/weigh.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/common/bits.h"
#include "kernels/common/sizes.h"
#include "kernels/cpu/log_space.h"

namespace samebits::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kMaxFloat = std::numeric_limits<float>::max();

// The factor on the weights; 1 changes no bit.
float scale_of(const samebits_router_spec& spec) {
  return spec.scale_stage == SAMEBITS_SCALE_ON_EXPERT_OUTPUT ? 1.0f : spec.routed_scaling_factor;
}

float denominator(const samebits_router_spec& spec, std::int64_t n, const float* values) {
  float sum = values[0];
  for (std::int64_t c = 1; c < n; ++c) sum += values[c];
  if (spec.eps_mode == SAMEBITS_EPS_ADD) return sum + spec.eps;
  if (spec.eps_mode == SAMEBITS_EPS_CLAMP_MIN) return sum > spec.eps ? sum : spec.eps;
  return sum;
}

bool any_infinite(std::int64_t n, const float* values) {
  return std::find(values, values + n, kInf) != values + n;
}

// These return false where the row takes no learned scale: its weights are 0 or stand for +inf.

// Where a value is +inf, the infinite ones count as 1 and the others as 0.
bool renormalized_weights(const samebits_router_spec& spec, std::int64_t n, float* values, float* weights) {
  if (any_infinite(n, values)) {
    for (std::int64_t c = 0; c < n; ++c) values[c] = values[c] == kInf ? 1.0f : 0.0f;
  }
  const float divisor = denominator(spec, n, values), scale = scale_of(spec);
  if (divisor == 0.0f) {
    std::fill_n(weights, n, 0.0f);
    return false;
  }
  const bool scale_first = spec.scale_stage == SAMEBITS_SCALE_BEFORE_DIVIDE;
  for (std::int64_t c = 0; c < n; ++c) {
    weights[c] = scale_first ? (values[c] * scale) / divisor : (values[c] / divisor) * scale;
  }
  return true;
}

bool plain_weights(const samebits_router_spec& spec, std::int64_t n, const float* values, float* weights) {
  const bool infinite = any_infinite(n, values);
  const float scale = scale_of(spec);
  for (std::int64_t c = 0; c < n; ++c) {
    weights[c] = infinite ? (values[c] == kInf ? kMaxFloat : 0.0f) : values[c] * scale;
  }
  return !infinite;
}

bool weights_before_learned_scales(const samebits_router_spec& spec, std::int64_t n, RowScratch& scratch,
                                   float* weights) {
  switch (spec.renormalize) {
    case SAMEBITS_RENORM_L1:
      return renormalized_weights(spec, n, scratch.chosen_values, weights);
    case SAMEBITS_RENORM_LOG_SPACE_L1:
      return log_space_weights(scratch.chosen_logits, n, scale_of(spec), scratch.chosen_values, weights);
    default:
      return plain_weights(spec, n, scratch.chosen_values, weights);
  }
}

void apply_learned_scales(const RouterConstants& constants, const std::int32_t* ids, std::int64_t n, float* weights) {
  for (std::int64_t c = 0; c < n; ++c) {
    if (constants.per_expert_scale != nullptr) weights[c] *= constants.per_expert_scale[ids[c]];
    if (constants.global_scale != nullptr) weights[c] *= *constants.global_scale;
  }
}

// Moves the slot at `root` down to its place in a heap of `count` slots whose front has the largest id.
void sift_down(std::int64_t root, std::int64_t count, std::int32_t* ids, float* weights) {
  for (std::int64_t child = 2 * root + 1; child < count; child = 2 * root + 1) {
    if (child + 1 < count && ids[child] < ids[child + 1]) ++child;
    if (ids[root] >= ids[child]) return;
    std::swap(ids[root], ids[child]);
    std::swap(weights[root], weights[child]);
    root = child;
  }
}

// In place, because a step allocates nothing. Ids are distinct, so any sort gives the same result: insertion where K is
// small, as it nearly always is, and heapsort where K^2 steps would be too many.
void sort_by_id(std::int64_t k, std::int32_t* ids, float* weights) {
  if (k > 64) {
    for (std::int64_t root = k / 2 - 1; root >= 0; --root) sift_down(root, k, ids, weights);
    for (std::int64_t last = k - 1; last > 0; --last) {
      std::swap(ids[0], ids[last]);
      std::swap(weights[0], weights[last]);
      sift_down(0, last, ids, weights);
    }
    return;
  }
  for (std::int64_t i = 1; i < k; ++i) {
    for (std::int64_t j = i; j > 0 && ids[j] < ids[j - 1]; --j) {
      std::swap(ids[j], ids[j - 1]);
      std::swap(weights[j], weights[j - 1]);
    }
  }
}

// The engine adds what a zero expert stands for itself; its slot computes nothing.
void remap_zero_experts(const samebits_router_spec& spec, std::int64_t n, std::int32_t* ids, float* weights) {
  for (std::int64_t c = 0; c < n; ++c) {
    if (ids[c] < spec.num_experts || ids[c] >= ranked_experts(spec)) continue;
    ids[c] = 0;
    weights[c] = 0.0f;
  }
}

}  // namespace

void weigh_tc256(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  const samebits_router_spec& spec = constants.spec;
  const std::int64_t columns = topk_columns(spec);
  if (weights_before_learned_scales(spec, columns, scratch, weights)) {
    apply_learned_scales(constants, scratch.ids, columns, weights);
  }
  for (std::int64_t c = 0; c < columns; ++c) {
    if (!std::isfinite(weights[c])) weights[c] = 0.0f;
    if (spec.weights_dtype == SAMEBITS_BF16) weights[c] = bf16_to_float(weight_to_bf16(weights[c]));
  }
  if (spec.sort == SAMEBITS_SORT_BY_INDEX) sort_by_id(columns, scratch.ids, weights);
  if (spec.zero_type == SAMEBITS_ZERO_EXPERTS_IDENTITY_REMAPPED_TO_ID0_WEIGHT0) {
    remap_zero_experts(spec, columns, scratch.ids, weights);
  }
}

}  // namespace samebits::cpu
