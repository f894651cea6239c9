// The bookkeeping within a launch that selects, by blocks of its own, of which each has 32 rows.
//
// The blocks of rows hand their ids over as words that say themselves whether they have come (fused/handover.h); the
// blocks of the bookkeeping look for all of them a bounded number of times. If one gives up, whoever comes last of all
// these blocks does the bookkeeping from the slot ids in memory. So no block depends on another's progress.
#pragma once

#include "kernels/cuda/pdl.h"
#include "kernels/dispatch/slots.cuh"
#include "kernels/fused/words.cuh"

namespace samebits::cuda {

// By the threads of a row's block. slots_are_units: see slot_units. id_of(column) is an id or -1.
template <class IdOf>
__device__ __forceinline__ void hand_over_ids(std::uint32_t* words, int row, int columns, bool slots_are_units,
                                              IdOf id_of) {
  const int words_of_row = slots_are_units ? columns : (columns + 1) / 2;
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < words_of_row; i += static_cast<int>(blockDim.x)) {
    const int low = slots_are_units ? i : 2 * i;
    const std::uint32_t pair = pair_of(id_of(low), slots_are_units || low + 1 >= columns ? -1 : id_of(low + 1));
    write_word_bits(words + (row * words_of_row + i), pair);
  }
}

// The words of this thread, of [shape.rows * shape.words_of_row], into memory. False where one has not come after
// `patience` looks.
template <int kAtOnce>
__device__ __forceinline__ bool receive_ids(const SlotTask& task, const std::uint32_t* words, int patience,
                                            const SlotMemory& memory) {
  const int num_words = task.shape.rows * task.shape.words_of_row, threads = static_cast<int>(blockDim.x);
#pragma unroll 1
  for (int first = static_cast<int>(threadIdx.x); first < num_words; first += kAtOnce * threads) {
    std::uint32_t found[kAtOnce], largest;
#pragma unroll 1
    do {
      if (patience-- <= 0) return false;
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i)
        found[i] = i == 0 || first + i * threads < num_words ? read_word(words + first + i * threads) : 0;
      largest = found[0];
#pragma unroll
      for (int i = 1; i < kAtOnce; ++i) largest = max(largest, found[i]);
    } while (largest == kNoWord);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (i == 0 || first + i * threads < num_words) take_ids(task.shape, memory, first + i * threads, found[i]);
    }
  }
  return true;
}

// Each block of a row adds 1 to rows_done when its columns are written, and each block of the bookkeeping 1, and
// kBookkept if it has all ids. Whoever comes last puts the count back, and does the bookkeeping if one of these gave
// up.
inline constexpr std::uint32_t kBookkept = 1u << 16;
__device__ __forceinline__ bool leaves_bookkeeping(std::uint32_t* rows_done, int num_rows, int num_blocks,
                                                   std::uint32_t came_before, std::uint32_t amount) {
  const std::uint32_t came = came_before + amount;
  if ((came & (kBookkept - 1)) != static_cast<std::uint32_t>(num_rows + num_blocks)) return false;
  *rows_done = 0;
  order_accesses();
  return came / kBookkept != static_cast<std::uint32_t>(num_blocks);
}

// By all threads of a row's block, after hand_over_ids and when its slot ids are written. Whether the bookkeeping is
// left to this block.
__device__ __forceinline__ bool finish_row(std::uint32_t* rows_done, int num_rows, int num_blocks) {
  __shared__ bool is_left;
  __syncthreads();
  if (threadIdx.x == 0) {
    order_accesses();
    is_left = leaves_bookkeeping(rows_done, num_rows, num_blocks, atomicAdd(rows_done, 1u), 1);
  }
  __syncthreads();
  return is_left;
}

__device__ __forceinline__ void fill_words(std::int32_t* words, int count, std::int32_t value) {
  const int rank = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int pieces = (reinterpret_cast<std::uintptr_t>(words) & 15u) == 0 ? count / 4 : 0;
#pragma unroll 1
  for (int i = rank; i < pieces; i += threads) reinterpret_cast<int4*>(words)[i] = int4{value, value, value, value};
#pragma unroll 1
  for (int i = 4 * pieces + rank; i < count; i += threads) words[i] = value;
}

// What no slot and no expert takes, by all blocks of the bookkeeping together.
__device__ __forceinline__ void fill_outputs(const SlotTask& task, int block) {
  const int num_slots = task.shape.rows * task.shape.columns;
#pragma unroll 1
  for (int array = 0; array < 3; ++array) {
    std::int32_t* const words = array == 0   ? task.outputs.slot_of_position
                                : array == 1 ? task.outputs.expert_ids
                                             : task.outputs.sorted_token_ids;
    const int count = array == 0 ? num_slots : array == 1 ? task.blocks.room : task.blocks.room * task.blocks.size;
    const int share = (count / task.num_blocks + 4) & ~3, first = min(block * share, count);
    if (words != nullptr) fill_words(words + first, min(share, count - first), array == 2 ? num_slots : -1);
  }
}

// Tells the other blocks of the bookkeeping that this one has filled its share, and waits for theirs: after all that a
// block fills comes all that another one writes there. False: one has not come.
__device__ __forceinline__ bool agree_on_fill(const SlotTask& task, std::uint32_t* words, int block, int patience) {
  if (task.num_blocks == 1) return true;
  const int rank = static_cast<int>(threadIdx.x);
  words += task.shape.rows * task.shape.words_of_row;
  __syncthreads();
  if (rank == 0) {
    order_accesses();
    write_word_bits(words + block, 0);
  }
  if (rank >= task.num_blocks) return true;
#pragma unroll 1
  while (read_word(words + rank) == kNoWord) {
    if (patience-- <= 0) return false;
  }
  order_accesses();
  return true;
}

// The outputs of the rows of a block of the bookkeeping, but what is filled; the first block writes what is of experts.
// After the ids were taken and a barrier; nothing is written unless `writes`.
template <int kRowWords>
__device__ __forceinline__ void bookkeep_rows(const SlotTask& task, const SlotMemory& memory, int block, bool writes) {
  __shared__ std::uint32_t num_sorted;
  const SlotShape& shape = task.shape;
  const BookkeepOutputs& outputs = task.outputs;
  const int words = row_words(shape);
  const bool writes_experts = writes && block == 0;
  place_experts(
      shape, task.blocks,
      [&](int e) {
        ExpertSlots slots{};
#pragma unroll
        for (int w = 0; w < kRowWords; ++w) {
          const std::uint32_t count = w < words ? __popc(memory.bits[w * shape.experts + e]) : 0;
          slots.all += count;
          if (w < block) slots.before += count;
          if (w == block) slots.own = count;
        }
        return slots;
      },
      [&](int e, const ExpertSlots& slots, std::uint32_t num_blocks, const EarlierExperts& earlier) {
        set_places(task.blocks, memory, e, slots, earlier);
        if (e == shape.experts - 1) num_sorted = earlier.own + slots.own;
        if (!writes_experts) return;
        if (outputs.tokens_per_expert != nullptr) outputs.tokens_per_expert[e] = static_cast<std::int32_t>(slots.all);
        if (outputs.expert_offsets != nullptr) outputs.expert_offsets[e] = static_cast<std::int32_t>(earlier.all);
        if (outputs.expert_ids != nullptr) {
#pragma unroll 1
          for (std::uint32_t b = 0; b < num_blocks; ++b) outputs.expert_ids[earlier.blocks + b] = e;
        }
        if (e != shape.experts - 1) return;
        if (outputs.expert_offsets != nullptr)
          outputs.expert_offsets[e + 1] = static_cast<std::int32_t>(earlier.all + slots.all);
        if (outputs.num_tokens_post_padded != nullptr && task.blocks.size > 0)
          *outputs.num_tokens_post_padded = static_cast<std::int32_t>(earlier.blocks + num_blocks) * task.blocks.size;
      });
  __syncthreads();
  const int first_row = block * kRowsOfWord;
  place_slots<true>(shape, memory, first_row, min(first_row + kRowsOfWord, shape.rows), num_sorted, 0, writes, outputs);
}

// By a block of the bookkeeping; or by one to which finish_row has left it, for all of them. begin() waits for the
// previous kernel and returns the words of the launch. Shared memory of slot_bytes. The code runs once before, with ids
// that are made up and without a trace, so that it need not come from memory afterwards. kRowWords: row_words at most.
template <int kRowWords, class Begin>
__device__ __forceinline__ void bookkeep_in_launch(const SlotTask& task, int block, std::uint32_t* rows_done,
                                                   int patience, bool is_left, unsigned char* shared, Begin begin) {
  constexpr int kMadeUp = 0, kFromWords = 1, kFromMemory = 2;
  __shared__ bool gave_up;
  const SlotMemory memory = slot_memory(task.shape, shared);
#pragma unroll 1
  for (int pass = is_left ? kFromMemory : kMadeUp;; ++pass) {
    clear_slots(task.shape, memory);
    std::uint32_t* words = nullptr;
    bool received = true;
    if (pass == kFromWords) {
      words = begin();
      fill_outputs(task, block);
      received = agree_on_fill(task, words, block, patience);
    }
    __syncthreads();
    if (pass == kMadeUp) make_up_ids(task.shape, memory);
    if (pass == kFromWords && received) received = receive_ids<(kRowWords > 1 ? 4 : 1)>(task, words, patience, memory);
    if (pass == kFromMemory) load_ids<1>(task.shape, memory, task.slot_ids);
    const bool all = __syncthreads_and(received ? 1 : 0) != 0, counts = pass == kFromWords && threadIdx.x == 0;
    if (counts && !all) order_accesses();  // what is filled comes before what another block writes
    const std::uint32_t amount = all ? kBookkept + 1 : 1, came_before = add_if(counts, rows_done, amount);
    int part = pass == kFromMemory ? 0 : block;
    const int last = !all ? part : pass == kFromMemory ? task.num_blocks : block + 1;
#pragma unroll 1
    for (; part < last; ++part) {
      bookkeep_rows<kRowWords>(task, memory, part, pass != kMadeUp);
      if (pass == kFromMemory) __syncthreads();
    }
    if (pass == kFromMemory) break;
    if (counts) gave_up = leaves_bookkeeping(rows_done, task.num_rows, task.num_blocks, came_before, amount);
    __syncthreads();
    if (pass == kFromWords && !gave_up) break;
  }
}

// The ids of a launch that only selects: words of their own in the header of the workspace, two sides in turn.
__device__ __forceinline__ std::uint32_t* slot_words_of(const Handover& handover, std::uint32_t arrivals) {
  return handover.words + arrivals / kArrivals % 2 * kSlotWordsOfSide;
}

// By all threads of a row's block that has written its slot ids, visibly to the block; arrivals as the first threads,
// as many as columns, have read them. Whether the bookkeeping is left to this block.
template <class IdOf>
__device__ __forceinline__ bool end_row(const Handover& handover, std::uint32_t arrivals, int row, int num_rows,
                                        int num_blocks, int columns, IdOf id_of) {
  hand_over_ids(slot_words_of(handover, arrivals), row, columns, false, id_of);
  const bool is_left = finish_row(&handover.state->rows_done, num_rows, num_blocks);
  if (threadIdx.x == 0) add_arrival(handover);
  return is_left;
}

// By the last blocks of such a launch; or by one to which end_row has left it.
__device__ __forceinline__ void bookkeep_selected(const SlotTask& task, int block, const Handover& handover,
                                                  bool is_left, unsigned char* shared) {
  const auto begin = [&] {
    wait_for_previous_kernel();
    const HandoverState state = read_state(handover);
    const int side = side_of(state), used = block > 0 ? 0 : static_cast<int>(side == 0 ? state.used[1] : state.used[0]);
    std::uint32_t* other = handover.words + (1 - side) * kSlotWordsOfSide;
#pragma unroll 1
    for (int i = static_cast<int>(threadIdx.x); i < used; i += static_cast<int>(blockDim.x)) other[i] = kNoWord;
    __syncthreads();
    if (threadIdx.x == 0) {
      const int num_words = task.shape.rows * task.shape.words_of_row + task.num_blocks;
      if (block == 0) handover.state->used[side] = static_cast<std::uint32_t>(num_words);
      add_arrival(handover);
    }
    return slot_words_of(handover, state.arrivals);
  };
  bookkeep_in_launch<kMostRowWords>(task, block, &handover.state->rows_done, handover.patience, is_left, shared, begin);
}

}  // namespace samebits::cuda
