// The bookkeeping of few slots, by one block in shared memory: what dispatch/bookkeep.cu computes of any number.
#pragma once

#include "kernels/fused/bookkeeping.h"
#include "kernels/fused/handover.h"
#include "kernels/select/threads.cuh"

namespace samebits::cuda {

inline constexpr int kFewSlots = 256;

// Shared memory of the block.
struct FewSlotsMemory {
  std::int32_t* ids;        // [kFewSlots], 16-byte aligned
  std::uint64_t* offsets;   // [G + 1], of slots in the low half, of places in the padded blocks in the high one
  std::uint64_t* of_warps;  // [kWarpSize]
};
SAMEBITS_HOST_DEVICE inline std::size_t few_slots_bytes(int gate_rows) {
  return kFewSlots * sizeof(std::int32_t) +
         (static_cast<std::size_t>(gate_rows) + 1 + kWarpSize) * sizeof(std::uint64_t);
}
// base: 16-byte aligned.
__device__ inline FewSlotsMemory few_slots_memory(int gate_rows, unsigned char* base) {
  auto* offsets = reinterpret_cast<std::uint64_t*>(base + kFewSlots * sizeof(std::int32_t));
  return {reinterpret_cast<std::int32_t*>(base), offsets, offsets + gate_rows + 1};
}

// values[0 .. n] becomes its exclusive prefix sums, values[n] their total. By the whole block, which sees it
// afterwards.
__device__ inline void exclusive_sums(Block block, std::uint64_t* values, int n, std::uint64_t* of_warps) {
  const int lane = Warp().rank();
  std::uint64_t before_pass = 0;
  for (int first = 0; first <= n; first += block.size) {
    const int i = first + block.rank();
    const std::uint64_t mine = i < n ? values[i] : 0;
    std::uint64_t sum = mine;
    for (int distance = 1; distance < kWarpSize; distance *= 2) {
      const std::uint64_t other = __shfl_up_sync(kAllLanes, sum, distance);
      if (lane >= distance) sum += other;
    }
    if (lane == kWarpSize - 1) of_warps[block.warp()] = sum;
    block.sync();
    std::uint64_t before = before_pass;
    for (int w = 0; w < block.num_warps(); ++w) {
      if (w < block.warp()) before += of_warps[w];
      before_pass += of_warps[w];
    }
    if (i <= n) values[i] = before + sum - mine;
    block.sync();
  }
}

// From slot_ids [num_slots], ids or -1, num_slots up to kFewSlots; outputs that are null are not written.
__device__ inline void bookkeep_few(Block block, const std::int32_t* slot_ids, int num_slots, int gate_rows,
                                    const BookkeepOutputs& outputs, const FewSlotsMemory& memory) {
  const std::int64_t block_size = outputs.block_size;
  for (int e = block.rank(); e < gate_rows; e += block.size) memory.offsets[e] = 0;
  block.sync();
  for (int i = block.rank(); i < num_slots; i += block.size) {
    const std::int32_t id = __ldcg(slot_ids + i);
    memory.ids[i] = id;
    if (id >= 0) atomicAdd(reinterpret_cast<unsigned*>(memory.offsets + id), 1u);  // the low half
  }
  block.sync();
  for (int e = block.rank(); e < gate_rows; e += block.size) {
    const auto count = static_cast<std::int32_t>(memory.offsets[e]);
    if (outputs.tokens_per_expert != nullptr) outputs.tokens_per_expert[e] = count;
    if (block_size > 0) memory.offsets[e] |= static_cast<std::uint64_t>(round_up(count, block_size)) << 32;
  }
  block.sync();
  exclusive_sums(block, memory.offsets, gate_rows, memory.of_warps);
  const auto offset_of = [&](int e) { return static_cast<std::int32_t>(memory.offsets[e]); };
  const auto place_of = [&](int e) { return static_cast<std::int32_t>(memory.offsets[e] >> 32); };

  if (outputs.expert_offsets != nullptr) {
    for (int e = block.rank(); e <= gate_rows; e += block.size) outputs.expert_offsets[e] = offset_of(e);
  }
  const std::int64_t fill = min(gate_rows, num_slots) * (block_size - 1);
  const std::int64_t num_places = block_size == 0 ? 0 : (num_slots + fill) / block_size * block_size;
  if (block.rank() == 0 && block_size > 0 && outputs.num_tokens_post_padded != nullptr)
    *outputs.num_tokens_post_padded = place_of(gate_rows);
  // What no slot and no expert takes below.
  for (int i = block.rank(); i < num_slots; i += block.size) {
    if (outputs.slot_of_position != nullptr && i >= offset_of(gate_rows)) outputs.slot_of_position[i] = -1;
  }
  if (outputs.sorted_token_ids != nullptr) {
    for (std::int64_t i = block.rank(); i < num_places; i += block.size) outputs.sorted_token_ids[i] = num_slots;
  }
  if (outputs.expert_ids != nullptr) {
    for (std::int64_t i = block.rank(); i * block_size < num_places; i += block.size) {
      if (i * block_size >= place_of(gate_rows)) outputs.expert_ids[i] = -1;
    }
    for (int e = block.rank(); e < gate_rows; e += block.size) {
      for (std::int64_t place = place_of(e); place < place_of(e + 1); place += block_size) {
        outputs.expert_ids[place / block_size] = e;
      }
    }
  }
  block.sync();
  for (int i = block.rank(); i < num_slots; i += block.size) {
    const std::int32_t id = memory.ids[i];
    int earlier = 0;
#pragma unroll 4
    for (int j = 0; j < i; j += 4) {
      const int4 others = *reinterpret_cast<const int4*>(memory.ids + j);
      earlier += (others.x == id ? 1 : 0) + (others.y == id && j + 1 < i ? 1 : 0) +
                 (others.z == id && j + 2 < i ? 1 : 0) + (others.w == id && j + 3 < i ? 1 : 0);
    }
    const int position = id < 0 ? -1 : offset_of(id) + earlier;
    if (outputs.position_of_slot != nullptr) outputs.position_of_slot[i] = position;
    if (id < 0) continue;
    if (outputs.slot_of_position != nullptr) outputs.slot_of_position[position] = i;
    if (outputs.sorted_token_ids != nullptr) outputs.sorted_token_ids[place_of(id) + earlier] = i;
  }
}

// By each block that has written the slot_ids of its row; the one that comes last does it for all.
__device__ __forceinline__ void bookkeep(Block block, const RouterView& router, const CallView& call,
                                         const Handover& handover, const Bookkeeping& bookkeeping,
                                         unsigned char* shared) {
  __shared__ bool is_last;
  block.sync();
  if (block.rank() == 0) {
    __threadfence();
    const auto num_rows = static_cast<std::uint32_t>(call.num_tokens);
    is_last = atomicAdd(&handover.state->rows_done, 1u) == num_rows - 1;
    if (is_last) handover.state->rows_done = 0;
    __threadfence();
  }
  block.sync();
  if (!is_last) return;
  bookkeep_few(block, call.slot_ids, static_cast<int>(call.num_tokens) * router.columns, router.gate_rows,
               bookkeeping.outputs, few_slots_memory(router.gate_rows, shared));
}

}  // namespace samebits::cuda
