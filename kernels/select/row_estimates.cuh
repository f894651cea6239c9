// Estimates of keys by the approximate instructions of the GPU, and what they may be off by: they tell which experts
// can be among the best, and only of those exact keys are formed.
//
// The errors of the instructions are those that the PTX manual states: tanh 2^-11, ex2 2^-22, rcp 2^-23 and sqrt 2^-23,
// relatively; lg2 2^-22, from 1/2 to 2 absolutely. The contract's functions are within 2^-23 of theirs. RowEstimates in
// row_estimates_test.cu compares scores over all logits.
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
__device__ __forceinline__ float approximate_log2(float x) {
  float y;
  asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
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

// softplus is log(2) log2(1 + 2^(x log2(e))). The power counts at most x 2^-22 of it; 1 + it is rounded, log2 is within
// 2^-22 of its value or of 1, and the product is rounded: together less than 2^-21 max(softplus, 1). A root is off by
// no more than the root of that, or 2^-10.5, below 1, and by 2^-21 of itself above, of logits up to 88 less than 2^-17.
// A logarithm near 0 may be negative, of which the root takes the magnitude, which is nearer to softplus. From 89 on
// estimates are Inf, so that these experts are candidates, which are left.
inline constexpr float kSqrtSoftplusError = 0x1p-10f;
__device__ __forceinline__ float estimate_sqrt_softplus(float x) {
  const float power = detail::approximate_power(fmul(x, -detail::kMinusLog2E));
  return detail::approximate_root(fabsf(fmul(detail::approximate_log2(fadd(1.0f, power)), 0x1.62e43p-1f)));
}

template <Lean kLean>
inline constexpr float kScoreError = kLean == Lean::kSigmoid         ? kSigmoidError
                                     : kLean == Lean::kSigmoidGroups ? kNearSigmoidError
                                                                     : kSqrtSoftplusError;

// The key of a logit, but of softmax, whose keys are exact. Of an estimated sigmoid the 1/2 is left out. It is off by
// less than the score, and three roundings of no more than the key and 1: kScoreError + 2^-22 (|key| + 1).
template <Lean kLean>
__device__ __forceinline__ float estimate_key(float logit, float bias) {
  static_assert(kLean != Lean::kSoftmax);
  if constexpr (kLean == Lean::kSigmoid) return ffma(0.5f, detail::approximate_tanh(fmul(0.5f, logit)), bias);
  if constexpr (kLean == Lean::kSqrtSoftplus) return fadd(estimate_sqrt_softplus(logit), bias);
  return fadd(estimate_sigmoid(logit), bias);
}
// More than twice what an estimated key near `key` may be off by. k experts have an estimate of `key` or more: the k-th
// best exact key is not below it by more than what an estimate may be off, and an expert with that exact key or more
// has an estimate not below it by more than twice that. Keys of softmax are exact, but for a bias on a score below
// 2^-99.
template <Lean kLean>
__device__ __forceinline__ float key_margin(float key) {
  return ffma(magnitude(key), 0x1p-20f, kLean == Lean::kSoftmax ? 0.0f : 4.0f * kScoreError<kLean>);
}

// More than what the difference of two groups' scores may be off by, none of their first two keys above `largest`: the
// estimates of four keys, and 2^-24 of it for the rounding of each of them and of its exact key, and for those of sums.
__device__ __forceinline__ float group_margin(float largest) {
  return ffma(largest, 0x1p-20f, 4.125f * kNearSigmoidError);
}

}  // namespace samebits::cuda
