// Slots by expert in one launch: what bookkeep.cu computes with a sort.
//
// A block a tile of rows. The selection has counted the slots of each tile and expert, so no block waits for another:
// these counts give every expert's offset and the first place of the tile's slots in it, and slots.cuh the rest.
#include "kernels/dispatch/bookkeep_tiles.h"

#include <algorithm>

#include "kernels/cuda/pdl.h"
#include "kernels/dispatch/slots.cuh"
#include "kernels/fused/words.cuh"

namespace samebits::cuda {
namespace {

constexpr int kThreads = 512, kExpertsOfWord = 4;
constexpr std::int64_t kMostSlots = std::int64_t{1} << 17, kMostTileSlots = (1 << 14) - 1;
constexpr std::int64_t kLeastTileRows = 32, kUsualTiles = 32;
constexpr int kTileRowWords = static_cast<int>(kMostTileRows) / kRowsOfWord;
constexpr std::size_t kMostBytes = std::size_t{200} << 10;

struct TilesCall {
  SlotShape tile;
  std::int32_t rows, tiles, words_of_tile;
  const std::int32_t* slot_ids;
  TileState state;
  SlotBlocks blocks;
  BookkeepOutputs outputs;
};

std::int64_t rows_of_tile(std::int64_t rows) {
  std::int64_t of_tile = kLeastTileRows;
  while (of_tile < kMostTileRows && of_tile * kUsualTiles < rows) of_tile *= 2;
  return of_tile;
}

// Of a tile, besides its own.
struct TileMemory {
  std::uint32_t* all;      // [G], slots of all tiles
  std::uint32_t* before;   // [G], of the tiles before
  std::uint32_t* padding;  // [G], blocks of the experts before
};
std::size_t tile_bytes(const SlotShape& tile) {
  return slot_bytes(tile) + 3 * static_cast<std::size_t>(tile.experts) * sizeof(std::uint32_t);
}

// Of a word of counts, and every parts-th tile.
__device__ __forceinline__ void add_counts(const TilesCall& call, int own_tile, const TileMemory& memory) {
  constexpr int kLoads = 16;  // in flight at once
  const int rank = static_cast<int>(threadIdx.x), parts = kThreads / call.words_of_tile;
  const int part = rank / call.words_of_tile, word = rank - part * call.words_of_tile;
  if (part >= parts) return;
  const std::uint32_t* counts = call.state.counts + word;
  // Of experts 0 and 2 of the word, and of 1 and 3, in the halves: 2^15 rows at most.
  std::uint32_t all[2] = {}, before[2] = {};
#pragma unroll 1
  for (int first = part; first < call.tiles; first += kLoads * parts) {
    std::uint32_t some[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const int tile = first + i * parts;
      some[i] = tile < call.tiles ? __ldcg(counts + tile * call.words_of_tile) : 0;
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const std::uint32_t even = some[i] & 0xff00ffu, odd = some[i] >> 8 & 0xff00ffu;
      all[0] += even, all[1] += odd;
      if (first + i * parts < own_tile) before[0] += even, before[1] += odd;
    }
  }
#pragma unroll
  for (int i = 0; i < kExpertsOfWord; ++i) {
    const int e = kExpertsOfWord * word + i;
    if (e >= call.tile.experts) break;
    atomicAdd(memory.all + e, all[i % 2] >> 16 * (i / 2) & 0xffffu);
    atomicAdd(memory.before + e, before[i % 2] >> 16 * (i / 2) & 0xffffu);
  }
}
static_assert(kMostTiles * kMostTileRows < (1 << 16));

// What no slot takes, by all threads of the grid.
__device__ __forceinline__ void write_padding(const TilesCall& call, const TileMemory& memory, std::uint32_t num_all,
                                              std::uint32_t num_blocks) {
  const BookkeepOutputs& outputs = call.outputs;
  const int rank = static_cast<int>(blockIdx.x * kThreads + threadIdx.x),
            num_threads = static_cast<int>(gridDim.x) * kThreads;
  const int num_slots = call.rows * call.tile.columns, size = call.blocks.size;
  if (outputs.slot_of_position != nullptr) {
#pragma unroll 1
    for (int i = static_cast<int>(num_all) + rank; i < num_slots; i += num_threads) outputs.slot_of_position[i] = -1;
  }
  if (outputs.sorted_token_ids == nullptr && outputs.expert_ids == nullptr) return;
#pragma unroll 1
  for (int e = rank / kWarpSize; e < call.tile.experts; e += num_threads / kWarpSize) {  // a warp an expert
    const int first = static_cast<int>(memory.padding[e]), count = static_cast<int>(memory.all[e]);
    const int last = first + static_cast<int>(blocks_of_slots(call.blocks, static_cast<std::uint32_t>(count)));
    if (outputs.expert_ids != nullptr) {
#pragma unroll 1
      for (int b = first + Warp().rank(); b < last; b += kWarpSize) outputs.expert_ids[b] = e;
    }
    if (outputs.sorted_token_ids != nullptr) {
#pragma unroll 1
      for (int place = first * size + count + Warp().rank(); place < last * size; place += kWarpSize)
        outputs.sorted_token_ids[place] = num_slots;
    }
  }
  const int room = static_cast<int>(call.blocks.room);
  if (outputs.expert_ids != nullptr) {
#pragma unroll 1
    for (int b = static_cast<int>(num_blocks) + rank; b < room; b += num_threads) outputs.expert_ids[b] = -1;
  }
  if (outputs.sorted_token_ids != nullptr) {
#pragma unroll 1
    for (int i = static_cast<int>(num_blocks) * size + rank; i < room * size; i += num_threads)
      outputs.sorted_token_ids[i] = num_slots;
  }
}

__global__ void __launch_bounds__(kThreads) bookkeep_tiles(const __grid_constant__ TilesCall call) {
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ std::uint32_t num_sorted, num_all, num_blocks;
  __shared__ bool is_last;
  const int rank = static_cast<int>(threadIdx.x), tile = static_cast<int>(blockIdx.x);
  const int experts = call.tile.experts, first_row = tile * call.tile.rows, first_slot = first_row * call.tile.columns;
  SlotShape shape = call.tile;
  shape.rows = min(shape.rows, call.rows - first_row);
  const SlotMemory slots = slot_memory(shape, shared);
  auto* rest = reinterpret_cast<std::uint32_t*>(shared) + slot_layout(shape).words;
  const TileMemory memory{rest, rest + experts, rest + 2 * experts};
  const BookkeepOutputs& outputs = call.outputs;
  const int words = row_words(shape);
  let_next_kernel_start();
  // The first time with ids that are made up and without a trace, so that the code need not come from memory when the
  // previous kernel has ended.
#pragma unroll 1
  for (int pass = 0; pass < 2; ++pass) {
    const bool writes = pass == 1;
    clear_slots(shape, slots);
#pragma unroll 1
    for (int i = rank; i < 2 * experts; i += kThreads) memory.all[i] = 0;  // and before
    __syncthreads();
    if (writes) {
      wait_for_previous_kernel();
      load_ids<2>(shape, slots, call.slot_ids + first_slot);
      add_counts(call, tile, memory);
    } else {
      make_up_ids(shape, slots);
    }
    __syncthreads();
    // Whoever is the last to have read the counts puts them back.
    const bool counts = writes && rank == kThreads - 1;
    if (counts) order_accesses();
    const std::uint32_t came_before = add_if(counts, call.state.tiles_done, 1);
    place_experts(
        shape, call.blocks,
        [&](int e) {
          std::uint32_t own = 0;
#pragma unroll
          for (int w = 0; w < kTileRowWords; ++w) {
            if (w >= words) break;
            slots.earlier[w * experts + e] = static_cast<std::uint16_t>(own);
            own += __popc(slots.bits[w * experts + e]);
          }
          return ExpertSlots{own, memory.all[e], memory.before[e]};
        },
        [&](int e, const ExpertSlots& of_expert, std::uint32_t blocks, const EarlierExperts& earlier) {
          set_places(call.blocks, slots, e, of_expert, earlier);
          memory.padding[e] = earlier.blocks;
          const bool is_end = e == experts - 1;
          if (is_end) {
            num_sorted = earlier.own + of_expert.own;
            num_all = earlier.all + of_expert.all;
            num_blocks = earlier.blocks + blocks;
          }
          if (!writes || tile != 0) return;
          if (outputs.tokens_per_expert != nullptr)
            outputs.tokens_per_expert[e] = static_cast<std::int32_t>(of_expert.all);
          if (outputs.expert_offsets == nullptr) return;
          outputs.expert_offsets[e] = static_cast<std::int32_t>(earlier.all);
          if (is_end) outputs.expert_offsets[experts] = static_cast<std::int32_t>(earlier.all + of_expert.all);
        });
    __syncthreads();
    if (writes && tile == 0 && rank == 0 && outputs.num_tokens_post_padded != nullptr && call.blocks.size > 0)
      *outputs.num_tokens_post_padded = static_cast<std::int32_t>(num_blocks) * call.blocks.size;
    write_padding(call, memory, writes ? num_all : static_cast<std::uint32_t>(call.rows * call.tile.columns),
                  writes ? num_blocks : static_cast<std::uint32_t>(call.blocks.room));
    place_slots<false>(shape, slots, 0, shape.rows, num_sorted, first_slot, writes, outputs);
    if (counts) is_last = came_before + 1 == static_cast<std::uint32_t>(call.tiles);
    __syncthreads();
  }
  if (!is_last) return;
  order_accesses();
#pragma unroll 1
  for (int i = rank; i < call.tiles * call.words_of_tile; i += kThreads) call.state.counts[i] = 0;
  if (rank == 0) *call.state.tiles_done = 0;
}

}  // namespace

bool can_bookkeep_tiles(const RouterView& router, std::int64_t num_tokens, std::int64_t block_size) {
  const SlotUnits units = slot_units(router);
  const std::int64_t rows = num_tokens * units.of_row;
  if (rows == 0 || rows > kMostTiles * kMostTileRows || rows * units.columns > kMostSlots) return false;
  if (router.gate_rows > kMostTileExperts || block_size > kLargestBlock) return false;  // places fit 31 bits, too
  const SlotShape tile = slot_shape(rows_of_tile(rows), units.columns, router.gate_rows);
  return std::int64_t{tile.rows} * tile.columns <= kMostTileSlots && tile_bytes(tile) <= kMostBytes;
}

CallSlots counted_slots(const RouterView& router, std::int64_t num_tokens, std::int64_t first_row,
                        const TileState& state) {
  const std::int64_t units = slot_units(router).of_row, of_tile = rows_of_tile(num_tokens * units);
  CallSlots slots{};
  slots.counts = state.counts;
  slots.first_unit = first_row * units;
  slots.units_of_row = static_cast<std::int32_t>(units);
  slots.words_of_tile = static_cast<std::int32_t>(ceil_div(router.gate_rows, kExpertsOfWord));
  while (std::int64_t{1} << slots.shift < of_tile) ++slots.shift;
  return slots;
}

cudaError_t launch_bookkeep_tiles(const RouterView& router, const CallView& call, const BookkeepOutputs& outputs,
                                  const TileState& state, cudaStream_t stream) {
  const cudaError_t status =
      cudaFuncSetAttribute(bookkeep_tiles, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMostBytes));
  if (status != cudaSuccess) return status;
  const SlotUnits units = slot_units(router);
  const std::int64_t rows = call.num_tokens * units.of_row, of_tile = rows_of_tile(rows),
                     tiles = ceil_div(rows, of_tile);
  TilesCall tiled{};
  tiled.tile = slot_shape(of_tile, units.columns, router.gate_rows);
  tiled.rows = static_cast<std::int32_t>(rows);
  tiled.tiles = static_cast<std::int32_t>(tiles);
  tiled.words_of_tile = static_cast<std::int32_t>(ceil_div(router.gate_rows, kExpertsOfWord));
  tiled.slot_ids = call.slots.ids;
  tiled.state = state;
  tiled.blocks = slot_blocks(rows * units.columns, router.gate_rows, outputs.block_size);
  tiled.outputs = outputs;
  return launch_pdl(bookkeep_tiles, dim3(static_cast<unsigned>(tiles)), dim3(kThreads), tile_bytes(tiled.tile), stream,
                    tiled);
}

}  // namespace samebits::cuda
