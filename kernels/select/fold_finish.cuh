// The finished logits of a row: from the parts of their sums, or as the caller gives them.
#pragma once

#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/view.h"
#include "kernels/select/threads.cuh"

namespace samebits::cuda {

#ifdef SAMEBITS_MUTANT_INDEX_OVERFLOW
using SumOffset = std::uint16_t;  // as 32 bits do where there are 65,536 times as many sums
#else
using SumOffset = std::int64_t;
#endif

// Parts are added left to right; `stride` lies between two of them.
__device__ inline float fold_sums(const float* sums, int num_sums, int stride) {
  constexpr int kLoads = 16;  // in flight at once
  float sum = canonical(sums[0]);
  for (int first = 1; first < num_sums; first += kLoads) {
    float some[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      some[i] = first + i < num_sums ? sums[static_cast<std::int64_t>(first + i) * stride] : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (first + i < num_sums) sum = fadd(sum, some[i]);
    }
  }
  return sum;
}

// What follows the product: linear bias, rounding to bf16, temperature and softcap, each if the spec asks for it.
__device__ inline float finish_logit(const RouterView& router, int expert, float x) {
  const samebits_router_spec& spec = router.spec;
  if (router.linear_bias != nullptr) x = fadd(x, router.linear_bias[expert]);
  if (spec.logits_dtype == SAMEBITS_BF16) x = round_to_bf16(x);
  if (spec.temperature != 1.0f) x = fdiv(x, spec.temperature);
  if (spec.softcap != 0.0f) x = fmul(spec.softcap, tanh_of(fdiv(x, spec.softcap)));
  return x;
}

// To logits, and to the caller where wanted.
__device__ inline void write_logit(const CallView& call, std::int64_t row, int expert, float x, float* logits) {
  logits[expert] = x;
  if (call.router_logits != nullptr) call.router_logits[row * call.router_logits_stride + expert] = x;
}

// logits[0 .. G), each thread every block.size-th.
__device__ inline void load_logits(Block block, const RouterView& router, const CallView& call, std::int64_t row,
                                   float* logits) {
  const float* sums = call.sums + static_cast<SumOffset>(row * call.num_sums * router.padded_gate_rows);
  const int stride = router.padded_gate_rows;
  const float* given = call.given_logits + row * call.given_logits_stride;
  for (int e = block.rank(); e < router.gate_rows; e += block.size) {
    const float x = call.given_logits != nullptr ? canonical(given[e])
                                                 : finish_logit(router, e, fold_sums(sums + e, call.num_sums, stride));
    write_logit(call, row, e, x, logits);
  }
}

}  // namespace samebits::cuda
