// Scores of logits, and the rank key made of a score or a logit.
#pragma once

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/view.h"
#include "kernels/select/threads.cuh"

namespace samebits::cuda {

// y[i] of n values in shared memory, y not x; NaN stays NaN and has no part in the rest. x must be visible to the team.
template <class Team>
__device__ void softmax(Team team, const float* x, int n, float* y) {
  const float largest = largest_of(x, n);
  for (int i = team.rank(); i < n; i += team.size) {
    if (is_nan(x[i]) || largest == -infinity()) {
      y[i] = 0.0f;
    } else if (largest == infinity()) {
      y[i] = x[i] == infinity() ? 1.0f : 0.0f;
    } else {
      y[i] = exp_of(fsub(x[i], largest));
    }
  }
  team.sync();
  const float sum = sum32(y, n);
  team.sync();
  for (int i = team.rank(); i < n; i += team.size) {
    if (is_nan(x[i])) {
      y[i] = from_bits(kNaNBits);
    } else if (largest != -infinity()) {
      y[i] = fdiv(y[i], sum);
    }
  }
}

__device__ inline float elementwise_score(std::int32_t score_func, float x) {
  switch (score_func) {
    case SAMEBITS_SCORE_SIGMOID:
      return sigmoid_of(x);
    case SAMEBITS_SCORE_SQRT_SOFTPLUS:
      return sqrt_softplus_of(x);
    default:
      return x;
  }
}

// scores[0 .. n) of n logits, rounded to bf16 if the spec says so. A thread writes its own only.
template <class Team>
__device__ void apply_score_func(Team team, const samebits_router_spec& spec, const float* logits, int n,
                                 float* scores) {
  const bool is_softmax = spec.score_func == SAMEBITS_SCORE_SOFTMAX;
  if (is_softmax) softmax(team, logits, n, scores);
  for (int i = team.rank(); i < n; i += team.size) {
    const float score = is_softmax ? scores[i] : elementwise_score(spec.score_func, logits[i]);
    scores[i] = spec.score_dtype == SAMEBITS_BF16 ? round_to_bf16(score) : score;
  }
}

// Score or logit of an expert that competes, plus its selection bias; `bias` is the row of the row's class, or null.
__device__ inline float rank_key(const samebits_router_spec& spec, const float* bias, const float* logits,
                                 const float* scores, int expert) {
  const float base = spec.rank_by == SAMEBITS_RANK_BY_LOGIT ? logits[expert] : scores[expert];
  return bias == nullptr ? base : fadd(base, bias[expert]);
}

}  // namespace samebits::cuda
