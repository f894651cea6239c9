// The logits of few rows, by mma.sync. The weights are what there is to read, so they are spread over all
// multiprocessors: a warp has one tile of 16 experts and one chunk, all of whose fragments it loads at once; its sums
// are one entry of call.sums each, and the selection folds them. Experts are the M of the instruction, tokens its N.
#include "kernels/logits/decode.h"

#include <cuda_pipeline_primitives.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/pdl.h"
#include "kernels/logits/rows.cuh"

namespace samebits::cuda {
namespace {

constexpr int kTileTokens = 8;
constexpr int kChunkSteps = kChunkWidth / kStepWidth;
// Of a token's chunk in shared memory: with 544 bytes from token to token, the 16 lanes of a half warp, 4 tokens by 32
// bytes, meet every bank once.
constexpr int kSharedStride = kChunkWidth + 16;

using Fragment = uint4;  // one lane's 8 weights
struct Accumulator {
  float values[4];  // experts lane / 4, + 8 (values 2 and 3); tokens 2 * (lane % 4), + 1 (values 1 and 3)
};

// One step for 16 experts and 8 tokens. tokens: columns 4 * (lane % 4) ... + 3 of token lane / 4.
__device__ void multiply_tile(Accumulator& c, const Fragment& weights, const uint2& tokens) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c.values[0]), "+f"(c.values[1]), "+f"(c.values[2]), "+f"(c.values[3])
      : "r"(weights.x), "r"(weights.y), "r"(weights.z), "r"(weights.w), "r"(tokens.x), "r"(tokens.y));
}

// The fragments of one part of an expert tile's chunk.
__device__ void load_weights(const RouterView& router, int part, int tile, int chunk, int num_steps, int lane,
                             Fragment (&weights)[kChunkSteps]) {
  const std::int64_t first_step = (std::int64_t{part} * (router.padded_gate_rows / kTileExperts) + tile) *
                                      (router.padded_hidden_size / kStepWidth) +
                                  chunk * kChunkSteps;
  const auto* fragments =
      reinterpret_cast<const Fragment*>(router.weight_fragments) + first_step * kFragmentLanes + lane;
#pragma unroll
  for (int s = 0; s < kChunkSteps; ++s) weights[s] = s < num_steps ? __ldg(fragments + s * kFragmentLanes) : Fragment{};
}

// The chunk of a block's tokens, from `input`; those from num_rows on are +0.
template <int kTokens, int kThreads>
__device__ void load_tokens(const std::uint16_t* input, std::int64_t stride, int num_rows, int width,
                            std::uint16_t (&tokens)[kTokens][kSharedStride]) {
  constexpr int kPiece = 8;  // values in 16 bytes
  const int row_pieces = width / kPiece;
  for (int i = static_cast<int>(threadIdx.x); i < kTokens * row_pieces; i += kThreads) {
    const int row = i / row_pieces, column = i % row_pieces * kPiece;
    if (row < num_rows) {
      __pipeline_memcpy_async(&tokens[row][column], input + row * stride + column, sizeof(uint4));
    } else {
      *reinterpret_cast<uint4*>(&tokens[row][column]) = uint4{};
    }
  }
  __pipeline_commit();
  __pipeline_wait_prior(0);
  __syncthreads();
}

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
      if (kTokenTiles == 1 && row >= num_rows / 2 * 2) continue;
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
  const int num_steps = min(kChunkSteps, router.padded_hidden_size / kStepWidth - chunk * kChunkSteps);

  // The weights were written at creation, so their loads need not wait.
  Fragment weights[kChunkSteps];
  if (has_tile) load_weights(router, 0, tile, chunk, num_steps, lane, weights);
#ifndef SAMEBITS_MUTANT_DROPPED_WAIT
  wait_for_previous_kernel();
#endif
  const std::int64_t first_row = std::int64_t{blockIdx.x} * kTokens;
  const int num_rows = static_cast<int>(min(std::int64_t{kTokens}, valid_rows(call) - first_row));
  if (num_rows <= 0) return;
  load_tokens<kTokens, 32 * kWarps>(call.input + first_row * call.input_stride + chunk * kChunkWidth, call.input_stride,
                                    num_rows, num_steps * kStepWidth, tokens);
  if (!has_tile) return;

  Accumulator sums[kTokenTiles];
  for (int part = 0; part < router.num_parts; ++part) {
    if (part > 0) load_weights(router, part, tile, chunk, num_steps, lane, weights);
    Accumulator chains[kTokenTiles] = {};
#pragma unroll
    for (int s = 0; s < kChunkSteps; ++s) {
      if (s >= num_steps) break;
#pragma unroll
      for (int n = 0; n < kTokenTiles; ++n) {
        const std::uint16_t* columns = &tokens[n * kTileTokens + lane / 4][s * kStepWidth + 4 * (lane % 4)];
        multiply_tile(chains[n], weights[s], *reinterpret_cast<const uint2*>(columns));
      }
    }
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sums[n].values[i] = part == 0 ? chains[n].values[i] : __fadd_rn(sums[n].values[i], chains[n].values[i]);
    }
  }
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
