// The logits of few rows, by mma.sync. The weights are what there is to read, so they are spread over all
// multiprocessors: a warp has one tile of 16 experts and one chunk, all of whose fragments it loads at once; its sums
// are one entry of call.sums each, and the selection folds them.
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pdl.h"
#include "kernels/logits/decode_tile.cuh"
#include "kernels/logits/rows.cuh"

namespace samebits::cuda {
namespace {

template <int kTokenTiles>
__device__ void store_sums(const RouterView& router, const CallView& call, int tile, int chunk, std::int64_t first_row,
                           int num_rows, int lane, const Accumulator (&sums)[kTokenTiles]) {
#pragma unroll
  for (int n = 0; n < kTokenTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = n * kTileTokens + 2 * (lane % 4) + i % 2;
      const int g = tile * kTileExperts + lane / 4 + 8 * (i / 2);
      if (row >= num_rows) continue;
#ifdef SAMEBITS_MUTANT_STALE_WORKSPACE
      if (row >= num_rows / 2 * 2) continue;
#endif
      call.sums[((first_row + row) * router.num_chunks + chunk) * router.padded_gate_rows + g] = sums[n].values[i];
    }
  }
}

// Grid: groups of kTokenTiles * 8 tokens, of kWarps expert tiles, and chunks.
template <int kTokenTiles, int kWarps>
__global__ void __launch_bounds__(32 * kWarps)
    logits_decode_kernel(const __grid_constant__ RouterView router, const __grid_constant__ CallView call) {
  constexpr int kTokens = kTokenTiles * kTileTokens;
  __shared__ alignas(16) std::uint16_t tokens[kTokens][kSharedStride];
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int tile = static_cast<int>(blockIdx.y) * kWarps + static_cast<int>(threadIdx.x) / 32;
  const bool has_tile = tile < router.padded_gate_rows / kTileExperts;
  const int chunk = static_cast<int>(blockIdx.z);
  const int num_steps = steps_of_chunk(router, chunk);

  let_next_kernel_start();
  // The weights were written at creation, so their loads need not wait.
  Fragment weights[kChunkSteps];
  if (has_tile) load_weights(router, 0, tile, chunk, num_steps, lane, weights);
#ifndef SAMEBITS_MUTANT_DROPPED_WAIT
  wait_for_previous_kernel();
#endif
  const std::int64_t first_row = std::int64_t{blockIdx.x} * kTokens;
  const int num_rows = static_cast<int>(min(std::int64_t{kTokens}, valid_rows(call) - first_row));
  if (num_rows <= 0) return;
  copy_tokens(call.input + first_row * call.input_stride + chunk * kChunkWidth, call.input_stride, num_rows,
              num_steps * kStepWidth, tokens);
  __pipeline_wait_prior(0);
  __syncthreads();
  if (!has_tile) return;

  Accumulator sums[kTokenTiles];
  sum_chunk(
      router, tile, chunk, num_steps, lane, weights, [&](int n, int s) { return tokens_of_step(tokens, n, s, lane); },
      sums);
  store_sums(router, call, tile, chunk, first_row, num_rows, lane, sums);
}

template <int kTokenTiles, int kWarps>
cudaError_t launch(const RouterView& router, const CallView& call, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(ceil_div(call.num_tokens, kTokenTiles * kTileTokens)),
                  static_cast<unsigned>(ceil_div(router.padded_gate_rows, kWarps * kTileExperts)),
                  static_cast<unsigned>(router.num_chunks));
  return launch_pdl(logits_decode_kernel<kTokenTiles, kWarps>, grid, dim3(32 * kWarps), 0, stream, router, call);
}

}  // namespace

cudaError_t launch_logits_decode(const RouterView& router, const CallView& call, cudaStream_t stream) {
  const std::int64_t num_tokens = call.num_tokens;
  if (num_tokens == 0) return cudaSuccess;
  // The same instruction, chains and sums in each: the number of tokens decides how many share a load of the weights.
  if (num_tokens <= 8) return launch<1, 2>(router, call, stream);
  if (num_tokens <= 16) return launch<2, 2>(router, call, stream);
  if (num_tokens <= 32) return launch<4, 2>(router, call, stream);
  return launch<8, 4>(router, call, stream);
}

}  // namespace samebits::cuda
