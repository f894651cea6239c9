// Slots by expert in one launch: what bookkeep.cu computes with a sort.
//
// Every block counts all slots by expert in shared memory, those before its own apart, so no block waits for another:
// the counts give every expert's offset and the first place of the block's own slots in it. Among the 512 own slots, a
// slot comes after those of its expert in lower warps and in lower lanes of its warp.
#include <cub/block/block_scan.cuh>

#include "kernels/cuda/pdl.h"
#include "kernels/dispatch/bookkeep_at_once.h"
#include "kernels/dispatch/slots.h"
#include "kernels/select/threads.cuh"

namespace samebits::cuda {
namespace {

constexpr int kThreads = 512;  // and slots of a block
constexpr int kWarps = kThreads / kWarpSize;
constexpr std::int64_t kMostSlots = std::int64_t{1} << 17;  // beyond, all reads of all blocks take longer than a sort
constexpr std::int64_t kMostExperts = 1024;
static_assert(kMostSlots + kMostExperts * (kLargestBlock - 1) + kMostSlots <= INT32_MAX,
              "places, and a step of all threads beyond them, are int32");

using Sums = std::uint64_t;  // of slots in the low half, of places in the padded blocks in the high one
using Scan = cub::BlockScan<Sums, kThreads>;

// Of a block, in shared memory.
struct Memory {
  Sums* offsets;           // [G + 1]
  std::uint32_t* before;   // [G], slots of lower blocks
  std::uint32_t* rest;     // [G], all others
  std::uint16_t* of_warp;  // [kWarps, G], own slots
};
constexpr std::size_t memory_bytes(std::int64_t gate_rows) {
  return static_cast<std::size_t>(gate_rows + 1) * sizeof(Sums) +
         static_cast<std::size_t>(gate_rows) * (2 * sizeof(std::uint32_t) + kWarps * sizeof(std::uint16_t));
}
__device__ Memory memory_at(unsigned char* base, int gate_rows) {
  auto* offsets = reinterpret_cast<Sums*>(base);
  auto* before = reinterpret_cast<std::uint32_t*>(offsets + gate_rows + 1);
  return {offsets, before, before + gate_rows, reinterpret_cast<std::uint16_t*>(before + 2 * gate_rows)};
}
__device__ std::int32_t slots_of(Sums sums) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(sums));
}
__device__ std::int32_t places_of(Sums sums) {
  return static_cast<std::int32_t>(sums >> 32);
}

__device__ void count_slots(const std::int32_t* slot_ids, int num_slots, int gate_rows, const Memory& memory) {
  const int thread = static_cast<int>(threadIdx.x), first_own = static_cast<int>(blockIdx.x) * kThreads;
  constexpr int kLoads = 8;  // in flight at once
  for (int first = thread; first < num_slots; first += kLoads * kThreads) {
    std::int32_t ids[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) ids[i] = first + i * kThreads < num_slots ? slot_ids[first + i * kThreads] : -1;
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (ids[i] >= 0) atomicAdd((first + i * kThreads < first_own ? memory.before : memory.rest) + ids[i], 1u);
    }
  }
}

// offsets[e]: slots and places before expert e; offsets[G]: all.
__device__ void find_offsets(int gate_rows, int block_size, const Memory& memory) {
  __shared__ typename Scan::TempStorage storage;
  Sums end = 0;
  for (int first = 0; first < gate_rows; first += kThreads) {
    const int e = first + static_cast<int>(threadIdx.x);
    const auto count = e < gate_rows ? static_cast<std::int64_t>(memory.before[e] + memory.rest[e]) : 0;
    const std::int64_t places = block_size == 0 ? 0 : round_up(count, block_size);
    Sums begin, total;
    Scan(storage).ExclusiveSum(static_cast<Sums>(places) << 32 | static_cast<Sums>(count), begin, total);
    if (e < gate_rows) memory.offsets[e] = end + begin;
    end += total;
    __syncthreads();  // the storage is used again
  }
  if (threadIdx.x == 0) memory.offsets[gate_rows] = end;
}

// What depends on the counts alone, by all threads of the grid; no slot is in these places.
__device__ void write_counts(int num_slots, int num_places, int gate_rows, const BookkeepOutputs& outputs,
                             const Memory& memory) {
  const int thread = static_cast<int>(blockIdx.x * kThreads + threadIdx.x),
            num_threads = static_cast<int>(gridDim.x) * kThreads;
  const Sums end = memory.offsets[gate_rows];
  for (int e = thread; e <= gate_rows; e += num_threads) {
    if (outputs.expert_offsets != nullptr) outputs.expert_offsets[e] = slots_of(memory.offsets[e]);
    if (e == gate_rows) break;
    const auto count = slots_of(memory.offsets[e + 1]) - slots_of(memory.offsets[e]);
    if (outputs.tokens_per_expert != nullptr) outputs.tokens_per_expert[e] = count;
  }
  if (thread == 0 && outputs.block_size > 0 && outputs.num_tokens_post_padded != nullptr)
    *outputs.num_tokens_post_padded = places_of(end);
  if (outputs.slot_of_position != nullptr) {
    for (int i = slots_of(end) + thread; i < num_slots; i += num_threads) outputs.slot_of_position[i] = -1;
  }
  if (outputs.sorted_token_ids != nullptr) {
    for (int e = thread / kWarpSize; e < gate_rows; e += num_threads / kWarpSize) {  // a warp an expert
      const Sums begin = memory.offsets[e], next = memory.offsets[e + 1];
      const int filled = places_of(begin) + slots_of(next) - slots_of(begin);
      for (int place = filled + Warp().rank(); place < places_of(next); place += kWarpSize)
        outputs.sorted_token_ids[place] = num_slots;
    }
    for (int place = places_of(end) + thread; place < num_places; place += num_threads)
      outputs.sorted_token_ids[place] = num_slots;
  }
  if (outputs.expert_ids == nullptr) return;
  for (int i = thread; i < num_places / outputs.block_size; i += num_threads) {
    const int place = i * outputs.block_size;
    int first = 0, last = gate_rows;  // the last expert that begins at this place or before it is in [first, last)
    while (last - first > 1) {
      const int middle = (first + last) / 2;
      (places_of(memory.offsets[middle]) <= place ? first : last) = middle;
    }
    outputs.expert_ids[i] = place < places_of(end) ? first : -1;
  }
}

__device__ void place_own_slots(const std::int32_t* slot_ids, int num_slots, int gate_rows,
                                const BookkeepOutputs& outputs, const Memory& memory) {
  const int slot = static_cast<int>(blockIdx.x * kThreads + threadIdx.x),
            warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const std::int32_t id = slot < num_slots ? slot_ids[slot] : -1;
  const unsigned same = __match_any_sync(kAllLanes, id), lower = same & ((1u << Warp().rank()) - 1u);
  if (id >= 0 && lower == 0) memory.of_warp[warp * gate_rows + id] = static_cast<std::uint16_t>(__popc(same));
  __syncthreads();
  if (slot >= num_slots) return;
  if (id < 0) {
    if (outputs.position_of_slot != nullptr) outputs.position_of_slot[slot] = -1;
    return;
  }
  auto earlier = static_cast<std::int32_t>(memory.before[id]) + __popc(lower);
  for (int w = 0; w < warp; ++w) earlier += memory.of_warp[w * gate_rows + id];
  const std::int32_t position = slots_of(memory.offsets[id]) + earlier;
  if (outputs.position_of_slot != nullptr) outputs.position_of_slot[slot] = position;
  if (outputs.slot_of_position != nullptr) outputs.slot_of_position[position] = slot;
  if (outputs.sorted_token_ids != nullptr) outputs.sorted_token_ids[places_of(memory.offsets[id]) + earlier] = slot;
}

__global__ void __launch_bounds__(kThreads)
    bookkeep_at_once(const std::int32_t* slot_ids, int num_slots, int num_places, int gate_rows,
                     const __grid_constant__ BookkeepOutputs outputs) {
  extern __shared__ __align__(16) unsigned char shared[];
  const Memory memory = memory_at(shared, gate_rows);
  let_next_kernel_start();
  for (int e = static_cast<int>(threadIdx.x); e < 2 * gate_rows; e += kThreads) memory.before[e] = 0;  // and rest
  for (int i = static_cast<int>(threadIdx.x); i < kWarps * gate_rows; i += kThreads) memory.of_warp[i] = 0;
  __syncthreads();
  wait_for_previous_kernel();
  count_slots(slot_ids, num_slots, gate_rows, memory);
  __syncthreads();
  find_offsets(gate_rows, outputs.block_size, memory);
  __syncthreads();
  write_counts(num_slots, num_places, gate_rows, outputs, memory);
  place_own_slots(slot_ids, num_slots, gate_rows, outputs, memory);
}

}  // namespace

bool can_bookkeep_at_once(std::int64_t num_slots, std::int64_t gate_rows, std::int64_t block_size) {
  return num_slots <= kMostSlots && gate_rows <= kMostExperts && block_size <= kLargestBlock;
}

cudaError_t launch_bookkeep_at_once(const std::int32_t* slot_ids, std::int64_t num_slots, std::int64_t num_places,
                                    std::int64_t gate_rows, const BookkeepOutputs& outputs, cudaStream_t stream) {
  constexpr std::size_t kMostBytes = memory_bytes(kMostExperts);
  const cudaError_t status =
      cudaFuncSetAttribute(bookkeep_at_once, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMostBytes));
  if (status != cudaSuccess) return status;
  const std::int64_t blocks = num_slots == 0 ? 1 : ceil_div(num_slots, kThreads);
  return launch_pdl(bookkeep_at_once, dim3(static_cast<unsigned>(blocks)), dim3(kThreads), memory_bytes(gate_rows),
                    stream, slot_ids, static_cast<int>(num_slots), static_cast<int>(num_places),
                    static_cast<int>(gate_rows), outputs);
}

}  // namespace samebits::cuda
