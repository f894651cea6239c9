// Estimates of keys by the approximate instructions of the GPU, and what they may be off by: they tell which experts
// can be among the best, and only of those exact keys are formed.
//
// The errors of the instructions are those that the PTX manual states: tanh 2^-11, ex2 2^-22, rcp 2^-23 and sqrt 2^-23,
// relatively. The contract's functions are within 2^-23 of theirs. RowEstimates in row_estimates_test.cu compares
// scores over all logits.
#pragma once

#include "kernels/cuda/elementwise.cuh"
#include "kernels/select/lean.h"

namespace samebits::cuda {

namespace detail {

__device__ __forceinline__ float approximate_power(float x) {  // 2^x
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float approximate_reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float approximate_tanh(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float approximate_root(float x) {
  float y;
  asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
inline constexpr float kMinusLog2E = -0x1.715476p+0f;

}  // namespace detail

// tanh(x / 2) / 2 + 1/2: half of tanh's error, |tanh| <= 1.
inline constexpr float kSigmoidError = 0x1p-12f;

// For groups, whose sums of two keys must be told apart. The exponential counts s (1 - s) <= 1/4 of its error, its
// argument x log2(e), within |x| 2^-23.6, |x| s (1 - s) < 0.23; the reciprocal and the sum before it are within 2^-23
// and 2^-24 of theirs: 2^-22.1, and the contract's function.
inline constexpr float kNearSigmoidError = 0x1.8p-22f;
__device__ __forceinline__ float estimate_sigmoid(float x) {
  return detail::approximate_reciprocal(fadd(1.0f, detail::approximate_power(fmul(x, detail::kMinusLog2E))));
}

// For x up to 40. Softplus is max(x, 0) + log1p(e) with e = 2^(-|x| log2(e)), and log1p(e) is e times a polynomial, of
// the least relative error over [0, 1], 2^-16.8. This counts half of itself, as a root halves it, and sqrt(log 2) =
// 0.83 at the most: 2^-18.1. e is within |x| 2^-23 + 2^-22, which counts less than 2^-23; the polynomial's roundings
// within 2^-22; the sum and the root are within 2^-24 and 2^-23 of theirs, up to sqrt(40) = 6.3. Together below
// 2^-17.5.
inline constexpr float kSqrtSoftplusError = 0x1p-17f, kMostEstimated = 40.0f;
__device__ __forceinline__ float estimate_sqrt_softplus(float x) {
  const float e = detail::approximate_power(fmul(magnitude(x), detail::kMinusLog2E));
  float p = -0x1.87127ap-6f;
  p = ffma(p, e, 0x1.9e9b42p-4f);
  p = ffma(p, e, -0x1.ae2e02p-3f);
  p = ffma(p, e, 0x1.4d02fap-2f);
  p = ffma(p, e, -0x1.ff5896p-2f);
  p = ffma(p, e, 0x1.fffee6p-1f);
  return detail::approximate_root(ffma(p, e, fmaxf(x, 0.0f)));
}

// exp(x - m) times an estimated 1 / S: within 2^-23 for the reciprocal, 2^-24 for this product and for the score's own
// rounding. Scores are up to 1.
inline constexpr float kSoftmaxError = 0x1p-21f;

template <Lean kLean>
inline constexpr float kScoreError = kLean == Lean::kSigmoid         ? kSigmoidError
                                     : kLean == Lean::kSigmoidGroups ? kNearSigmoidError
                                     : kLean == Lean::kSqrtSoftplus  ? kSqrtSoftplusError
                                                                     : kSoftmaxError;

// What estimate_key adds for a bias: of an estimated sigmoid the 1/2, too.
template <Lean kLean>
__device__ __forceinline__ float addend_of_bias(float bias) {
  return kLean == Lean::kSigmoid ? fadd(bias, 0.5f) : bias;
}
// The key of a logit, but of softmax. It is off by less than the score, and three roundings of no more than the key
// and 1: kScoreError + 2^-22 (|key| + 1).
template <Lean kLean>
__device__ __forceinline__ float estimate_key(float logit, float addend) {
  static_assert(kLean != Lean::kSoftmax);
  if constexpr (kLean == Lean::kSigmoid) return ffma(0.5f, detail::approximate_tanh(fmul(0.5f, logit)), addend);
  if constexpr (kLean == Lean::kSqrtSoftplus) return fadd(estimate_sqrt_softplus(logit), addend);
  return fadd(estimate_sigmoid(logit), addend);
}
// More than twice what an estimated key near `key` may be off by. k experts have an estimate of `key` or more: the k-th
// best exact key is not below it by more than what an estimate may be off, and an expert with that exact key or more
// has an estimate not below it by more than twice that. Softmax without bias has no error but relative ones.
template <Lean kLean>
__device__ __forceinline__ float key_margin(float key, bool has_bias) {
  const bool is_relative = kLean == Lean::kSoftmax && !has_bias;
  return ffma(magnitude(key), 0x1p-20f, is_relative ? 0.0f : 4.0f * kScoreError<kLean>);
}

// More than what the difference of two groups' scores may be off by, none of their first two keys above `largest`: the
// estimates of four keys, and 2^-24 of it for the rounding of each of them and of its exact key, and for those of sums.
__device__ __forceinline__ float group_margin(float largest) {
  return ffma(largest, 0x1p-20f, 4.125f * kNearSigmoidError);
}

}  // namespace samebits::cuda
