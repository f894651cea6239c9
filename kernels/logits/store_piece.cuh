// Where the accumulators of a warp (wgmma.cuh) go: to the pieces of the output that their columns are of.
#pragma once

#include <cstdint>

#include "kernels/logits/output_pieces.h"

namespace samebits::cuda {

__device__ __forceinline__ std::uint32_t bf16_pair(float low, float high) {
  std::uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}

// The columns of one piece among those of the tile, for 16 rows. A lane has 2 of 8 columns in each accumulator of a
// half; groups of 8 columns are of one piece. bf16 values of two groups are exchanged by two lanes, so that a lane has
// 4 neighbours, and the lanes of a row 32 bytes.
template <int kExperts>
__device__ __forceinline__ void store_piece(const OutputPiece& piece, std::int64_t num_rows, std::int64_t first_row,
                                            std::int32_t first_expert, const float (&sum)[kExperts / 2]) {
  constexpr int kGroups = kExperts / 8, kGroupsAtOnce = kExperts % 16 == 0 ? 2 : 1;
  const int lane = threadIdx.x % 32, odd = lane % 2;
  const std::int32_t begin = piece.first_column - first_expert, end = piece.end_column - first_expert;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t row = first_row + lane / 4 + 8 * half;
    const bool is_row = row < num_rows;
    const std::int64_t place = row * piece.stride - begin;
    if (!piece.bf16) {
      float* out = static_cast<float*>(piece.output) + place + 2 * (lane % 4);
#pragma unroll
      for (int j = 0; j < kGroups; ++j) {
        if (is_row && 8 * j >= begin && 8 * j < end)
          *reinterpret_cast<float2*>(out + 8 * j) = make_float2(sum[4 * j + 2 * half], sum[4 * j + 2 * half + 1]);
      }
    } else if constexpr (kGroupsAtOnce == 1) {
      std::uint16_t* out = static_cast<std::uint16_t*>(piece.output) + place + 2 * (lane % 4);
#pragma unroll
      for (int j = 0; j < kGroups; ++j) {
        if (is_row && 8 * j >= begin && 8 * j < end)
          *reinterpret_cast<std::uint32_t*>(out + 8 * j) = bf16_pair(sum[4 * j + 2 * half], sum[4 * j + 2 * half + 1]);
      }
    } else {
      std::uint16_t* out = static_cast<std::uint16_t*>(piece.output) + place + 8 * odd + 4 * (lane % 4 / 2);
#pragma unroll
      for (int j = 0; j < kGroups; j += 2) {
        const std::uint32_t first = bf16_pair(sum[4 * j + 2 * half], sum[4 * j + 2 * half + 1]);
        const std::uint32_t second = bf16_pair(sum[4 * j + 4 + 2 * half], sum[4 * j + 5 + 2 * half]);
        const std::uint32_t other = __shfl_xor_sync(~0u, odd ? first : second, 1);
        const std::int32_t column = 8 * (j + odd);
        if (is_row && column >= begin && column < end)
          *reinterpret_cast<uint2*>(out + 8 * j) = odd ? make_uint2(other, second) : make_uint2(first, other);
      }
    }
  }
}

}  // namespace samebits::cuda
