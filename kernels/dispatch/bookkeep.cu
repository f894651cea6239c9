// Slots by expert: a stable radix sort of the slots by id, and what can be read off the sorted list.
#include <algorithm>
#include <cub/block/block_scan.cuh>
#include <cub/device/device_radix_sort.cuh>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/pdl.h"
#include "kernels/dispatch/bookkeep_at_once.h"

namespace samebits::cuda {
namespace {

constexpr int kThreads = 256, kScanThreads = 1024;
constexpr std::size_t kAlignment = 256;

std::size_t aligned(std::size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Ids as unsigned numbers: -1, cut to these bits, is larger than every id.
int id_bits(std::int64_t gate_rows) {
  int bits = 0;
  while ((gate_rows >> bits) != 0) ++bits;
  return bits;
}

cudaError_t sort_slots(void* temporary, std::size_t& temporary_bytes, cub::DoubleBuffer<std::uint32_t>& ids,
                       cub::DoubleBuffer<std::int32_t>& slots, std::int64_t num_slots, std::int64_t gate_rows,
                       cudaStream_t stream) {
  return cub::DeviceRadixSort::SortPairs(temporary, temporary_bytes, ids, slots, num_slots, 0, id_bits(gate_rows),
                                         stream);
}

// Arrays in the scratch memory; without a base it only counts.
struct Scratch {
  Scratch(void* base, std::int64_t num_slots, std::int64_t gate_rows) {
    const auto take = [&](std::int64_t count) {
      void* here = base == nullptr ? nullptr : static_cast<char*>(base) + bytes;
      bytes += aligned(static_cast<std::size_t>(count) * sizeof(std::int32_t));
      return here;
    };
    offsets = static_cast<std::int32_t*>(take(gate_rows + 1));
    padded_offsets = static_cast<std::int32_t*>(take(gate_rows + 1));
    other_ids = static_cast<std::uint32_t*>(take(num_slots));
    slots = static_cast<std::int32_t*>(take(num_slots));
    other_slots = static_cast<std::int32_t*>(take(num_slots));
    sort = base == nullptr ? nullptr : static_cast<char*>(base) + bytes;
  }
  std::int32_t *offsets, *padded_offsets;  // [G + 1]
  std::uint32_t* other_ids;                // [T * K], the sort's second buffer, as the two below
  std::int32_t *slots, *other_slots;
  void* sort;  // CUB's own, to the end
  std::size_t bytes = 0;
};

__global__ void __launch_bounds__(kThreads) number_slots(std::int64_t num_slots, std::int32_t* slots) {
  wait_for_previous_kernel();
  const std::int64_t slot = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (slot < num_slots) slots[slot] = static_cast<std::int32_t>(slot);
}

// First index of `sorted` [count] with a value of at least `value`.
__device__ std::int64_t lower_bound(const std::uint32_t* sorted, std::int64_t count, std::uint32_t value) {
  std::int64_t first = 0, last = count;
  while (first < last) {
    const std::int64_t middle = first + (last - first) / 2;
    if (sorted[middle] < value) {
      first = middle + 1;
    } else {
      last = middle;
    }
  }
  return first;
}

// Where each expert begins in the sorted list, and in the padded blocks. One block of threads.
__global__ void __launch_bounds__(kScanThreads)
    find_offsets(const std::uint32_t* sorted_ids, std::int64_t num_slots, std::int32_t gate_rows,
                 BookkeepOutputs outputs, std::int32_t* offsets, std::int32_t* padded_offsets) {
  using Scan = cub::BlockScan<std::int32_t, kScanThreads>;
  __shared__ typename Scan::TempStorage scan_storage;
  const int thread = static_cast<int>(threadIdx.x);
  wait_for_previous_kernel();
  for (std::int32_t expert = thread; expert <= gate_rows; expert += kScanThreads) {
    offsets[expert] = static_cast<std::int32_t>(lower_bound(sorted_ids, num_slots, static_cast<std::uint32_t>(expert)));
    if (outputs.expert_offsets != nullptr) outputs.expert_offsets[expert] = offsets[expert];
  }
  __syncthreads();
  std::int32_t end = 0;
  for (std::int32_t first = 0; first < gate_rows; first += kScanThreads) {
    const std::int32_t expert = first + thread;
    const std::int32_t count = expert < gate_rows ? offsets[expert + 1] - offsets[expert] : 0;
    if (expert < gate_rows && outputs.tokens_per_expert != nullptr) outputs.tokens_per_expert[expert] = count;
    if (outputs.block_size == 0) continue;
    const auto places = static_cast<std::int32_t>(round_up(count, outputs.block_size));
    std::int32_t begin, total;
    Scan(scan_storage).ExclusiveSum(places, begin, total);
    __syncthreads();  // the storage is used again
    if (expert < gate_rows) padded_offsets[expert] = end + begin;
    end += total;
  }
  if (thread == 0 && outputs.block_size > 0) {
    padded_offsets[gate_rows] = end;
    if (outputs.num_tokens_post_padded != nullptr) *outputs.num_tokens_post_padded = end;
  }
}

// The sort put the slots without an expert last, so this writes every element of both arrays.
__global__ void __launch_bounds__(kThreads) write_permutation(const std::int32_t* sorted_slots, std::int64_t num_slots,
                                                              const std::int32_t* end, BookkeepOutputs outputs) {
  wait_for_previous_kernel();
  const std::int64_t position = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (position >= num_slots) return;
  const std::int32_t slot = sorted_slots[position];
  const bool has_expert = position < *end;
  if (outputs.slot_of_position != nullptr) outputs.slot_of_position[position] = has_expert ? slot : -1;
  if (outputs.position_of_slot != nullptr) {
    outputs.position_of_slot[slot] = has_expert ? static_cast<std::int32_t>(position) : -1;
  }
}

// The expert with padded_offsets[expert] <= place < padded_offsets[expert + 1], for a place before the active end.
__device__ std::int32_t expert_of_place(const std::int32_t* padded_offsets, std::int32_t gate_rows,
                                        std::int64_t place) {
  std::int32_t first = 0, last = gate_rows;  // the answer is in [first, last)
  while (last - first > 1) {
    const std::int32_t middle = first + (last - first) / 2;
    if (padded_offsets[middle] <= place) {
      first = middle;
    } else {
      last = middle;
    }
  }
  return first;
}

__global__ void __launch_bounds__(kThreads)
    write_blocks(const std::int32_t* sorted_slots, std::int64_t num_slots, std::int64_t num_places,
                 std::int32_t gate_rows, const std::int32_t* offsets, const std::int32_t* padded_offsets,
                 BookkeepOutputs outputs) {
  wait_for_previous_kernel();
  const std::int64_t place = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (place >= num_places) return;
  std::int32_t expert = -1;
  auto slot = static_cast<std::int32_t>(num_slots);
  if (place < padded_offsets[gate_rows]) {
    expert = expert_of_place(padded_offsets, gate_rows, place);
    const std::int64_t position = offsets[expert] + (place - padded_offsets[expert]);
    if (position < offsets[expert + 1]) slot = sorted_slots[position];
  }
  if (outputs.sorted_token_ids != nullptr) outputs.sorted_token_ids[place] = slot;
  if (outputs.expert_ids != nullptr && place % outputs.block_size == 0) {
    outputs.expert_ids[place / outputs.block_size] = expert;
  }
}

dim3 blocks_of(std::int64_t count) {
  return dim3(static_cast<unsigned>(ceil_div(count, kThreads)));
}

// Elements of sorted_token_ids.
std::int64_t num_places_of(std::int64_t num_slots, std::int64_t gate_rows, std::int64_t block_size) {
  if (block_size == 0) return 0;
  const std::int64_t fill = std::min(gate_rows, num_slots) * (block_size - 1);
  return (num_slots + fill) / block_size * block_size;
}

}  // namespace

std::size_t bookkeep_scratch_bytes(std::int64_t num_tokens, std::int64_t columns, std::int64_t gate_rows) {
  const std::int64_t num_slots = num_tokens * columns;
  cub::DoubleBuffer<std::uint32_t> ids(nullptr, nullptr);
  cub::DoubleBuffer<std::int32_t> slots(nullptr, nullptr);
  std::size_t sort_bytes = 0;
  sort_slots(nullptr, sort_bytes, ids, slots, num_slots, gate_rows, nullptr);
  return Scratch(nullptr, num_slots, gate_rows).bytes + aligned(sort_bytes);
}

cudaError_t launch_bookkeep(const RouterView& router, const CallView& call, const BookkeepOutputs& outputs,
                            void* scratch_memory, std::size_t scratch_bytes, cudaStream_t stream) {
  const std::int64_t num_slots = call.num_tokens * router.columns;
  const std::int64_t num_places = num_places_of(num_slots, router.gate_rows, outputs.block_size);
  if (can_bookkeep_at_once(num_slots, router.gate_rows, outputs.block_size))
    return launch_bookkeep_at_once(call.slot_ids, num_slots, num_places, router.gate_rows, outputs, stream);
  const Scratch scratch(scratch_memory, num_slots, router.gate_rows);
  cub::DoubleBuffer<std::uint32_t> ids(reinterpret_cast<std::uint32_t*>(call.slot_ids), scratch.other_ids);
  cub::DoubleBuffer<std::int32_t> slots(scratch.slots, scratch.other_slots);
  cudaError_t error = cudaSuccess;
  if (num_slots > 0) {
    error = launch_pdl(number_slots, blocks_of(num_slots), kThreads, 0, stream, num_slots, scratch.slots);
    if (error != cudaSuccess) return error;
    std::size_t sort_bytes = scratch_bytes - scratch.bytes;
    error = sort_slots(scratch.sort, sort_bytes, ids, slots, num_slots, router.gate_rows, stream);
    if (error != cudaSuccess) return error;
  }
  error = launch_pdl(find_offsets, 1, kScanThreads, 0, stream, ids.Current(), num_slots, router.gate_rows, outputs,
                     scratch.offsets, scratch.padded_offsets);
  if (error != cudaSuccess || num_slots == 0) return error;
  if (outputs.slot_of_position != nullptr || outputs.position_of_slot != nullptr) {
    error = launch_pdl(write_permutation, blocks_of(num_slots), kThreads, 0, stream, slots.Current(), num_slots,
                       scratch.offsets + router.gate_rows, outputs);
    if (error != cudaSuccess) return error;
  }
  if (outputs.sorted_token_ids == nullptr && outputs.expert_ids == nullptr) return cudaSuccess;
  if (num_places == 0) return cudaSuccess;
  return launch_pdl(write_blocks, blocks_of(num_places), kThreads, 0, stream, slots.Current(), num_slots, num_places,
                    router.gate_rows, scratch.offsets, scratch.padded_offsets, outputs);
}

}  // namespace samebits::cuda
