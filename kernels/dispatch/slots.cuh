// Slots by expert in shared memory: those of some rows by each block.
//
// Each expert has a bit for each row, in words of 32 rows: so the slots of an expert in rows before a row are a count
// of bits, in whatever order the bits were set. Prefix sums over experts then give every slot its position. Slots are
// brought in order in shared memory, so that neighbours are written by neighbours.
#pragma once

#include "kernels/dispatch/slots.h"
#include "kernels/select/threads.cuh"

namespace samebits::cuda {

struct SlotMemory {
  std::uint32_t* bits;                   // [row words][G], 0 at first
  std::uint32_t* ids;                    // [words], of a pair: low and high half, one more than the id; 0: none
  std::uint32_t* sorted;                 // [T * K], the block's slots by expert, and in the high half the expert
  std::uint32_t* first;                  // [G], in sorted
  std::int32_t *to_position, *to_place;  // [G], from the place in sorted
  std::uint16_t* earlier;                // [row words][G], slots in the rows before those of the word
};
// base: 4-byte aligned.
__device__ __forceinline__ SlotMemory slot_memory(const SlotShape& shape, unsigned char* base) {
  const SlotLayout layout = slot_layout(shape);
  auto* words = reinterpret_cast<std::uint32_t*>(base);
  return {words,
          words + layout.ids,
          words + layout.sorted,
          words + layout.first,
          reinterpret_cast<std::int32_t*>(words + layout.to_position),
          reinterpret_cast<std::int32_t*>(words + layout.to_place),
          reinterpret_cast<std::uint16_t*>(words + layout.earlier)};
}

// Before take_ids and a barrier.
__device__ __forceinline__ void clear_slots(const SlotShape& shape, const SlotMemory& memory) {
  const int count = row_words(shape) * shape.experts + shape.rows * shape.words_of_row;  // bits and ids
#pragma unroll 1
  for (int i = static_cast<int>(threadIdx.x); i < count; i += static_cast<int>(blockDim.x)) memory.bits[i] = 0;
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
  const int row = row_of_word(shape, word);
  std::uint32_t* bits = memory.bits + row / kRowsOfWord * shape.experts;
  const std::uint32_t bit = 1u << row % kRowsOfWord;
  memory.ids[word] = pair;
  if (id_of_pair(pair, 0) >= 0) atomicOr(bits + id_of_pair(pair, 0), bit);
  if (id_of_pair(pair, 1) >= 0) atomicOr(bits + id_of_pair(pair, 1), bit);
}

// The same from slot ids in memory, of all words of the rows.
template <int kAtOnce>
__device__ __forceinline__ void load_ids(const SlotShape& shape, const SlotMemory& memory,
                                         const std::int32_t* slot_ids) {
  const int num_words = shape.rows * shape.words_of_row, threads = static_cast<int>(blockDim.x);
#pragma unroll 1
  for (int first = static_cast<int>(threadIdx.x); first < num_words; first += kAtOnce * threads) {
    std::uint32_t pairs[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      const int word = first + i * threads, row = row_of_word(shape, word);
      const int column = 2 * (word - row * shape.words_of_row);
      const std::int32_t* ids = slot_ids + row * shape.columns + column;
      const bool has_low = word < num_words, has_high = has_low && column + 1 < shape.columns;
      pairs[i] = pair_of(has_low ? __ldcg(ids) : -1, has_high ? __ldcg(ids + 1) : -1);
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i * threads < num_words) take_ids(shape, memory, first + i * threads, pairs[i]);
    }
  }
}

__device__ __forceinline__ std::uint32_t blocks_of_slots(const SlotBlocks& blocks, std::uint32_t count) {
  const std::uint32_t rounded = count + blocks.round, quotient = __umulhi(rounded, blocks.inverse);  // or one less
  return quotient + (rounded - quotient * blocks.divisor >= blocks.divisor ? 1 : 0);
}

// Slots of an expert: in the block's rows, in all rows, in the rows before the block's.
struct ExpertSlots {
  std::uint32_t own, all, before;
};
// The same of all experts before one: slots in the block's rows and in all rows, and blocks of the padded form.
struct EarlierExperts {
  std::uint32_t own, all, blocks;
};

// Calls place(expert, its slots, its blocks, experts before it), once for each expert. slots_of(expert) is ExpertSlots.
// After the ids were taken and a barrier; a barrier follows.
template <class SlotsOf, class Place>
__device__ __forceinline__ void place_experts(const SlotShape& shape, const SlotBlocks& blocks, SlotsOf slots_of,
                                              Place place) {
  constexpr int kOwnBits = 14;  // of the second sum; the first is of all slots
  __shared__ uint2 of_warps[kWarpSize];
  const int rank = static_cast<int>(threadIdx.x), lane = rank % kWarpSize, warp = rank / kWarpSize;
  int each = 1;
#pragma unroll 1
  while (each * static_cast<int>(blockDim.x) < shape.experts) ++each;
  const int first = rank * each, last = min(first + each, shape.experts);
  uint2 mine{0, 0};
  ExpertSlots slots{};
  std::uint32_t num_blocks = 0;
#pragma unroll 1
  for (int e = first; e < last; ++e) {
    slots = slots_of(e);
    num_blocks = blocks_of_slots(blocks, slots.all);
    mine.x += slots.all, mine.y += num_blocks << kOwnBits | slots.own;
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
      slots = slots_of(e);
      num_blocks = blocks_of_slots(blocks, slots.all);
    }
    place(e, slots, num_blocks, EarlierExperts{before.y & ((1u << kOwnBits) - 1u), before.x, before.y >> kOwnBits});
    before.x += slots.all, before.y += num_blocks << kOwnBits | slots.own;
  }
}

// Where the block's slots of an expert go.
__device__ __forceinline__ void set_places(const SlotBlocks& blocks, const SlotMemory& memory, int expert,
                                           const ExpertSlots& slots, const EarlierExperts& earlier) {
  const auto from_own = static_cast<std::int32_t>(slots.before - earlier.own);
  memory.first[expert] = earlier.own;
  memory.to_position[expert] = static_cast<std::int32_t>(earlier.all) + from_own;
  memory.to_place[expert] = static_cast<std::int32_t>(earlier.blocks) * blocks.size + from_own;
}

// Some ids, for a run of the code before there are any; as always, no expert twice in a row.
__device__ __forceinline__ void make_up_ids(const SlotShape& shape, const SlotMemory& memory) {
  const int word = static_cast<int>(threadIdx.x);
  if (word >= shape.rows * shape.words_of_row) return;
  const int row = row_of_word(shape, word), column = word - row * shape.words_of_row;
  take_ids(shape, memory, word, pair_of(min(row, shape.experts - shape.words_of_row) + column, -1));
}

// Both permutations and the slots of the padded form, of the rows [first_row, last_row), of which own_slots slots have
// an expert; after set_places and a barrier. Slots are numbered from first_slot on. Nothing in memory is written unless
// `writes`. kOneWord: the rows are of one word of bits.
template <bool kOneWord>
__device__ __forceinline__ void place_slots(const SlotShape& shape, const SlotMemory& memory, int first_row,
                                            int last_row, const std::uint32_t& own_slots, int first_slot, bool writes,
                                            const BookkeepOutputs& outputs) {
  const int rank = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
#pragma unroll 1
  for (int word = first_row * shape.words_of_row + rank; word < last_row * shape.words_of_row; word += threads) {
    const std::uint32_t pair = memory.ids[word];
    const int row = row_of_word(shape, word), column = 2 * (word - row * shape.words_of_row);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int slot = row * shape.columns + column + half;
      const std::int32_t id = id_of_pair(pair, half);
      std::int32_t position = -1;
      if (id >= 0) {
#ifdef SAMEBITS_MUTANT_ATOMICS_FOR_SLOT_ORDER
        const std::uint32_t place = atomicAdd(memory.first + id, 1u);
#else
        const int at = row / kRowsOfWord * shape.experts + id;
        std::uint32_t place = memory.first[id] + __popc(memory.bits[at] & ((1u << row % kRowsOfWord) - 1u));
        if (!kOneWord) place += memory.earlier[at];
#endif
        memory.sorted[place] = static_cast<std::uint32_t>(slot) | static_cast<std::uint32_t>(id) << 16;
        position = static_cast<std::int32_t>(place) + memory.to_position[id];
      }
      if (writes && outputs.position_of_slot != nullptr && column + half < shape.columns)
        outputs.position_of_slot[first_slot + slot] = position;
    }
  }
  __syncthreads();
  const int num_sorted = static_cast<int>(own_slots);
#pragma unroll 1
  for (int i = rank; i < num_sorted; i += threads) {
    const std::uint32_t both = memory.sorted[i];
    const int expert = static_cast<int>(both >> 16), slot = first_slot + static_cast<int>(both & 0xffffu);
    if (writes && outputs.slot_of_position != nullptr) outputs.slot_of_position[i + memory.to_position[expert]] = slot;
    if (writes && outputs.sorted_token_ids != nullptr) outputs.sorted_token_ids[i + memory.to_place[expert]] = slot;
  }
}

}  // namespace samebits::cuda
