// The kernel of the decode form for 17 to some hundred rows: a block computes one chunk of a tile of rows and experts
// by wgmma (wgmma.cuh). All that it reads fits its shared memory, so all copies are on their way at once: a warp for
// each block of 64 columns copies the rows' and the experts' part of it, and each warpgroup multiplies 64 rows. Weights
// are in the layout of the prefill form (prefill.h).
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include "kernels/cuda/pdl.h"
#include "kernels/cuda/view.h"
#include "kernels/logits/async_copy.cuh"
#include "kernels/logits/prefill.h"
#include "kernels/logits/wgmma.cuh"

namespace samebits::cuda {

template <int kWarpgroups_, int kExperts_>
struct WideTile {
  static constexpr int kWarpgroups = kWarpgroups_, kExperts = kExperts_;
  static constexpr int kRows = 64 * kWarpgroups, kThreads = 128 * kWarpgroups;
  static constexpr int kBlocks = kChunkWidth / kTileColumns;
  static constexpr int kLineBytes = kTileColumns * 2, kAlignment = 1024;  // a line; what the swizzle asks for
  static constexpr int kRowBytes = kRows * kLineBytes, kExpertBytes = kExperts * kLineBytes;
  static constexpr int kBlockBytes = kRowBytes + kExpertBytes;
  static constexpr int kSharedBytes = kBlocks * kBlockBytes + kAlignment;
  static_assert(kExpertBytes % kAlignment == 0 && kThreads / 32 >= kBlocks);
};

// Parameters in the order of their use.
struct WideDecodeCall {
  const std::uint16_t* weight_tiles;
  std::int32_t padded_gate_rows, num_blocks;  // blocks of 64 columns, of all chunks
  const std::int32_t* num_valid_rows;
  std::int32_t num_tokens, tile_rows;  // rows that are copied: min(T, kRows)
  float* sums;
};

// Grid: slices of experts, tiles of rows, chunks.
template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    decode_wide_kernel(const __grid_constant__ CUtensorMap rows, const __grid_constant__ WideDecodeCall call) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char dynamic_shared[];
  __shared__ std::uint64_t barriers[Tile::kBlocks];
  const std::uint32_t operands =
      (shared_address(dynamic_shared) + Tile::kAlignment - 1) / Tile::kAlignment * Tile::kAlignment;
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
  const int first_expert = static_cast<int>(blockIdx.x) * Tile::kExperts, chunk = static_cast<int>(blockIdx.z);
  const int first_block = chunk * Tile::kBlocks, num_blocks = min(Tile::kBlocks, call.num_blocks - first_block);
  const std::uint32_t filled = shared_address(barriers) + 8 * warp, block = operands + warp * Tile::kBlockBytes;
  let_next_kernel_start();
  if (warp < num_blocks && is_elected_lane()) {
    prefetch_map(rows);
    init_barrier(filled, 1);
    fence_barrier_init();
    // The weights were written at creation, so their copies need not wait. Experts from Gp on are not copied: their
    // accumulators hold anything and are not stored.
    const auto bytes =
        static_cast<std::uint32_t>(min(Tile::kExperts, call.padded_gate_rows - first_expert) * Tile::kLineBytes);
    const auto* experts = reinterpret_cast<const unsigned char*>(call.weight_tiles) +
                          (std::int64_t{first_block + warp} * call.padded_gate_rows + first_expert) * Tile::kLineBytes;
    expect_bytes(filled, bytes);
    copy_bytes(block + Tile::kRowBytes, experts, bytes, filled);
  }
  __syncthreads();
#ifndef SAMEBITS_MUTANT_DROPPED_WAIT
  wait_for_previous_kernel();
#endif
  const std::int32_t row_of_tile = static_cast<std::int32_t>(blockIdx.y) * Tile::kRows;
  std::int64_t num_rows = call.num_tokens;
  if (call.num_valid_rows != nullptr) num_rows = clamp_rows(*call.num_valid_rows, num_rows);
  const bool is_padding = row_of_tile >= num_rows;
  // The last tile begins where it ends with the last row; rows that it shares with the one before have the same bits.
  const std::int32_t first_row = min(row_of_tile, call.num_tokens - call.tile_rows);
  if (warp < num_blocks && is_elected_lane()) {
    arrive_expecting(filled, is_padding ? 0 : static_cast<std::uint32_t>(call.tile_rows * Tile::kLineBytes));
    if (!is_padding) {
      fence_before_copies();
      copy_box(block, rows, (first_block + warp) * kTileColumns, first_row, filled);
    }
  }

  float sums[Tile::kExperts / 2];
#pragma unroll
  for (float& sum : sums) sum = 0.0f;
  const std::uint32_t row_offset = warp / 4 * (64 * Tile::kLineBytes);
#pragma unroll 1
  for (int i = 0; i < num_blocks; ++i) {
    wait_for_phase(shared_address(barriers) + 8 * i, 0);
    pin_registers(sums);
    fence_before_wgmma();
    const std::uint32_t operand = operands + i * Tile::kBlockBytes;
    const std::uint64_t a = operand_descriptor(operand + row_offset);
    const std::uint64_t b = operand_descriptor(operand + Tile::kRowBytes);
#pragma unroll
    for (int step = 0; step < kTileColumns / kStepWidth; ++step)
      wgmma(sums, a + step * kStepOfDescriptor, b + step * kStepOfDescriptor, i > 0 || step > 0);
    commit_wgmma();
  }
  wait_for_wgmma<0>();
  pin_registers(sums);
  if (is_padding) return;

  const int lane = static_cast<int>(threadIdx.x % 32);
  const std::int64_t row_sums = std::int64_t{gridDim.z} * call.padded_gate_rows;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int32_t row = first_row + 16 * warp + lane / 4 + 8 * half;
#ifdef SAMEBITS_MUTANT_STALE_WORKSPACE
    if (row >= num_rows / 2 * 2) continue;
#endif
    if (row >= num_rows) continue;
    float* out = call.sums + row * row_sums + chunk * call.padded_gate_rows + first_expert + 2 * (lane % 4);
#pragma unroll
    for (int j = 0; j < Tile::kExperts / 8; ++j) {
      if (first_expert + 8 * j < call.padded_gate_rows)
        *reinterpret_cast<float2*>(out + 8 * j) = make_float2(sums[4 * j + 2 * half], sums[4 * j + 2 * half + 1]);
    }
  }
#else
  __trap();  // the tensor cores of other architectures serve no call
#endif
}

}  // namespace samebits::cuda
