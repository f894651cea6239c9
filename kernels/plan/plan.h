// The reduction plan of the contract tc256, shared by every CUDA kernel of it: how a dot product over H is cut, and the
// order in which the cuts are added. It depends on H alone, which is what makes a row's bits independent of its batch.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define SAMEBITS_HOST_DEVICE __host__ __device__
#else
#define SAMEBITS_HOST_DEVICE
#endif

namespace samebits::cuda {

inline constexpr int kStepWidth = 16;    // products that one tensor-core step adds at once
inline constexpr int kChunkWidth = 256;  // products of one chain of steps from +0; chains are added left to right

SAMEBITS_HOST_DEVICE constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
SAMEBITS_HOST_DEVICE constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) {
  return ceil_div(a, b) * b;
}
SAMEBITS_HOST_DEVICE constexpr std::int64_t num_chunks(std::int64_t hidden_size) {
  return ceil_div(hidden_size, kChunkWidth);
}
// Zero products change neither a chain nor its sign, so H may be padded with +0 in both operands.
SAMEBITS_HOST_DEVICE constexpr std::int64_t padded_hidden_size(std::int64_t hidden_size) {
  return round_up(hidden_size, kStepWidth);
}

// Parts of a gate weight: a bf16 weight is one; an fp32 weight is w1 + w2 + w3, each the value with the low 16 bits cut
// off what the parts before left (not finite: w, 0, 0). A chunk is then fadd(fadd(C1, C2), C3), one chain a part.
inline constexpr int kMaxParts = 3;

}  // namespace samebits::cuda
