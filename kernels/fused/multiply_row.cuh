// A row multiplied by one block: what a block that selects does where its words have not come.
#pragma once

#include "kernels/cuda/bf16.cuh"
#include "kernels/logits/decode_tile.cuh"
#include "kernels/select/threads.cuh"

namespace samebits::cuda {

// sums[0 .. G) of one row, visible to the block: what the blocks that multiply hand over, folded.
__device__ __noinline__ inline void multiply_row(Block block, const RouterView& router, const std::uint16_t* input,
                                                 float* sums) {
  const int lane = Warp().rank();
  for (int tile = block.warp(); tile < router.padded_gate_rows / kTileExperts; tile += block.num_warps()) {
    float low = 0.0f, high = 0.0f;  // experts lane / 4 and + 8 of the tile, in the lanes that have token 0
    for (int chunk = 0; chunk < router.num_chunks; ++chunk) {
      const int num_steps = steps_of_chunk(router, chunk);
      Fragment weights[kChunkSteps];
      load_weights(router, 0, tile, chunk, num_steps, lane, weights);
      const auto token = [&](int, int s) {
        if (s >= num_steps) return uint2{};
        const std::uint16_t* columns = input + chunk * kChunkWidth + s * kStepWidth + 4 * (lane % 4);
        return lane / 4 == 0 ? *reinterpret_cast<const uint2*>(columns) : uint2{};
      };
      Accumulator chunk_sums[1];
      sum_chunk(router, tile, chunk, num_steps, lane, weights, token, chunk_sums);
      low = chunk == 0 ? chunk_sums[0].values[0] : fadd(low, chunk_sums[0].values[0]);
      high = chunk == 0 ? chunk_sums[0].values[2] : fadd(high, chunk_sums[0].values[2]);
    }
    const int expert = tile * kTileExperts + lane / 4;
    if (lane % 4 == 0 && expert < router.gate_rows) sums[expert] = low;
    if (lane % 4 == 0 && expert + 8 < router.gate_rows) sums[expert + 8] = high;
  }
  block.sync();
}

}  // namespace samebits::cuda
