#include "kernels/cpu/weigh.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/cpu/bits.h"
#include "kernels/cpu/score.h"

namespace samebits::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kMaxFloat = std::numeric_limits<float>::max();

// Unbiased scores of the chosen experts, in slot order; NaN becomes 0.
void gather_scores(const RouterConstants& constants, const float* logits, RowScratch& scratch) {
  const std::int64_t k = constants.spec.top_k;
  const bool after_topk = constants.spec.score_stage == SAMEBITS_SCORE_AFTER_TOPK;
  for (std::int64_t c = 0; c < k; ++c) {
    scratch.chosen_logits[c] = logits[scratch.ids[c]];
    if (!after_topk) scratch.chosen_scores[c] = scratch.scores[scratch.ids[c]];
  }
  if (after_topk) apply_score_func(constants.spec, scratch.chosen_logits, k, scratch.chosen_scores);
  for (std::int64_t c = 0; c < k; ++c) {
    if (is_nan(scratch.chosen_scores[c])) scratch.chosen_scores[c] = 0.0f;
  }
}

float denominator(const samebits_router_spec& spec, const float* scores) {
  float sum = scores[0];
  for (std::int64_t c = 1; c < spec.top_k; ++c) sum += scores[c];
  if (spec.eps_mode == SAMEBITS_EPS_ADD) return sum + spec.eps;
  if (spec.eps_mode == SAMEBITS_EPS_CLAMP_MIN) return sum > spec.eps ? sum : spec.eps;
  return sum;
}

float divide_and_scale(const samebits_router_spec& spec, float score, float denominator_value) {
  if (spec.scale_stage == SAMEBITS_SCALE_ON_EXPERT_OUTPUT) return score / denominator_value;
  const float scale = spec.routed_scaling_factor;
  return spec.scale_stage == SAMEBITS_SCALE_BEFORE_DIVIDE ? (score * scale) / denominator_value
                                                          : (score / denominator_value) * scale;
}

// Where a value is +inf, the infinite ones count as 1 and the others as 0.
void renormalized_weights(const samebits_router_spec& spec, float* scores, float* weights) {
  const std::int64_t k = spec.top_k;
  if (std::find(scores, scores + k, kInf) != scores + k) {
    for (std::int64_t c = 0; c < k; ++c) scores[c] = scores[c] == kInf ? 1.0f : 0.0f;
  }
  const float divisor = denominator(spec, scores);
  for (std::int64_t c = 0; c < k; ++c) {
    weights[c] = divisor == 0.0f ? 0.0f : divide_and_scale(spec, scores[c], divisor);
  }
}

void plain_weights(const samebits_router_spec& spec, const float* scores, float* weights) {
  const std::int64_t k = spec.top_k;
  const bool any_infinite = std::find(scores, scores + k, kInf) != scores + k;
  const float scale = spec.scale_stage == SAMEBITS_SCALE_ON_EXPERT_OUTPUT ? 1.0f : spec.routed_scaling_factor;
  for (std::int64_t c = 0; c < k; ++c) {
    weights[c] = any_infinite ? (scores[c] == kInf ? kMaxFloat : 0.0f) : scores[c] * scale;
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

}  // namespace

void weigh_tc256(const RouterConstants& constants, const float* logits, RowScratch& scratch, float* weights) {
  const samebits_router_spec& spec = constants.spec;
  gather_scores(constants, logits, scratch);
  if (spec.renormalize == SAMEBITS_RENORM_L1) {
    renormalized_weights(spec, scratch.chosen_scores, weights);
  } else {
    plain_weights(spec, scratch.chosen_scores, weights);
  }
  for (std::int64_t c = 0; c < spec.top_k; ++c) {
    if (!std::isfinite(weights[c])) weights[c] = 0.0f;
    if (spec.weights_dtype == SAMEBITS_BF16) weights[c] = bf16_to_float(weight_to_bf16(weights[c]));
  }
  if (spec.sort == SAMEBITS_SORT_BY_INDEX) sort_by_id(spec.top_k, scratch.ids, weights);
}

}  // namespace samebits::cpu
