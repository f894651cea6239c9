// Slots by expert in shared memory, of up to 32 rows by one block, from ids in memory.
//
// Each expert has a word with a bit for each row: so the slots of an expert in rows before a row are a count of bits,
// in whatever order the bits were set. Prefix sums over experts then give every slot its position. Slots are
// brought in order in shared memory, so that neighbours are written by neighbours.
#pragma once

#include "kernels/dispatch/slots.h"
#include "kernels/select/threads.cuh"

namespace samebits::cuda {

struct SlotMemory {
  std::uint32_t* bits;     // [G], 0 at first
  std::uint32_t* ids;      // [words], of a pair: low and high half, one more than the id; 0: none
  std::uint32_t* sorted;   // [T * K], slots by expert, and in the high half the expert
  std::uint32_t* first;    // [G], in sorted
  std::int32_t* to_place;  // [G], from the place in sorted
};
// base: 4-byte aligned.
__device__ __forceinline__ SlotMemory slot_memory(const SlotShape& shape, unsigned char* base) {
  const SlotLayout layout = slot_layout(shape);
  auto* words = reinterpret_cast<std::uint32_t*>(base);
  return {words, words + layout.ids, words + layout.sorted, words + layout.first,
          reinterpret_cast<std::int32_t*>(words + layout.to_place)};
}

// In what follows `threads` of the block's threads, no less than warps of all experts and the first ones, do it; others
// may have ended.

// Before take_ids and a barrier.
__device__ __forceinline__ void clear_slots(const SlotShape& shape, const SlotMemory& memory, int threads) {
  const int count = shape.experts + shape.rows * shape.words_of_row;  // bits and ids
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < count; i += threads) memory.bits[i] = 0;
}

__device__ __forceinline__ int row_of_word(const SlotShape& shape, int word) {
  return static_cast<int>(__umulhi(2u * static_cast<unsigned>(word), shape.row_magic));
}

// A pair of ids as they lie in memory.ids; ids or -1.
__device__ __forceinline__ std::uint32_t pair_of(std::int32_t low, std::int32_t high) {
  return static_cast<std::uint32_t>(low + 1) | static_cast<std::uint32_t>(high + 1) << 16;
}
__device__ __forceinline__ std::int32_t id_of_pair(std::uint32_t pair, int half) {
  return static_cast<std::int32_t>(pair >> 16 * half & 0xffffu) - 1;
}

__device__ __forceinline__ void take_ids(const SlotShape& shape, const SlotMemory& memory, int word,
                                         std::uint32_t pair) {
  const std::uint32_t bit = 1u << row_of_word(shape, word);
  memory.ids[word] = pair;
  if (id_of_pair(pair, 0) >= 0) atomicOr(memory.bits + id_of_pair(pair, 0), bit);
  if (id_of_pair(pair, 1) >= 0) atomicOr(memory.bits + id_of_pair(pair, 1), bit);
}

// The same from slot ids in memory, of all words of the rows.
__device__ __forceinline__ void load_ids(const SlotShape& shape, const SlotMemory& memory, const std::int32_t* slot_ids,
                                         int threads) {
  const int num_words = shape.rows * shape.words_of_row;
#pragma unroll 1
  for (int word = static_cast<int>(threadIdx.x); word < num_words; word += threads) {
    const int row = row_of_word(shape, word), column = 2 * (word - row * shape.words_of_row);
    const std::int32_t* ids = slot_ids + row * shape.columns + column;
    take_ids(shape, memory, word, pair_of(__ldcg(ids), column + 1 < shape.columns ? __ldcg(ids + 1) : -1));
  }
}

__device__ __forceinline__ std::uint32_t blocks_of_slots(const SlotBlocks& blocks, std::uint32_t count) {
  const std::uint32_t rounded = count + blocks.round, quotient = __umulhi(rounded, blocks.inverse);  // or one less
  return quotient + (rounded - quotient * blocks.divisor >= blocks.divisor ? 1 : 0);
}

// Of all experts before one: slots, and blocks of the padded form.
struct EarlierExperts {
  std::uint32_t slots, blocks;
};

// Calls place(expert, its slots, its blocks, experts before it), once for each expert. After the ids were taken and a
// barrier; a barrier follows.
template <class Place>
__device__ __forceinline__ void place_experts(const SlotShape& shape, const SlotBlocks& blocks,
                                              const SlotMemory& memory, int threads, Place place) {
  __shared__ uint2 of_warps[kWarpSize];
  const int rank = static_cast<int>(threadIdx.x), lane = rank % kWarpSize, warp = rank / kWarpSize;
  int each = 1;
#pragma unroll 1
  while (each * threads < shape.experts) ++each;
  const int first = rank * each, last = min(first + each, shape.experts);
  uint2 mine{0, 0};
  std::uint32_t slots = 0, num_blocks = 0;
#pragma unroll 1
  for (int e = first; e < last; ++e) {
    slots = __popc(memory.bits[e]);
    num_blocks = blocks_of_slots(blocks, slots);
    mine.x += slots, mine.y += num_blocks;
  }
  uint2 sum = mine;
#pragma unroll
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const std::uint32_t x = __shfl_up_sync(kAllLanes, sum.x, distance), y = __shfl_up_sync(kAllLanes, sum.y, distance);
    if (lane >= distance) sum.x += x, sum.y += y;
  }
  if (lane == kWarpSize - 1) of_warps[warp] = sum;
  __syncthreads();
  const uint2 of_warp = lane < warp ? of_warps[lane] : uint2{0, 0};
  uint2 before{__reduce_add_sync(kAllLanes, of_warp.x) + sum.x - mine.x,
               __reduce_add_sync(kAllLanes, of_warp.y) + sum.y - mine.y};
#pragma unroll 1
  for (int e = first; e < last; ++e) {
    if (each > 1) {
      slots = __popc(memory.bits[e]);
      num_blocks = blocks_of_slots(blocks, slots);
    }
    place(e, slots, num_blocks, EarlierExperts{before.x, before.y});
    before.x += slots, before.y += num_blocks;
  }
}

// Both permutations and the slots of the padded form, of which num_sorted have an expert; a barrier comes before.
__device__ __forceinline__ void place_slots(const SlotShape& shape, const SlotMemory& memory,
                                            const std::uint32_t& num_sorted, const BookkeepOutputs& outputs,
                                            int threads) {
  const int rank = static_cast<int>(threadIdx.x);
#pragma unroll 1
  for (int word = rank; word < shape.rows * shape.words_of_row; word += threads) {
    const std::uint32_t pair = memory.ids[word];
    const int row = row_of_word(shape, word), column = 2 * (word - row * shape.words_of_row);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int slot = row * shape.columns + column + half;
      const std::int32_t id = id_of_pair(pair, half);
      std::int32_t position = -1;
      if (id >= 0) {
        position = static_cast<std::int32_t>(memory.first[id] + __popc(memory.bits[id] & ((1u << row) - 1u)));
        memory.sorted[position] = static_cast<std::uint32_t>(slot) | static_cast<std::uint32_t>(id) << 16;
      }
      if (outputs.position_of_slot != nullptr && column + half < shape.columns)
        outputs.position_of_slot[slot] = position;
    }
  }
  __syncthreads();
#pragma unroll 1
  for (int i = rank; i < static_cast<int>(num_sorted); i += threads) {
    const std::uint32_t both = memory.sorted[i];
    const int expert = static_cast<int>(both >> 16), slot = static_cast<int>(both & 0xffffu);
    if (outputs.slot_of_position != nullptr) outputs.slot_of_position[i] = slot;
    if (outputs.sorted_token_ids != nullptr) outputs.sorted_token_ids[i + memory.to_place[expert]] = slot;
  }
}

// All of it but what no slot and no expert takes, from the slot ids in memory. Shared memory of slot_bytes.
__device__ __forceinline__ void bookkeep_from_memory(const SlotTask& task, int threads, unsigned char* shared) {
  __shared__ std::uint32_t num_sorted;
  const SlotShape& shape = task.shape;
  const BookkeepOutputs& outputs = task.outputs;
  const SlotMemory memory = slot_memory(shape, shared);
  clear_slots(shape, memory, threads);
  __syncthreads();
  load_ids(shape, memory, task.slot_ids, threads);
  __syncthreads();
  const auto place = [&](int e, std::uint32_t slots, std::uint32_t num_blocks, const EarlierExperts& earlier) {
    const auto before = static_cast<std::int32_t>(earlier.slots), count = static_cast<std::int32_t>(slots);
    const auto first_block = static_cast<std::int32_t>(earlier.blocks);
    const std::int32_t end_block = first_block + static_cast<std::int32_t>(num_blocks);
    memory.first[e] = earlier.slots;
    memory.to_place[e] = first_block * task.blocks.size - before;
    if (outputs.tokens_per_expert != nullptr) outputs.tokens_per_expert[e] = count;
    if (outputs.expert_offsets != nullptr) outputs.expert_offsets[e] = before;
    if (outputs.expert_ids != nullptr) {
#pragma unroll 1
      for (std::int32_t b = first_block; b < end_block; ++b) outputs.expert_ids[b] = e;
    }
    if (e != shape.experts - 1) return;
    num_sorted = earlier.slots + slots;
    if (outputs.expert_offsets != nullptr) outputs.expert_offsets[e + 1] = before + count;
    if (outputs.num_tokens_post_padded != nullptr && task.blocks.size > 0)
      *outputs.num_tokens_post_padded = end_block * task.blocks.size;
  };
  place_experts(shape, task.blocks, memory, threads, place);
  __syncthreads();
  place_slots(shape, memory, num_sorted, outputs, threads);
}

}  // namespace samebits::cuda
