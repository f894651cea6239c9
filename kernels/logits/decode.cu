// The logits of few rows, by mma.sync; of more by decode_wide.h. The weights are what there is to read, so they are
// spread over all multiprocessors: a warp has one tile of 16 experts and one chunk, all of whose fragments it loads at
// once; its sums are one entry of call.sums each, and the selection folds them.
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pdl.h"
#include "kernels/logits/decode_tile.cuh"
#include "kernels/logits/decode_wide.h"

namespace samebits::cuda {
namespace {

constexpr int kFewestWarps = 3, kMaxWarps = 8;
// Measured on an H200: more blocks of 32 tokens are slower than those of 64, and more of 64 tokens than those of twice
// the experts.
constexpr std::int64_t kManySmallBlocks = 512, kManyBlocks = 396;

// What the kernel reads of a router and a call, in the order of its use. Parameters come from memory, too, a line of 64
// bytes at a time: this is little more than one.
struct DecodeCall {
  const Fragment* weights;  // [parts][tiles][steps][kFragmentLanes]
  std::int32_t steps, tiles;
  const std::uint16_t* input;
  std::int64_t input_stride;
  const std::int32_t* num_valid_rows;
  std::int32_t num_tokens, parts;
  float* sums;
};

// Grid: groups of kTokenTiles * 8 tokens, groups of expert tiles, a warp each, and chunks. kWhole: weights have one
// part, all chunks kChunkSteps steps, and there is one group of tokens.
template <int kTokenTiles, bool kWhole>
__global__ void __launch_bounds__(32 * kMaxWarps, kWhole ? 2 : 1)
    logits_decode_kernel(const __grid_constant__ DecodeCall call) {
  constexpr int kTokens = kTokenTiles * kTileTokens;
  __shared__ alignas(16) std::uint16_t tokens[kTokens][kSharedStride];
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  const int warps = static_cast<int>(blockDim.x / 32);
  const int tile = static_cast<int>(blockIdx.y) * warps + warp;
  const bool has_tile = tile < call.tiles;
  const int chunk = static_cast<int>(blockIdx.z);
  const int num_steps = kWhole ? kChunkSteps : min(kChunkSteps, call.steps - chunk * kChunkSteps);

  let_next_kernel_start();
  // The weights were written at creation, so their loads need not wait.
  Fragment weights[kChunkSteps];
  const int loaded_tile = kWhole ? min(tile, call.tiles - 1) : tile;
  const Fragment* fragments =
      call.weights + (std::int64_t{loaded_tile} * call.steps + chunk * kChunkSteps) * kFragmentLanes + lane;
  if constexpr (kWhole) {
    load_chunk(fragments, weights);
  } else if (has_tile) {
    load_fragments(fragments, num_steps, weights);
  }
  float* sums_of_chunk = call.sums + static_cast<std::int64_t>(chunk) * call.tiles * kTileExperts;
  asm volatile("" : "+l"(sums_of_chunk));  // read now: at its use the whole warp would wait for the parameter
  wait_for_previous_kernel();
  const std::int64_t first_row = kWhole ? 0 : std::int64_t{blockIdx.x} * kTokens;
  std::int64_t num_valid_rows = call.num_tokens;
  if (call.num_valid_rows != nullptr) num_valid_rows = clamp_rows(*call.num_valid_rows, num_valid_rows);
  const int num_rows = static_cast<int>(min(std::int64_t{kTokens}, num_valid_rows - first_row));
  if constexpr (kWhole) {
    // A warp copies a row at a time; padding rows, too, rather than wait for their number.
    const std::uint16_t* from = call.input + warp * call.input_stride + (chunk * kChunkWidth + lane * 8);
    const std::int64_t step = warps * call.input_stride;
#pragma unroll
    for (int i = 0; i < (kTokens + kFewestWarps - 1) / kFewestWarps; ++i, from += step) {
      copy_if(warp + i * warps < call.num_tokens, &tokens[warp + i * warps][lane * 8], from);
    }
    __pipeline_commit();
  } else {
    if (num_rows <= 0) return;
    copy_tokens(call.input + first_row * call.input_stride + chunk * kChunkWidth, call.input_stride, num_rows,
                num_steps * kStepWidth, tokens);
  }
  __pipeline_wait_prior(0);
#ifndef SAMEBITS_MUTANT_MISSING_BARRIER
  __syncthreads();
#endif
  if (!kWhole && !has_tile) return;

  Accumulator sums[kTokenTiles];
  const auto tokens_at = [&](int n, int s) { return tokens_of_step(tokens, n, s, lane); };
  run_chains(weights, tokens_at, sums);
  if constexpr (!kWhole) {
    for (int part = 1; part < call.parts; ++part) {
      fragments += std::int64_t{call.tiles} * call.steps * kFragmentLanes;
      load_fragments(fragments, num_steps, weights);
      add_chains(weights, tokens_at, sums);
    }
  }
  if (!has_tile) return;
  const std::int64_t row_sums = std::int64_t{gridDim.z} * call.tiles * kTileExperts;
  float* row = sums_of_chunk + first_row * row_sums + tile * kTileExperts + lane / 4;
#pragma unroll
  for (int n = 0; n < kTokenTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int t = n * kTileTokens + 2 * (lane % 4) + i;
      if (t >= num_rows) continue;
      row[t * row_sums] = sums[n].values[i];
      row[t * row_sums + 8] = sums[n].values[i + 2];
    }
  }
}

template <int kTokenTiles>
cudaError_t launch(const RouterView& router, const CallView& call, int warps, cudaStream_t stream) {
  DecodeCall decode{};
  decode.weights = reinterpret_cast<const Fragment*>(router.weight_fragments);
  decode.steps = router.padded_hidden_size / kStepWidth;
  decode.tiles = router.padded_gate_rows / kTileExperts;
  decode.input = call.input;
  decode.input_stride = call.input_stride;
  decode.num_valid_rows = call.num_valid_rows;
  decode.num_tokens = static_cast<std::int32_t>(call.num_tokens);
  decode.parts = router.num_parts;
  decode.sums = call.sums;
  const dim3 grid(static_cast<unsigned>(ceil_div(call.num_tokens, kTokenTiles * kTileTokens)),
                  static_cast<unsigned>(ceil_div(decode.tiles, warps)), static_cast<unsigned>(router.num_chunks));
  auto kernel = logits_decode_kernel<kTokenTiles, false>;
  if constexpr (kTokenTiles <= 4) {  // more tokens only of three parts
    const bool is_whole = router.num_parts == 1 && decode.steps == router.num_chunks * kChunkSteps && grid.x == 1;
    if (is_whole) kernel = logits_decode_kernel<kTokenTiles, true>;
  }
  return launch_pdl(kernel, grid, dim3(static_cast<unsigned>(32 * warps)), 0, stream, decode);
}

}  // namespace

cudaError_t launch_logits_decode(const RouterView& router, const CallView& call, cudaStream_t stream) {
  const std::int64_t num_tokens = call.num_tokens;
  if (num_tokens == 0) return cudaSuccess;
  if (takes_decode_wide(router, num_tokens)) return launch_decode_wide(router, call, stream);
  // The same instruction, chains and sums in each: the number of tokens decides how many share a load of the weights.
  const std::int64_t tiles = router.padded_gate_rows / kTileExperts;
  const int warps = tiles % 4 != 0 && tiles % 3 == 0 ? 3 : 4;
  const auto num_blocks = [&](int tokens) {
    return ceil_div(num_tokens, tokens) * ceil_div(tiles, warps) * router.num_chunks;
  };
  if (num_tokens <= 8) return launch<1>(router, call, warps, stream);
  if (num_tokens <= 16) return launch<2>(router, call, warps, stream);
  if (router.num_parts == 1 || num_blocks(32) <= kManySmallBlocks) return launch<4>(router, call, warps, stream);
  return launch<8>(router, call, num_blocks(64) <= kManyBlocks ? warps : kMaxWarps, stream);
}

}  // namespace samebits::cuda
