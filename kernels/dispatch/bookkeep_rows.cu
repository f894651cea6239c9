// Slots by expert. Every output is written once, and no block waits for another one but in its cluster.
//
// Each block has a part of the rows, and in shared memory a byte or a bit for each expert and row of it: so the slots
// of an expert are a sum of them, and so are those in rows before a row, in whatever order they came. Few rows are one
// part, which all blocks have; more are shared by the blocks of a cluster, which tell each other their counts; of many
// each block has a tile, and a launch before counts all tiles. A block writes the slots of a share of its part.
#include "kernels/dispatch/bookkeep_rows.h"

#include <algorithm>

#include "kernels/cuda/pdl.h"
#include "kernels/dispatch/row_marks.cuh"
#include "kernels/dispatch/slots.cuh"

namespace samebits::cuda {
namespace {

// Where the counts of the other rows come from.
enum class Rest { kNone, kCluster, kTiles };

constexpr int kFewThreads = 512, kMostThreads = 1024;
constexpr int kLoads = 4, kCountLoads = 16;  // of a thread at once
constexpr int kParts = 4, kExpertsOfWord = 4, kMostCountParts = 16;
// Bytes as long as the blocks have multiprocessors without a row of the selection.
constexpr std::int64_t kMultiprocessors = 132, kBlocks = 16, kMarkedRows = kMultiprocessors - kBlocks;
constexpr std::int64_t kOnePartRows = 256, kClusterRows = 2048, kClusterExperts = 256, kShareRows = 32;
constexpr std::int64_t kLeastTileRows = 32, kUsualTiles = 64, kMostSlots = std::int64_t{1} << 17;
constexpr std::size_t kMostBytes = std::size_t{200} << 10;
static_assert(kMostSlots + kMostThreads * (kLargestBlock - 1) + kMostTiles * kMostThreads <= INT32_MAX,
              "places, and a step of all threads beyond them, are int32");

struct RowsCall {
  std::int32_t experts, part_rows, columns, rows, share_rows;
  std::uint32_t row_magic;  // slot / columns = 2 * slot * row_magic >> 32
  const std::int32_t* slot_ids;
  unsigned char* tile_counts;  // [tiles][words_of_tile] words of four experts each
  std::int32_t words_of_tile, tiles;
  SlotBlocks blocks;
  BookkeepOutputs outputs;
};

SAMEBITS_HOST_DEVICE constexpr std::size_t scratch_words(Rest rest, std::int64_t experts, std::int64_t threads) {
  return static_cast<std::size_t>(rest == Rest::kCluster ? kParts * experts : rest == Rest::kTiles ? 4 * threads : 0);
}

// The counts of all tiles, of a word of four experts, and every parts-th tile: of experts 0 and 2 of the word and of 1
// and 3, in the halves, then those of the tiles before this one. 2^15 rows at most.
__device__ __forceinline__ uint4 add_counts(const RowsCall& call, int rank, int parts) {
  const int part = rank / call.words_of_tile, own_tile = static_cast<int>(blockIdx.x);
  uint4 sums{0, 0, 0, 0};
  if (part >= parts) return sums;
  const std::uint32_t* counts =
      reinterpret_cast<const std::uint32_t*>(call.tile_counts) + (rank - part * call.words_of_tile);
#pragma unroll 1
  for (int first = part; first < call.tiles; first += kCountLoads * parts) {
    std::uint32_t some[kCountLoads];
#pragma unroll
    for (int i = 0; i < kCountLoads; ++i) {
      const int tile = first + i * parts;
      some[i] = tile < call.tiles ? __ldcg(counts + tile * call.words_of_tile) : 0;
    }
#pragma unroll
    for (int i = 0; i < kCountLoads; ++i) {
      const std::uint32_t even = some[i] & 0xff00ffu, odd = some[i] >> 8 & 0xff00ffu;
      const bool is_before = first + i * parts < own_tile;
      sums.x += even, sums.y += odd, sums.z += is_before ? even : 0, sums.w += is_before ? odd : 0;
    }
  }
  return sums;
}
static_assert(kMostTiles * kMostTileRows < (1 << 16));

__device__ __forceinline__ void fill(std::int32_t* to, int first, int last, int step, int value) {
#pragma unroll 1
  for (int i = first; i < last; i += step) to[i] = value;
}

// What no slot takes, by all threads of the grid.
__device__ __forceinline__ void write_padding(const RowsCall& call, const RowMarks& memory,
                                              const BookkeepOutputs& outputs) {
  const unsigned threads = blockDim.x, rank = blockIdx.x * threads + threadIdx.x, num_threads = gridDim.x * threads;
  const auto experts = static_cast<unsigned>(call.experts);
  const int lane = static_cast<int>(rank % kWarpSize), step = static_cast<int>(num_threads);
  const int first = static_cast<int>(rank), size = call.blocks.size, num_slots = call.rows * call.columns;
  if (outputs.sorted_token_ids != nullptr || outputs.expert_ids != nullptr) {
#pragma unroll 1
    for (unsigned e = rank / kWarpSize; e < experts; e += num_threads / kWarpSize) {  // a warp an expert
      const std::uint32_t at = memory.first_block + 4 * e;
      const int begin = read_shared(at), end = read_shared(at + 4), slots = read_shared(memory.all + 4 * e);
      if (outputs.expert_ids != nullptr) fill(outputs.expert_ids, begin + lane, end, kWarpSize, static_cast<int>(e));
      if (outputs.sorted_token_ids != nullptr)
        fill(outputs.sorted_token_ids, begin * size + slots + lane, end * size, kWarpSize, num_slots);
    }
    const int num_blocks = read_shared(memory.first_block + 4 * experts), room = call.blocks.room;
    if (outputs.expert_ids != nullptr) fill(outputs.expert_ids, num_blocks + first, room, step, -1);
    if (outputs.sorted_token_ids != nullptr)
      fill(outputs.sorted_token_ids, num_blocks * size + first, room * size, step, num_slots);
  }
  const int num_all = read_shared(memory.first_block + 4 * experts + 4);
  if (outputs.slot_of_position != nullptr) fill(outputs.slot_of_position, num_all + first, num_slots, step, -1);
}

// The ids of a part into its marks, and those of a share of it into memory.own; slots are counted from the first of the
// part. By all threads.
template <bool kBits>
__device__ __forceinline__ void take_ids(const RowsCall& call, const RowMarks& memory, const std::int32_t* slot_ids,
                                         int num_slots, int first_own, int last_own) {
  const int threads = static_cast<int>(blockDim.x);
#pragma unroll 1
  for (int first = static_cast<int>(threadIdx.x); first < num_slots; first += kLoads * threads) {
    std::int32_t ids[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i)
      ids[i] = load_if(first + i * threads < num_slots, slot_ids + (first + i * threads), -1);
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int slot = first + i * threads;
      set_mark_if<kBits>(ids[i] >= 0, memory, row_of_slot(slot, call.row_magic), ids[i]);
      write_shared_if(slot >= first_own && slot < last_own, memory.own + 4 * static_cast<unsigned>(slot - first_own),
                      ids[i]);
    }
  }
}

// The counts of a tile.
__global__ void __launch_bounds__(kMostThreads) count_tiles(const __grid_constant__ RowsCall call) {
  extern __shared__ __align__(16) unsigned char shared[];
  let_next_kernel_start();
  const int rank = static_cast<int>(threadIdx.x), tile = static_cast<int>(blockIdx.x);
  const RowMarks memory = row_marks<false>(call.experts, call.part_rows, 0, 0, 0, shared);
  const int num_slots = min(call.part_rows, call.rows - tile * call.part_rows) * call.columns;
  clear_marks(memory, rank, static_cast<int>(blockDim.x));
  __syncthreads();
  wait_for_previous_kernel();
  take_ids<false>(call, memory, call.slot_ids + tile * call.part_rows * call.columns, num_slots, 0, 0);
  __syncthreads();
  const int width = kExpertsOfWord * call.words_of_tile;  // no more than threads
  if (rank < width) {
    call.tile_counts[tile * width + rank] =
        static_cast<unsigned char>(rank < call.experts ? count_marks<false>(memory, rank) : 0);
  }
}

template <Rest kRest, bool kBits>
__global__ void __launch_bounds__(kMostThreads) bookkeep_rows(const __grid_constant__ RowsCall call) {
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ uint2 of_warps[kWarpSize];
#ifdef SAMEBITS_MUTANT_ATOMICS_FOR_SLOT_ORDER
  __shared__ int arrived[kMostThreads];
  arrived[threadIdx.x] = 0;
#endif
  // What is needed late: the compiler would fetch it only there, from memory that is far.
  __shared__ BookkeepOutputs outputs;
  __shared__ SlotBlocks blocks;
  let_next_kernel_start();
  const int rank = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
  const int experts = call.experts;
  const unsigned lane = threadIdx.x % kWarpSize, warp = threadIdx.x / kWarpSize;
  const bool is_expert = rank < experts, is_last = rank == experts - 1;
  const int part =
      kRest == Rest::kNone ? 0 : static_cast<int>(kRest == Rest::kTiles ? blockIdx.x : blockIdx.x % kParts);
  const int share =
      kRest == Rest::kTiles ? 0 : static_cast<int>(kRest == Rest::kNone ? blockIdx.x : blockIdx.x / kParts);
  const RowMarks memory =
      row_marks<kBits>(experts, call.part_rows, share * call.share_rows, (call.share_rows + kMarkRows - 1) / kMarkRows,
                       static_cast<int>(scratch_words(kRest, experts, threads)), shared);
  // Slots are counted from the first of the part.
  const int first_slot = part * call.part_rows * call.columns;
  const int num_slots = min(call.part_rows, call.rows - part * call.part_rows) * call.columns;
  const int first_own = share * call.share_rows * call.columns;
  const int last_own = min(first_own + call.share_rows * call.columns, num_slots);
  const std::int32_t* slot_ids = call.slot_ids + first_slot;
  const std::uint32_t row_magic = call.row_magic;
  if (rank == 0) outputs = call.outputs, blocks = call.blocks;
  clear_marks(memory, rank, threads);
  if constexpr (kRest == Rest::kCluster) {
    arrive_in_cluster();  // all blocks have begun
    wait_for_cluster();
  } else {
    __syncthreads();
  }

  wait_for_previous_kernel();
  if (kRest == Rest::kTiles) {
    const uint4 sums = add_counts(call, rank, min(threads / call.words_of_tile, kMostCountParts));
    asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(memory.scratch + 16 * static_cast<unsigned>(rank)),
                 "r"(sums.x), "r"(sums.y), "r"(sums.z), "r"(sums.w)
                 : "memory");
  }
  take_ids<kBits>(call, memory, slot_ids, num_slots, first_own, last_own);
  __syncthreads();

  int count = 0, before = 0;
  if (is_expert) count = count_marks<kBits>(memory, rank);
  if constexpr (kRest == Rest::kCluster) {
    const std::uint32_t mine = memory.scratch + 4 * static_cast<unsigned>(rank);
    if (is_expert) {
#pragma unroll
      for (int p = 0; p < kParts; ++p)
        write_to_block(mine + static_cast<unsigned>(part) * memory.row_bytes, static_cast<unsigned>(p), count);
    }
    arrive_in_cluster();
    wait_for_cluster();
    if (is_expert) {
      int some[kParts];
#pragma unroll
      for (int p = 0; p < kParts; ++p) some[p] = read_shared(mine + static_cast<unsigned>(p) * memory.row_bytes);
      count = 0;
#pragma unroll
      for (int p = 0; p < kParts; ++p) count += some[p], before += p < part ? some[p] : 0;
    }
  }
  if constexpr (kRest == Rest::kTiles) {
    count = 0;
    const int parts = min(threads / call.words_of_tile, kMostCountParts), half = 16 * (rank / 2 % 2);
    std::uint32_t at = memory.scratch + static_cast<unsigned>(16 * (rank / kExpertsOfWord) + 4 * (rank % 2));
#pragma unroll 4
    for (int p = 0; p < parts && is_expert; ++p, at += 16 * static_cast<unsigned>(call.words_of_tile)) {
      count += read_shared(at) >> half & 0xffff;
      before += read_shared(at + 8) >> half & 0xffff;
    }
  }

  const uint2 mine{static_cast<unsigned>(count), blocks_of_slots(blocks, static_cast<unsigned>(count))};
  uint2 sum = mine;
#pragma unroll
  for (int distance = 1; distance < kWarpSize; distance *= 2) {
    const unsigned x = __shfl_up_sync(kAllLanes, sum.x, distance), y = __shfl_up_sync(kAllLanes, sum.y, distance);
    if (static_cast<int>(lane) >= distance) sum.x += x, sum.y += y;
  }
  if (lane == kWarpSize - 1) of_warps[warp] = sum;
  __syncthreads();
  const uint2 of_warp = lane < warp ? of_warps[lane] : uint2{0, 0};
  const int slots_before = static_cast<int>(__reduce_add_sync(kAllLanes, of_warp.x) + sum.x - mine.x);
  const int blocks_before = static_cast<int>(__reduce_add_sync(kAllLanes, of_warp.y) + sum.y - mine.y);
  const int blocks_after = blocks_before + static_cast<int>(mine.y);
  if (is_expert) {
    const unsigned at = 4 * static_cast<unsigned>(rank);
    write_shared(memory.all + at, count);
    write_shared(memory.to_position + at, slots_before + before);
    write_shared(memory.to_place + at, blocks_before * blocks.size + before);
    write_shared(memory.first_block + at, blocks_before);
    if (is_last) {
      write_shared(memory.first_block + at + 4, blocks_after);
      write_shared(memory.first_block + at + 8, slots_before + count);
    }
    if (blockIdx.x == 0) {
      store_if(outputs.tokens_per_expert != nullptr, outputs.tokens_per_expert + rank, count);
      store_if(outputs.expert_offsets != nullptr, outputs.expert_offsets + rank, slots_before);
      store_if(is_last && outputs.expert_offsets != nullptr, outputs.expert_offsets + experts, slots_before + count);
      store_if(is_last && outputs.num_tokens_post_padded != nullptr && blocks.size > 0, outputs.num_tokens_post_padded,
               blocks_after * blocks.size);
    }
  }
  __syncthreads();
#pragma unroll 1
  for (int i = first_own + rank; i < last_own; i += threads) {
#ifdef SAMEBITS_MUTANT_ATOMICS_FOR_SLOT_ORDER
    const int slot = first_own + last_own - 1 - i;
#else
    const int slot = i;
#endif
    const int id = read_shared(memory.own + 4 * static_cast<unsigned>(slot - first_own));
    const bool has_id = id >= 0;
    const unsigned at = has_id ? 4 * static_cast<unsigned>(id) : 0;
    const int to_position = read_shared(memory.to_position + at), to_place = read_shared(memory.to_place + at);
#ifdef SAMEBITS_MUTANT_ATOMICS_FOR_SLOT_ORDER
    const int place =
        count_before<kBits>(memory, row_of_slot(first_own, row_magic), at) + atomicAdd(arrived + at / 4, 1);
#else
    const int place = count_before<kBits>(memory, row_of_slot(slot, row_magic), at);
#endif
    const int position = has_id ? to_position + place : -1;
    store_if(has_id && outputs.slot_of_position != nullptr, outputs.slot_of_position + position, first_slot + slot);
    store_if(has_id && outputs.sorted_token_ids != nullptr, outputs.sorted_token_ids + (to_place + place),
             first_slot + slot);
    store_if(outputs.position_of_slot != nullptr, outputs.position_of_slot + (first_slot + slot), position);
  }
  write_padding(call, memory, outputs);
}

struct Plan {
  Rest rest;
  bool bits;
  int threads;
  std::int64_t part_rows, share_rows, blocks;
  std::size_t bytes;
};
std::size_t bytes_of(const Plan& plan, std::int64_t columns, std::int64_t experts) {
  return row_marks_bytes(experts, plan.part_rows, ceil_div(plan.share_rows, kMarkRows), plan.share_rows * columns,
                         scratch_words(plan.rest, experts, plan.threads), plan.bits);
}
int threads_of(std::int64_t experts) {
  return experts > kFewThreads ? kMostThreads : kFewThreads;
}
Plan shared_plan(Rest rest, bool bits, std::int64_t rows, std::int64_t columns, std::int64_t experts) {
  Plan plan{rest, bits, threads_of(experts), 0, 1, 0, 0};
  const std::int64_t parts = rest == Rest::kNone ? 1 : kParts;
  plan.part_rows = round_up(ceil_div(rows, parts), kMarkRows);
  const std::int64_t most = std::min(plan.part_rows, rows);
  while (plan.share_rows < kShareRows && ceil_div(most, plan.share_rows) * parts > kBlocks) plan.share_rows *= 2;
  plan.blocks = std::max(ceil_div(most, plan.share_rows) * parts, kBlocks);
  plan.bytes = bytes_of(plan, columns, experts);
  return plan;
}
Plan tiles_plan(std::int64_t rows, std::int64_t columns, std::int64_t experts) {
  std::int64_t of_tile = kLeastTileRows;
  while (of_tile < kMostTileRows && of_tile * kUsualTiles < rows) of_tile *= 2;
  Plan plan{Rest::kTiles, false, threads_of(experts), of_tile, of_tile, ceil_div(rows, of_tile), 0};
  plan.bytes = bytes_of(plan, columns, experts);
  return plan;
}
// rows: units. The limits are where one way was faster than another on an H200 (docs/kernels.md).
Plan plan_of(std::int64_t rows, std::int64_t columns, std::int64_t experts) {
  const bool many = rows > kMarkedRows, small_cluster = many && rows <= kOnePartRows && experts <= kClusterExperts;
  const Plan one_part = shared_plan(Rest::kNone, many, rows, columns, experts);
  if (rows <= kOnePartRows && !small_cluster && one_part.bytes <= kMostBytes) return one_part;
  const Plan cluster = shared_plan(Rest::kCluster, !small_cluster, rows, columns, experts);
  if (rows <= kClusterRows && cluster.bytes <= kMostBytes) return cluster;
  return tiles_plan(rows, columns, experts);
}
Plan plan_of(const RouterView& router, std::int64_t num_tokens) {
  const SlotUnits units = slot_units(router);
  return plan_of(num_tokens * units.of_row, units.columns, router.gate_rows);
}

// Blocks that all went to the few multiprocessors without a block of the selection would wait for each other's accesses
// of shared memory: so each has more than half of it there.
std::size_t spread_bytes(const Plan& plan) {
  constexpr std::size_t kOfOne = std::size_t{115} << 10;
  return plan.rest == Rest::kNone && !plan.bits ? std::max(plan.bytes, kOfOne) : plan.bytes;
}

// The current device has clusters, and as much shared memory for a block.
bool serves_device() {
  int device = 0, major = 0, bytes = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess && major >= 9 &&
         cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) == cudaSuccess &&
         static_cast<std::size_t>(bytes) >= kMostBytes;
}

using Kernel = void (*)(RowsCall);
Kernel kernel_of(const Plan& plan) {
  if (plan.rest == Rest::kNone) return plan.bits ? bookkeep_rows<Rest::kNone, true> : bookkeep_rows<Rest::kNone, false>;
  if (plan.rest == Rest::kTiles) return bookkeep_rows<Rest::kTiles, false>;
  return plan.bits ? bookkeep_rows<Rest::kCluster, true> : bookkeep_rows<Rest::kCluster, false>;
}

cudaError_t launch(Kernel kernel, const Plan& plan, const RowsCall& rows, cudaStream_t stream) {
  // The same for all calls, which may be on several threads.
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMostBytes));
  if (status != cudaSuccess) return status;
  return launch_pdl_clusters(kernel, plan.rest == Rest::kCluster ? kParts : 1, dim3(static_cast<unsigned>(plan.blocks)),
                             dim3(static_cast<unsigned>(plan.threads)), spread_bytes(plan), stream, rows);
}

}  // namespace

bool can_bookkeep_rows(const RouterView& router, std::int64_t num_tokens, std::int64_t block_size) {
  if (num_tokens == 0 || num_tokens * router.columns > kMostSlots || router.gate_rows > kMostTileExperts) return false;
  const Plan plan = plan_of(router, num_tokens);
  return block_size <= kLargestBlock && plan.bytes <= kMostBytes &&
         (plan.rest != Rest::kTiles || plan.blocks <= kMostTiles) && serves_device();
}

cudaError_t launch_bookkeep_rows(const RouterView& router, const CallView& call, const BookkeepOutputs& outputs,
                                 unsigned char* tile_counts, cudaStream_t stream) {
  const SlotUnits units = slot_units(router);
  const Plan plan = plan_of(router, call.num_tokens);
  RowsCall rows{};
  rows.experts = router.gate_rows;
  rows.part_rows = static_cast<std::int32_t>(plan.part_rows);
  rows.columns = static_cast<std::int32_t>(units.columns);
  rows.rows = static_cast<std::int32_t>(call.num_tokens * units.of_row);
  rows.share_rows = static_cast<std::int32_t>(plan.share_rows);
  rows.row_magic = static_cast<std::uint32_t>(ceil_div(std::int64_t{1} << 31, units.columns));
  rows.slot_ids = call.slot_ids;
  rows.tile_counts = tile_counts;
  rows.words_of_tile = static_cast<std::int32_t>(ceil_div(router.gate_rows, kExpertsOfWord));
  rows.tiles = static_cast<std::int32_t>(plan.blocks);
  rows.blocks = slot_blocks(call.num_tokens * router.columns, router.gate_rows, outputs.block_size);
  rows.outputs = outputs;
  if (plan.rest == Rest::kTiles) {
    const cudaError_t status = launch(count_tiles, plan, rows, stream);
    if (status != cudaSuccess) return status;
  }
  return launch(kernel_of(plan), plan, rows, stream);
}

}  // namespace samebits::cuda
