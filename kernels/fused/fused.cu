// Logits and selection of up to 16 rows in one launch.
//
// The first blocks multiply, as the decode form does: a warp has one tile of 16 experts and one chunk. They hand their
// sums over as words (handover.h), wait for no other block, and are launched first. The blocks behind them have a row
// each: they fold its words left to right and select. Such a block looks for its words a bounded number of times and
// then multiplies the row itself, with the same chains, so it ends whatever happens to the others.
//
// Grid: (tile groups x chunks) + T blocks. Shared memory: a chunk of the tokens, and the memory of a row.
#include "kernels/fused/fused.h"

#include <algorithm>

#include "kernels/cuda/pdl.h"
#include "kernels/fused/few.h"
#include "kernels/fused/multiply_row.cuh"
#include "kernels/fused/words.cuh"
#include "kernels/logits/decode_tile.cuh"
#include "kernels/logits/rows.cuh"
#include "kernels/select/choice_columns.cuh"
#include "kernels/select/fold_finish.cuh"
#include "kernels/select/lean.cuh"
#include "kernels/select/select_row.cuh"
#include "kernels/select/wide_select.h"

namespace samebits::cuda {
namespace {

constexpr int kMaxThreads = kMaxSelectThreads;
constexpr int kMinThreads = 128;         // that copy the tokens
constexpr int kMultiplyingBlocks = 116;  // so that with 16 more each has a multiprocessor of its own (an H200 has 132)
constexpr std::size_t kMaxSharedBytes = (std::size_t{48} << 10) - 3 * kTileTokens * kSharedStride * 2;
constexpr int kWordsAtOnce = 28;  // of a row of H up to 7168

TileGroups tile_groups(const RouterView& router) {
  const std::int64_t tiles = router.padded_gate_rows / kTileExperts;
  const std::int64_t most = std::max<std::int64_t>(kMultiplyingBlocks / router.num_chunks, 1);
  const std::int64_t warps = ceil_div(tiles, most);
  return {static_cast<int>(ceil_div(tiles, warps)), static_cast<int>(warps)};
}

template <int kTokenTiles>
__device__ void write_sums(const RouterView& router, std::uint32_t* words, int tile, int chunk, int num_rows, int lane,
                           const Accumulator (&sums)[kTokenTiles]) {
#pragma unroll
  for (int n = 0; n < kTokenTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = n * kTileTokens + 2 * (lane % 4) + i % 2;
      const int g = tile * kTileExperts + lane / 4 + 8 * (i / 2);
      if (row < num_rows)
        write_word(words + (row * router.num_chunks + chunk) * router.padded_gate_rows + g, sums[n].values[i]);
    }
  }
}

template <int kTokenTiles>
__device__ void multiply(const RouterView& router, const CallView& call, const Handover& handover,
                         const TileGroups& tiles) {
  __shared__ alignas(16) std::uint16_t tokens[kTokenTiles * kTileTokens][kSharedStride];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize, warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int chunk = static_cast<int>(blockIdx.x) / tiles.groups;
  const int tile = static_cast<int>(blockIdx.x) % tiles.groups * tiles.warps + warp;
  const bool has_tile = warp < tiles.warps && tile < router.padded_gate_rows / kTileExperts;
  const int num_steps = steps_of_chunk(router, chunk);

  Fragment weights[kChunkSteps];
  if (has_tile) load_weights(router, 0, tile, chunk, num_steps, lane, weights);
  wait_for_previous_kernel();
  const HandoverState state = read_state(handover);
  // Padding rows are read, too, rather than wait for their number.
  copy_tokens(call.input + chunk * kChunkWidth, call.input_stride, static_cast<int>(call.num_tokens),
              num_steps * kStepWidth, tokens);
  const int num_rows = static_cast<int>(valid_rows(call));
  __pipeline_wait_prior(0);
  __syncthreads();
  if (has_tile) {
    Accumulator sums[kTokenTiles];
    sum_chunk(
        router, tile, chunk, num_steps, lane, weights, [&](int n, int s) { return tokens_of_step(tokens, n, s, lane); },
        sums);
    write_sums(router, words_of_side(handover, side_of(state)), tile, chunk, num_rows, lane, sums);
  }
  if (threadIdx.x == 0) {
    add_arrival(handover);
    if (blockIdx.x == 0) {
      handover.state->used[side_of(state)] =
          static_cast<std::uint32_t>(num_rows * router.num_chunks * router.padded_gate_rows);
    }
  }
  clear_other_side(handover, state, static_cast<unsigned>(tiles.groups * router.num_chunks));
}

// The sums of a row, each to take(expert, sum) by the thread that keeps it, every block.size-th, and a barrier. sums:
// scratch, [G], which take(expert, ...) may overwrite at its place.
template <class Take>
__device__ __forceinline__ void receive_sums(Block block, const RouterView& router, const CallView& call,
                                             const Handover& handover, const HandoverState& state, std::int64_t row,
                                             float* sums, Take take) {
  const int stride = router.padded_gate_rows;
  const std::uint32_t* words = words_of_side(handover, side_of(state)) + row * router.num_chunks * stride;
  bool received = true;
  for (int e = block.rank(); e < router.gate_rows && received; e += block.size) {
    float sum = 0.0f;
    received = fold_words<kWordsAtOnce>(words + e, router.num_chunks, stride, handover.patience, sum);
    if (received) take(e, sum);
  }
  const bool complete = block.sync_all(received);
  if (block.rank() == 0) add_arrival(handover);
  if (complete) return;
  multiply_row(block, router, call.input + row * call.input_stride, sums);
  for (int e = block.rank(); e < router.gate_rows; e += block.size) take(e, sums[e]);
  block.sync();
}

// A row, by the code for any spec. False: it has no answer.
__device__ bool select_any(Block block, const RouterView& router, const CallView& call, const Handover& handover,
                           std::int64_t row, HandoverState& state, unsigned char* shared) {
  const RowMemory memory = row_memory(router, block.num_warps(), shared);
  fetch_constants(block, router, memory);
  wait_for_previous_kernel();
  state = read_state(handover);
  if (row >= valid_rows(call)) return false;
  const RowConstants constants = row_constants(router, call, row);
  receive_sums(block, router, call, handover, state, row, memory.scores, [&](int expert, float sum) {
    write_logit(call, row, expert, finish_logit(router, expert, sum), memory.logits);
  });
  select_row(block, router, call, row, constants, memory);
  return true;
}

template <Lean kLean>
__device__ __forceinline__ bool select_lean(Block block, const RouterView& router, const CallView& call,
                                            const Handover& handover, std::int64_t row, HandoverState& state,
                                            unsigned char* shared) {
  const LeanMemory memory = lean_memory(router.gate_rows, shared);
  if (has_one_bias(router)) copy_bias(block, router, router.selection_bias, memory.bias);
  wait_for_previous_kernel();
  state = read_state(handover);
  if (row >= valid_rows(call)) return false;
  const LeanBias bias = lean_bias(router, call, row);
  if (bias.values != nullptr && !has_one_bias(router)) copy_bias(block, router, bias.values, memory.bias);
  const float* own_bias = bias.values == nullptr ? nullptr : memory.bias;
  wait_for_copies();
  receive_sums(block, router, call, handover, state, row, memory.scores, [&](int expert, float sum) {
    const float logit = lean_logit(router, sum);
    if (call.router_logits != nullptr) call.router_logits[row * call.router_logits_stride + expert] = logit;
    take_logit<kLean>(memory, own_bias, expert, logit);
  });
  if (bias.has_answer) {
    lean_select<kLean>(block, router, call, row, own_bias, memory);
  } else if (block.warp() == 0) {
    write_no_experts(router, call, row);
  }
  return true;
}

template <Lean kLean>
__device__ void select(const RouterView& router, const CallView& call, const Handover& handover, std::int64_t row) {
  extern __shared__ __align__(16) unsigned char shared[];
  const Block block;
  HandoverState state;
  bool received;
  if constexpr (kLean == Lean::kNo) {
    received = select_any(block, router, call, handover, row, state, shared);
  } else {
    received = select_lean<kLean>(block, router, call, handover, row, state, shared);
  }
  if (!received) {
    if (block.warp() == 0) write_no_experts(router, call, row);
    block.sync();
    if (block.rank() == 0) add_arrival(handover);
  }
  wait_for_copies();
}

template <Lean kLean>
__global__ void __launch_bounds__(kMaxThreads)
    fused_kernel(const __grid_constant__ RouterView router, const __grid_constant__ CallView call,
                 const __grid_constant__ Handover handover, const __grid_constant__ TileGroups tiles) {
  let_next_kernel_start();
  const int multiplying_blocks = tiles.groups * router.num_chunks;
  const int row = static_cast<int>(blockIdx.x) - multiplying_blocks;
  if (row < 0) {
    if (call.num_tokens <= kTileTokens) {
      multiply<1>(router, call, handover, tiles);
    } else {
      multiply<2>(router, call, handover, tiles);
    }
    return;
  }
  select<kLean>(router, call, handover, row);
}

int num_threads(const RouterView& router) {
  return std::max({select_threads(router.gate_rows), tile_groups(router).warps * kWarpSize, kMinThreads});
}

std::size_t row_bytes(const RouterView& router) {
  return lean_of(router) == Lean::kNo ? row_layout(router, num_threads(router) / kWarpSize).bytes
                                      : static_cast<std::size_t>(lean_bytes(router.gate_rows));
}

using Kernel = void (*)(RouterView, CallView, Handover, TileGroups);
Kernel kernel_of(Lean lean) {
  switch (lean) {
    case Lean::kSigmoid:
      return fused_kernel<Lean::kSigmoid>;
    case Lean::kSigmoidGroups:
      return fused_kernel<Lean::kSigmoidGroups>;
    case Lean::kSqrtSoftplus:
      return fused_kernel<Lean::kSqrtSoftplus>;
    case Lean::kSoftmax:
      return fused_kernel<Lean::kSoftmax>;
    case Lean::kNo:
      break;
  }
  return fused_kernel<Lean::kNo>;
}

}  // namespace

bool can_fuse(const RouterView& router, std::int64_t num_tokens) {
  if (num_tokens > kFusedRows || router.num_parts == 0 || router.num_chunks > kMultiplyingBlocks) return false;
  if (tile_groups(router).warps * kWarpSize > kMaxThreads) return false;
  // Of many experts a row's words take so long to read that blocks which look for them again and again are slower than
  // wide_select.cu behind the decode form: by 0.4 to 1.2 us for Kimi-K3.
  if (!can_choose_by_block(router) && can_wide_select(router)) return false;
  if (num_tokens * router.num_chunks * router.padded_gate_rows > kWordsOfSide) return false;
  return row_bytes(router) <= kMaxSharedBytes;
}

bool can_bookkeep_fused(const RouterView& router, const CallView& call) {
  return call.num_tokens > 0 && can_route_few(router, call);
}

cudaError_t launch_fused(const RouterView& router, const CallView& call, const Handover& handover,
                         const BookkeepOutputs* bookkeeping, cudaStream_t stream) {
  if (call.num_tokens == 0) return cudaSuccess;
  const TileGroups tiles = tile_groups(router);
  const auto threads = static_cast<unsigned>(num_threads(router));
  const SlotTask slots = slot_task(router, call, bookkeeping);
  if (can_route_few(router, call)) return launch_few(router, call, handover, tiles, slots, stream);
  const std::int64_t blocks = tiles.groups * router.num_chunks + call.num_tokens;
  return launch_pdl(kernel_of(lean_of(router)), dim3(static_cast<unsigned>(blocks)), dim3(threads), row_bytes(router),
                    stream, router, call, handover, tiles);
}

}  // namespace samebits::cuda
