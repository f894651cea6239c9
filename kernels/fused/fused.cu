// Logits, selection and bookkeeping of up to 16 rows in one launch, for a few common shapes.
//
// The first blocks multiply, as the decode form does: a warp has one tile of 16 experts and one chunk. They hand their
// sums over as words (handover.h), wait for no other block, and are launched first. The blocks behind them have a row
// each: they fold its words left to right and select by all warps (block_choice.cuh). Such a block looks for its words
// a bounded number of times and then multiplies the row itself, with the same chains, so it ends whatever happens to
// the others. Rows that block_choice.cuh does not serve, by their values, take the way of lean.cuh.
//
// What keeps it short: parameters lie in the order of their use; bounds are constants; what is rare is out of line.
// Grid: (tile groups x chunks) + T blocks, and one more that does the bookkeeping.
#include "kernels/fused/fused.h"

#include <algorithm>

#include "kernels/cuda/pdl.h"
#include "kernels/fused/few_slots.cuh"
#include "kernels/fused/few_words.cuh"
#include "kernels/fused/multiply_row.cuh"
#include "kernels/fused/words.cuh"
#include "kernels/logits/decode_tile.cuh"
#include "kernels/select/choice_columns.cuh"
#include "kernels/select/copy_bias.cuh"
#include "kernels/select/lean.cuh"

namespace samebits::cuda {
namespace {

static_assert(kFusedRows * kMostChosen <= kMostSlots);
constexpr int kMostChunks = 28;  // of the shapes below
static_assert(kFusedRows * kMostChunks * kWordStride + kMostSlots <= kWordsOfSide);
constexpr int kMultiplyingBlocks = 116;  // so that with 16 more each has a multiprocessor of its own (an H200 has 132)
constexpr int kCopyingThreads = 4 * kWarpSize;    // the fewest that copy the tokens
constexpr int kFewestRowThreads = 4 * kWarpSize;  // of the choice

// What the launch reads of router, call and hand-over, in the order of its use.
struct FewCall {
  const Fragment* weights;
  const std::uint16_t* input;
  std::uint32_t* words;
  HandoverState* state;
  const std::int32_t* num_valid_rows;
  std::int32_t num_tokens, input_stride;
  std::int32_t warps, groups, group_magic;  // block / groups = block * group_magic >> 16
  std::int32_t tiles, chunks;
  std::int32_t multiplying_blocks, arrivals;

  const float* bias;  // null: none
  const std::int32_t* row_class;
  ChoiceSizes sizes;
  std::int32_t bias_variants, patience;
  void *ids, *weights_out;
  float* logits;
  std::int32_t* slot_ids;
  std::int32_t ids_stride, weights_stride, logits_stride;
  std::int32_t blocks;
  SlotBlocks slot_blocks;
  bool round_logits, bookkeeps;
  ColumnRule rule;
};

__device__ __forceinline__ int rows_of(const FewCall& few) {
  return few.num_valid_rows == nullptr ? few.num_tokens : min(max(__ldg(few.num_valid_rows), 0), few.num_tokens);
}

__device__ __forceinline__ Handover handover_of(const FewCall& few) {
  return {few.state, few.words, few.patience};
}

// By one thread of each block, when all threads of the block have read the state.
__device__ __forceinline__ void arrive(const FewCall& few) {
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(&few.state->arrivals),
               "r"(blockIdx.x == 0 ? few.arrivals : 1)
               : "memory");
}

template <int kTokenTiles>
__device__ __forceinline__ void multiply(const FewCall& few) {
  __shared__ alignas(16) std::uint16_t tokens[kTokenTiles * kTileTokens][kSharedStride];
  const int lane = Warp().rank(), warp = Block().warp();
  const int chunk = static_cast<int>(blockIdx.x) * few.group_magic >> 16;
  const int tile = (static_cast<int>(blockIdx.x) - chunk * few.groups) * few.warps + warp;
  const bool has_tile = warp < few.warps && tile < few.tiles;
  __shared__ HandoverState shared_state;
  const bool multiplies = warp < few.warps;
  Fragment weights[kChunkSteps];
  int num_rows = 0;
  if (multiplies) {
    const int loaded_tile = min(tile, few.tiles - 1);
    load_chunk(few.weights + ((loaded_tile * few.chunks + chunk) * kChunkSteps * kFragmentLanes + lane), weights);
    wait_for_previous_kernel();
    if (has_tile) num_rows = rows_of(few);
  } else {
    // These warps copy, a row each at a time. Padding rows are read, too, rather than wait for their number.
    wait_for_previous_kernel();
    const int copying_warps = static_cast<int>(blockDim.x) / kWarpSize - few.warps;
    const std::uint16_t* column = few.input + chunk * kChunkWidth + lane * 8;
    for (int row = warp - few.warps; row < few.num_tokens; row += copying_warps) {
      __pipeline_memcpy_async(&tokens[row][lane * 8], column + std::int64_t{row} * few.input_stride, sizeof(uint4));
    }
    __pipeline_commit();
    const HandoverState state = read_state(handover_of(few));
    if (warp == few.warps) shared_state = state;
    __pipeline_wait_prior(0);
  }
  __syncthreads();
  Accumulator sums[kTokenTiles];
  if (multiplies) {
    run_chains(
        weights, [&](int n, int s) { return tokens_of_step(tokens, n, s, lane); }, sums);
  }
  asm volatile("" ::: "memory");  // nothing of what follows before the chains
  const HandoverState state = shared_state;
  if (multiplies) {
    std::uint32_t* words = few.words + side_of(state) * kWordsOfSide;
    if constexpr (kTokenTiles == 1) {
      write_side_by_side(words, few.chunks, num_rows, chunk, tile, lane, sums[0]);
    } else {
      write_rows(words, few.chunks, num_rows, chunk, tile, lane, sums);
    }
  }
  const int side = side_of(state);
  if (threadIdx.x == 0) {
    arrive(few);
    if (blockIdx.x == 0) {
      few.state->used[side] =
          static_cast<std::uint32_t>(few.num_tokens * words_of_row<kTokenTiles>(few.chunks) + kMostSlots);
    }
  }
  clear_other_side(handover_of(few), state, static_cast<unsigned>(few.multiplying_blocks));
}

__device__ __forceinline__ Column column_of(const FewCall& few, int row, int column) {
  const unsigned rare = few.rule.rare;
  return {static_cast<unsigned char*>(few.ids) +
              (std::int64_t{row} * few.ids_stride + column) * ((rare & kWideIds) != 0 ? 8 : 4),
          static_cast<unsigned char*>(few.weights_out) +
              (std::int64_t{row} * few.weights_stride + column) * ((rare & kNarrowWeights) != 0 ? 2 : 4),
          few.slot_ids + (row * few.sizes.k + column)};
}

// A row that block_choice.cuh does not serve, or whose words have not come. The logit is this thread's, if received.
template <Lean kLean>
__device__ __noinline__ void select_slowly(const RouterView& router, const CallView& call, int row, bool received,
                                           float logit, bool has_answer, const float* bias, unsigned char* shared) {
  Block block;
  const LeanMemory memory = lean_memory(router.gate_rows, shared);
  const bool complete = block.sync_all(received);
  if (!complete) multiply_row(block, router, call.input + row * call.input_stride, memory.scores);
  const int expert = block.rank();
  if (!complete && expert < router.gate_rows) logit = lean_logit(router, memory.scores[expert]);
  block.sync();
  if (expert < router.gate_rows) {
    if (call.router_logits != nullptr) call.router_logits[row * call.router_logits_stride + expert] = logit;
    take_logit<kLean>(memory, bias, expert, logit);
  }
  block.sync();
  if (has_answer) {
    lean_select<kLean>(block, router, call, row, bias, memory);
  } else if (block.warp() == 0) {
    write_no_experts(router, call, row);
  }
}

// The ids of slots, which the blocks of rows hand to the block that does the bookkeeping: words behind the sums, one
// more than the id, so that -1 is no kNoWord.
template <int kTokenTiles>
__device__ __forceinline__ std::uint32_t* id_words(const FewCall& few, const HandoverState& state) {
  return few.words + side_of(state) * kWordsOfSide + few.num_tokens * words_of_row<kTokenTiles>(few.chunks);
}
__device__ __forceinline__ void write_id(std::uint32_t* word, std::int32_t id) {
  write_word_bits(word, static_cast<std::uint32_t>(id + 1));
}
__device__ __forceinline__ bool receive_id(const std::uint32_t* word, int patience, std::int32_t& id) {
  std::uint32_t found;
  do {
    if (patience-- <= 0) return false;
    found = read_word(word);
  } while (found == kNoWord);
  id = static_cast<std::int32_t>(found) - 1;
  return true;
}

__device__ __noinline__ void bookkeep_slowly(const SlotTask& slots, unsigned char* shared) {
  bookkeep_from_memory(slots, static_cast<int>(blockDim.x), shared);
}

template <Lean kLean, int kChunks, int kWarps, int kTokenTiles>
__device__ __forceinline__ void select(const FewCall& few, const RouterView& router, const CallView& call,
                                       const SlotTask& slots) {
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ BlockChoice choice;
  __shared__ ColumnRule rule;  // parameters are slow to reach where the row waits for them
  const int row = static_cast<int>(blockIdx.x) - few.multiplying_blocks;
  const ChoiceThread thread = choice_thread(few.sizes);
  const int expert = min(thread.rank, thread.experts - 1);  // threads behind the last do as that one does
  float bias = 0.0f;
  if (few.bias_variants == 1) bias = __ldg(few.bias + expert);
  wait_for_previous_kernel();
  const HandoverState state = read_state(handover_of(few));
  clear_choice(thread, choice);
  if (thread.rank == 0) rule = few.rule;
  const Column column = column_of(few, row, thread.rank);
  __syncthreads();  // before warps write what others have cleared
  bool chosen = false;
  if (row < rows_of(few)) {
    bool has_answer = true;
    const float* biases = few.bias;
    if (few.bias_variants > 0 && few.row_class != nullptr) {
      const std::int32_t row_class = few.row_class[row];
      has_answer = row_class >= 0 && row_class < few.bias_variants;
      if (has_answer) biases += row_class * few.sizes.experts;
    }
    if (few.bias_variants > 1) bias = __ldg(biases + expert);
    const std::uint32_t* words =
        few.words + side_of(state) * kWordsOfSide +
        (row * words_of_row<kTokenTiles>(few.chunks) + expert * (kTokenTiles == 1 ? kSideBySide : 1));
    float logit = 0.0f;
    const bool received = receive_sum<kChunks, kTokenTiles>(words, few.patience, logit);
    float* const logits = few.logits == nullptr ? nullptr : few.logits + std::int64_t{row} * few.logits_stride;
    if (few.round_logits) logit = round_to_bf16(logit);
    chosen = choose_by_block<kLean, kWarps>(thread, few.sizes, logit, bias, received && has_answer, choice);
    if (logits != nullptr && received) logits[expert] = logit;
    if (!chosen) {
      select_slowly<kLean>(router, call, row, received, logit, has_answer, biases, shared);
    } else if (thread.rank < thread.k) {
      write_chosen(thread.rank, column, rule, choice);
    }
  } else {
    if (thread.rank < thread.k) write_rare_column(few.rule.rare, column, -1, 0.0f);
    __syncthreads();
  }
  if (threadIdx.x == 0) arrive(few);
  if (!few.bookkeeps) return;
  if (thread.rank < thread.k) {
    const std::int32_t id = chosen ? choice.ids[thread.rank] : *column.slot;
    write_id(id_words<kTokenTiles>(few, state) + (row * thread.k + thread.rank), id);
  }
  __syncthreads();  // all columns are written
  __shared__ bool is_left;
  if (threadIdx.x == 0) {
    order_accesses();
    is_left = leaves_bookkeeping(&few.state->rows_done, few.num_tokens, atomicAdd(&few.state->rows_done, 1u), 1);
  }
  __syncthreads();
  if (is_left) bookkeep_slowly(slots, shared);
}

// By a block of its own. Its code runs once before there are ids, so that it need not come from memory afterwards.
template <int kTokenTiles>
__device__ __forceinline__ void bookkeep_all(const FewCall& few, const SlotTask& slots) {
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ SlotCounts counts;
  __shared__ bool is_left;
  const BookkeepOutputs& outputs = slots.outputs;
  const int rank = static_cast<int>(threadIdx.x), num_slots = few.num_tokens * few.sizes.k;
  wait_for_previous_kernel();
  const HandoverState state = read_state(handover_of(few));
  fill_slots(rank, num_slots, few.slot_blocks, outputs, counts);
  __syncthreads();
  if (rank == 0) arrive(few);
  std::int32_t id = -1;
  std::uint32_t came_before = 0, amount = 0;
#pragma unroll 1
  for (int pass = 0; pass < 2; ++pass) {
    bool received = true;
    if (pass == 1 && rank < num_slots)
      received = receive_id(id_words<kTokenTiles>(few, state) + rank, few.patience, id);
    const bool all = __syncthreads_and(received ? 1 : 0) != 0;
    if (pass == 1 && rank == 0) {
      amount = all ? kBookkept + 1 : 1;
      if (!all) order_accesses();  // what is filled comes before what another block writes
      came_before = atomicAdd(&few.state->rows_done, amount);
    }
    if (all) bookkeep_slots(rank, id, num_slots, few.sizes.experts, few.slot_blocks, outputs, counts);
  }
  if (rank == 0) is_left = leaves_bookkeeping(&few.state->rows_done, few.num_tokens, came_before, amount);
  __syncthreads();
  if (is_left) bookkeep_slowly(slots, shared);
}

template <Lean kLean, int kChunks, int kWarps, int kTokenTiles>
__global__ void __launch_bounds__(kMaxSelectThreads)
    few_kernel(const __grid_constant__ FewCall few, const __grid_constant__ RouterView router,
               const __grid_constant__ CallView call, const __grid_constant__ SlotTask slots) {
  let_next_kernel_start();
  const bool selects = static_cast<int>(blockIdx.x) >= few.multiplying_blocks;
  if (!selects) multiply<kTokenTiles>(few);
  // The multiplying blocks are to find their code at the start of the kernel, where it comes from memory the sooner.
  // The compiler puts it behind the other where it sees that one of the two runs; so the barrier tells, of one value.
  if (__syncthreads_or(selects ? 1 : 0) != 0) {
    if (static_cast<int>(blockIdx.x) < few.multiplying_blocks + few.num_tokens) {
      select<kLean, kChunks, kWarps, kTokenTiles>(few, router, call, slots);
    } else {
      bookkeep_all<kTokenTiles>(few, slots);
    }
  }
}

using Kernel = void (*)(FewCall, RouterView, CallView, SlotTask);

// A kernel is of so many chunks, and experts of up to so many warps.
template <Lean kLean, int kChunks, int kWarps>
Kernel kernel_of_shape(std::int64_t num_tokens) {
  return num_tokens <= kSideBySideRows ? few_kernel<kLean, kChunks, kWarps, 1> : few_kernel<kLean, kChunks, kWarps, 2>;
}
Kernel kernel_of(const RouterView& router, std::int64_t num_tokens) {
  const auto is_of = [&](Lean lean, int chunks, int warps) {
    return lean_of(router) == lean && router.num_chunks == chunks && router.gate_rows <= warps * kWarpSize;
  };
  if (is_of(Lean::kSigmoid, 16, 9)) return kernel_of_shape<Lean::kSigmoid, 16, 9>(num_tokens);
  if (is_of(Lean::kSigmoid, 28, 12)) return kernel_of_shape<Lean::kSigmoid, 28, 12>(num_tokens);
  if (is_of(Lean::kSigmoidGroups, 28, 8)) return kernel_of_shape<Lean::kSigmoidGroups, 28, 8>(num_tokens);
  if (is_of(Lean::kSqrtSoftplus, 20, 12)) return kernel_of_shape<Lean::kSqrtSoftplus, 20, 12>(num_tokens);
  return nullptr;
}

// How the tiles of a chunk go to blocks: `groups` of them, of `warps` warps that have a tile.
struct TileGroups {
  int groups, warps;
};
TileGroups tile_groups(const RouterView& router) {
  const std::int64_t tiles = router.padded_gate_rows / kTileExperts;
  const std::int64_t most = std::max<std::int64_t>(kMultiplyingBlocks / router.num_chunks, 1);
  const std::int64_t warps = ceil_div(tiles, most);
  return {static_cast<int>(ceil_div(tiles, warps)), static_cast<int>(warps)};
}

FewCall few_call(const RouterView& router, const CallView& call, const Handover& handover, const TileGroups& tiles,
                 const SlotTask& slots) {
  const samebits_router_spec& spec = router.spec;
  FewCall few{};
  few.weights = reinterpret_cast<const Fragment*>(router.weight_fragments);
  few.input = call.input;
  few.words = handover.words;
  few.state = handover.state;
  few.num_valid_rows = call.num_valid_rows;
  few.num_tokens = static_cast<std::int32_t>(call.num_tokens);
  few.input_stride = static_cast<std::int32_t>(call.input_stride);
  few.warps = tiles.warps;
  few.groups = tiles.groups;
  few.group_magic = static_cast<std::int32_t>(ceil_div(1 << 16, tiles.groups));
  few.tiles = router.padded_gate_rows / kTileExperts;
  few.chunks = router.num_chunks;
  few.multiplying_blocks = tiles.groups * router.num_chunks;
  few.blocks = few.multiplying_blocks + few.num_tokens + (slots.wanted ? 1 : 0);
  few.arrivals = static_cast<std::int32_t>(kArrivals) - (few.blocks - 1);
  few.bias = router.selection_bias;
  few.row_class = call.row_class;
  few.sizes = {router.gate_rows, router.top_k, spec.n_group, spec.topk_group};
  few.bias_variants = router.selection_bias == nullptr ? 0 : spec.num_bias_variants;
  few.patience = handover.patience;
  few.ids = call.topk_ids;
  few.weights_out = call.topk_weights;
  few.logits = call.router_logits;
  few.slot_ids = ids_of_slots(call);
  few.ids_stride = static_cast<std::int32_t>(call.ids_stride);
  few.weights_stride = static_cast<std::int32_t>(call.weights_stride);
  few.logits_stride = static_cast<std::int32_t>(call.router_logits_stride);
  few.round_logits = spec.logits_dtype == SAMEBITS_BF16;
  few.rule = column_rule(router, call);
  few.bookkeeps = slots.wanted;
  few.slot_blocks = slots.blocks;
  return few;
}

}  // namespace

bool can_fuse(const RouterView& router, std::int64_t num_tokens) {
  return num_tokens <= kFusedRows && router.num_parts == 1 && router.hidden_size % kChunkWidth == 0 &&
         can_choose_by_block(router) && kernel_of(router, num_tokens) != nullptr;
}

cudaError_t launch_fused(const RouterView& router, const CallView& call, const Handover& handover,
                         const BookkeepOutputs* bookkeeping, cudaStream_t stream) {
  if (call.num_tokens == 0) return cudaSuccess;
  const TileGroups tiles = tile_groups(router);
  const SlotTask slots = slot_task(router, call, bookkeeping);
  const FewCall few = few_call(router, call, handover, tiles, slots);
  // Enough that choose, and that multiply and copy.
  const int threads =
      std::max({select_threads(router.gate_rows), kFewestRowThreads, tiles.warps * kWarpSize + kCopyingThreads});
  const std::size_t bytes = std::max(static_cast<std::size_t>(lean_bytes(router.gate_rows)), slot_bytes(slots.shape));
  return launch_pdl(kernel_of(router, call.num_tokens), dim3(static_cast<unsigned>(few.blocks)),
                    dim3(static_cast<unsigned>(threads)), bytes, stream, few, router, call, slots);
}

}  // namespace samebits::cuda
