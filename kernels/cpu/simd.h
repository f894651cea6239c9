// The functions that are compiled once for each SIMD target and chosen at run time (Highway). Their bits do not depend
// on the target.
#pragma once

#include <cstdint>

#include "kernels/cpu/gate_weight.h"

namespace samebits::cpu {

// Name of the target that runs on this CPU: "AVX3", "AVX2", "SCALAR", ...
const char* simd_target_name();

// out[r][e] = hidden_states[r][k_begin .. k_end) times weight e, in chunks of 256 from k_begin on: each chunk is a
// chain of tensor-core steps from +0, and the chunks are added left to right (fp32 weights: three chains a chunk). NaN
// is always 0x7fffffff. k_begin is a multiple of 16, and so is k_end unless it is H. Strides count elements.
void multiply_rows(const GateWeight& weight, const std::uint16_t* hidden_states, std::int64_t row_stride,
                   std::int64_t num_rows, std::int64_t k_begin, std::int64_t k_end, float* out,
                   std::int64_t out_stride);

enum class Elementwise { kExp, kSigmoid, kSoftplus, kSqrtSoftplus, kTanh, kLog, kLog1p, kRsqrt };

// y[i] = f(x[i]) for n values; x may be y.
void apply_elementwise(Elementwise f, const float* x, std::int64_t n, float* y);
inline float apply_elementwise(Elementwise f, float x) {
  apply_elementwise(f, &x, 1, &x);
  return x;
}

// Sum of n terms in the order of a warp: 32 interleaved lanes, then lanes at distance 16, 8, 4, 2, 1.
float sum32(const float* x, std::int64_t n);

// Softmax over n values; x may not be y. NaN stays NaN and has no part in the rest.
void softmax(const float* x, std::int64_t n, float* y);

// False when the compiler contracted a * b + c, or split a fused one: no bit would be right then.
bool arithmetic_is_right();

}  // namespace samebits::cpu
