// The bookkeeping of up to kMostSlots slots by a block that has nothing else to do: what dispatch/slots.cuh computes,
// with a thread a slot and a thread an expert, and half the instructions, of which each is met once.
#pragma once

#include "kernels/dispatch/slots.cuh"
#include "kernels/fused/words.cuh"

namespace samebits::cuda {

inline constexpr int kSlotWarps = 4;  // of slots; of each a byte of a word
inline constexpr int kMostSlots = kSlotWarps * kWarpSize;
inline constexpr unsigned kSumOfBytes = 0x01010101u;  // __dp4a with it adds the bytes of a word

// Each block of a row adds 1 to rows_done when its columns are written, and the block of the bookkeeping 1, and
// kBookkept if it has all ids. Whoever comes last puts the count back, and does the bookkeeping if that one gave up.
inline constexpr std::uint32_t kBookkept = 1u << 16;
__device__ __forceinline__ bool leaves_bookkeeping(std::uint32_t* rows_done, int num_rows, std::uint32_t came_before,
                                                   std::uint32_t amount) {
  const std::uint32_t came = came_before + amount;
  if ((came & (kBookkept - 1)) != static_cast<std::uint32_t>(num_rows + 1)) return false;
  *rows_done = 0;
  order_accesses();
  return came / kBookkept != 1;
}

// In shared memory; of_warps is 0 at first.
struct SlotCounts {
  std::uint32_t of_warps[kMaxSelectThreads];  // by expert: in byte w the slots of warp w that have it
  std::uint32_t before[kMaxSelectThreads];    // by expert: slots of the experts before it, and in the high half blocks
  std::uint32_t of_expert_warps[kMaxSelectThreads / kWarpSize];
};

// What no slot and no expert takes; a barrier lies between this and bookkeep_slots.
__device__ __forceinline__ void fill_slots(int rank, int num_slots, const SlotBlocks& blocks,
                                           const BookkeepOutputs& outputs, SlotCounts& counts) {
  counts.of_warps[rank] = 0;
  if (outputs.slot_of_position != nullptr && rank < num_slots) outputs.slot_of_position[rank] = -1;
  // Up to 2^31 - 1 places, so that a step beyond the last is no int.
  const unsigned first = static_cast<unsigned>(rank), threads = blockDim.x, room = static_cast<unsigned>(blocks.room);
  const unsigned places = room * static_cast<unsigned>(blocks.size);
#pragma unroll 1
  for (unsigned i = first; outputs.expert_ids != nullptr && i < room; i += threads) outputs.expert_ids[i] = -1;
#pragma unroll 1
  for (unsigned i = first; outputs.sorted_token_ids != nullptr && i < places; i += threads)
    outputs.sorted_token_ids[i] = num_slots;
}

// From the id of this thread's slot, -1: none; outputs that are null are not written.
__device__ __forceinline__ void bookkeep_slots(int rank, std::int32_t id, int num_slots, int experts,
                                               const SlotBlocks& blocks, const BookkeepOutputs& outputs,
                                               SlotCounts& counts) {
  const int lane = rank % kWarpSize, warp = rank / kWarpSize;
  int earlier = 0;  // slots that have the same id
  if (warp < kSlotWarps) {
    const unsigned same = __match_any_sync(kAllLanes, id);
    earlier = __popc(same & ((1u << lane) - 1u));
    if (id >= 0 && earlier == 0) {
      reinterpret_cast<unsigned char*>(counts.of_warps + id)[warp] = static_cast<unsigned char>(__popc(same));
    }
  }
  __syncthreads();
  const bool is_expert = rank < experts;
  const unsigned count = is_expert ? __dp4a(counts.of_warps[rank], kSumOfBytes, 0u) : 0u;
  const unsigned num_blocks = blocks_of_slots(blocks, count);
  const unsigned mine = num_blocks << 16 | count;
  unsigned sum = mine;
#pragma unroll
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const unsigned other = __shfl_up_sync(kAllLanes, sum, distance);
    if (lane >= distance) sum += other;
  }
  if (lane == kWarpSize - 1) counts.of_expert_warps[warp] = sum;
  __syncthreads();
  const unsigned of_warp = lane < warp ? counts.of_expert_warps[lane] : 0u;
  const unsigned before = __reduce_add_sync(kAllLanes, of_warp) + sum - mine;
  if (is_expert) {
    counts.before[rank] = before;
    if (outputs.tokens_per_expert != nullptr) outputs.tokens_per_expert[rank] = static_cast<std::int32_t>(count);
    if (outputs.expert_offsets != nullptr) outputs.expert_offsets[rank] = static_cast<std::int32_t>(before & 0xffffu);
    if (outputs.expert_ids != nullptr) {
      for (unsigned b = 0; b < num_blocks; ++b) outputs.expert_ids[(before >> 16) + b] = rank;
    }
    if (rank == experts - 1) {
      const unsigned total = before + mine;
      if (outputs.expert_offsets != nullptr) {
        outputs.expert_offsets[experts] = static_cast<std::int32_t>(total & 0xffffu);
      }
      if (outputs.num_tokens_post_padded != nullptr && blocks.size > 0) {
        *outputs.num_tokens_post_padded = static_cast<std::int32_t>(total >> 16) * blocks.size;
      }
    }
  }
  __syncthreads();
  if (rank >= num_slots) return;
  std::int32_t position = -1;
  if (id >= 0) {
    const unsigned offsets = counts.before[id], earlier_warps = counts.of_warps[id] & ((1u << 8 * warp) - 1u);
    earlier = static_cast<int>(__dp4a(earlier_warps, kSumOfBytes, static_cast<unsigned>(earlier)));
    position = static_cast<std::int32_t>(offsets & 0xffffu) + earlier;
    if (outputs.slot_of_position != nullptr) outputs.slot_of_position[position] = rank;
    if (outputs.sorted_token_ids != nullptr)
      outputs.sorted_token_ids[static_cast<int>(offsets >> 16) * blocks.size + earlier] = rank;
  }
  if (outputs.position_of_slot != nullptr) outputs.position_of_slot[rank] = position;
}

}  // namespace samebits::cuda
