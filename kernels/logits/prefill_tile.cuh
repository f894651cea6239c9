// The kernel of the prefill form of the logits: tiles of rows and experts on the tensor cores of sm_90a.
//
// One thread block computes kRows rows times kExperts experts over all of H, or two of a cluster each over a half of
// its chunks of 256 columns. In a block a warp or two copy blocks of 64 columns, of the rows and of every part of the
// experts, into a ring of stages; each warpgroup (4 warps) multiplies 64 rows. A chunk is 4 such blocks: 16 steps from
// +0 for each part, so the parts are kParts independent chains. A last chunk is padded to whole blocks with +0 in both
// operands.
//
// The values of the chunks are added left to right, the order of docs/contract.md (Logits), in registers; with kChains
// = 2 while the next chunk is multiplied in other registers. Where two blocks share them, the second keeps the values
// of its chunks in shared memory until it has the sum of the first (exchange.cuh).
//
// A narrow tile is bound by the bytes of shared memory that its copies write and its wgmmas read, if nothing else holds
// it up: so the loop of a thread that copies is a few instructions, a stage holds two blocks of columns, and two warps
// copy in turn.
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/cuda/pdl.h"
#include "kernels/cuda/view.h"
#include "kernels/logits/async_copy.cuh"
#include "kernels/logits/exchange.cuh"
#include "kernels/logits/prefill.h"
#include "kernels/logits/store_piece.cuh"
#include "kernels/logits/wgmma.cuh"

namespace samebits::cuda {

inline constexpr int kLineBytes = kTileColumns * 2;
inline constexpr int kSwizzleBytes = 1024;  // alignment of an operand
inline constexpr int kWarpgroupRows = 64, kWarpgroupThreads = 128;

// Registers of a thread that multiplies: kAccumulators and some 30 more.
template <int kWarpgroups_, int kExperts_, int kParts_, int kShares_>
struct Tile {
  static constexpr int kWarpgroups = kWarpgroups_, kExperts = kExperts_, kParts = kParts_, kShares = kShares_;
  static constexpr int kRows = kWarpgroups * kWarpgroupRows;
  static constexpr int kChains = kParts == 1 && kExperts <= (kWarpgroups == 2 ? 144 : 72) ? 2 : 1;
  static constexpr int kAccumulators = (kParts * kChains + 1) * kExperts / 2;
  // Warps in their order: those that multiply, that copy. Where a thread needs more than its
  // share of the registers, those that multiply take them from a warpgroup that copies.
  static constexpr int kMultiplyingWarps = kWarpgroups * kWarpgroupThreads / 32;
  static constexpr bool kMovesRegisters = kWarpgroups == 2 && kAccumulators > 148;
  // Two blocks of neighbouring slices may copy half of their common rows each, to both.
  static constexpr bool kMayPair = kWarpgroups == 2 && kParts == 1 && kExperts <= 112;
  // With one chain the second warpgroup begins later than the first: while one folds, the other multiplies.
  static constexpr bool kStaggers = kWarpgroups == 2 && kParts == 1 && kChains == 1;
  // A block of columns: the rows, then the experts part by part.
  static constexpr int kRowBytes = kRows * kLineBytes, kExpertBytes = kExperts * kLineBytes;
  static constexpr int kBlockBytes = kRowBytes + kParts * kExpertBytes;
  static constexpr int kBlocksOfStage = kWarpgroups == 1 && kBlockBytes <= 17 * 1024 ? 2 : 1;
  static constexpr int kStageBytes = kBlocksOfStage * kBlockBytes;
  static constexpr int kCopyingWarps = kBlocksOfStage;
  static constexpr int kThreads = 32 * (kMultiplyingWarps + (kMovesRegisters ? 4 : kCopyingWarps));
  // Chunks that the second block may keep: half of those of H up to 7,168, or 4,096.
  static constexpr int kMostKept = kShares == 1 ? 0 : kParts == 1 ? 14 : 8;
  using Exchange = HalfExchange<kExperts, kMostKept>;
  static constexpr int kStages = (224 * 1024 - Exchange::kBytes) / kStageBytes;
  // The stages, what is exchanged, and what the alignment takes.
  static constexpr int kSharedBytes = kStages * kStageBytes + Exchange::kBytes + kSwizzleBytes;
  static_assert(kExpertBytes % kSwizzleBytes == 0, "every operand starts at a multiple of the swizzle");
  static_assert(kStages >= 3, "a stage is filled while two are read");
  static_assert(kShares == 1 || (kShares == 2 && kWarpgroups == 1));
};

// Parameters in the order of their use, those of a router alone first: each line comes from memory.
struct PrefillArguments {
  const std::uint16_t* weight_tiles;
  float* sums;  // [T][Gp], where there are no outputs
  std::int64_t num_tokens;
  const std::int32_t* num_valid_rows;
  std::int32_t padded_gate_rows, num_blocks, num_slices;  // blocks of 64 columns; slices of kExperts experts
  std::int32_t tile_rows;  // that are copied: min(T, kRows), as rows that are not there would cost time
  // Blocks that copy rows together; row tiles whose slices follow one another in the grid, rows first, so that what
  // runs at the same time reads few rows and few experts.
  std::int32_t members, group_rows;
  OutputPieces outputs;
};

// sum += value; no chunk is -0, so the first one is added to +0 like the others.
template <int kSize>
__device__ __forceinline__ void fold(const float (&value)[kSize], float (&sum)[kSize]) {
#pragma unroll
  for (int i = 0; i < kSize; ++i) sum[i] = __fadd_rn(sum[i], value[i]);
}

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

inline constexpr int kBlocksPerChunk = kChunkWidth / kTileColumns;
inline constexpr int kWarpgroupWarps = kWarpgroupThreads / 32;

// Shared addresses. Of each stage there are two barriers of 8 bytes: filled, and behind those of all stages, drained.
struct Ring {
  std::uint32_t stages, barriers;
};

// Where a warp stands in it.
template <class Tile>
struct RingPosition {
  Ring ring;
  std::uint32_t stage, filled, parity;

  explicit __device__ __forceinline__ RingPosition(const Ring& ring)
      : ring(ring), stage(ring.stages), filled(ring.barriers), parity(0) {}
  __device__ __forceinline__ std::uint32_t drained() const { return filled + 8 * Tile::kStages; }
  template <int kCount = 1>
  __device__ __forceinline__ void advance() {
    stage += kCount * Tile::kStageBytes;
    filled += kCount * 8;
    if (filled >= ring.barriers + 8 * Tile::kStages) {
      stage -= Tile::kStages * Tile::kStageBytes;
      filled -= Tile::kStages * 8;
      parity ^= 1;
    }
  }
};

template <class Tile>
__device__ __forceinline__ void init_ring(const Ring& ring, int members) {
#pragma unroll
  for (int i = 0; i < Tile::kStages; ++i) {
    init_barrier(ring.barriers + 8 * i, 1);
    init_barrier(ring.barriers + 8 * (Tile::kStages + i), Tile::kMultiplyingWarps * members);
  }
}

// Blocks of 64 columns of a thread block: whole chunks, but for the last.
struct BlockRange {
  std::int32_t first, count;
};
template <class Tile>
__device__ __forceinline__ BlockRange blocks_of(std::int32_t num_blocks, int share) {
  if (Tile::kShares == 1) return {0, num_blocks};
  const std::int32_t chunks = (num_blocks + kBlocksPerChunk - 1) / kBlocksPerChunk;
  const std::int32_t split = (chunks - min((chunks + 1) / 2, Tile::kMostKept)) * kBlocksPerChunk;
  return share == 0 ? BlockRange{0, split} : BlockRange{split, num_blocks - split};
}

// One thread of copying warp `index`, which fills every kCopyingWarps-th stage. Experts from Gp on are not copied:
// their accumulators hold anything and are not stored.
template <class Tile>
__device__ __forceinline__ void fill_stages(const Ring& ring, const CUtensorMap& rows,
                                            const PrefillArguments& arguments, const BlockRange& range, int index,
                                            int member, std::int64_t first_row, std::int32_t first_expert) {
  constexpr int kBlocksAtOnce = Tile::kCopyingWarps * Tile::kBlocksOfStage;
  static_assert(kBlocksPerChunk % kBlocksAtOnce == 0 && Tile::kCopyingWarps <= 2);
  auto expert_bytes =
      static_cast<std::uint32_t>(min(Tile::kExperts, arguments.padded_gate_rows - first_expert) * kLineBytes);
  keep_in_register(expert_bytes);
  const auto row_bytes = static_cast<std::uint32_t>(arguments.tile_rows * kLineBytes);
  const bool is_pair = Tile::kMayPair && arguments.members > 1;
  if (is_pair) first_row += member * kWarpgroupRows;
  const std::int64_t block_bytes = std::int64_t{arguments.padded_gate_rows} * kLineBytes;  // of one part
  const int first_block = range.first + index * Tile::kBlocksOfStage, end_of_range = range.first + range.count;
  const auto* experts = reinterpret_cast<const unsigned char*>(arguments.weight_tiles) +
                        std::int64_t{first_expert} * kLineBytes + first_block * block_bytes;
  RingPosition<Tile> position(ring);
  if (index > 0) position.template advance<1>();
#pragma unroll 1
  for (std::int32_t begin = range.first; begin < end_of_range; begin += kBlocksPerChunk) {
    const std::int32_t end = min(begin + kBlocksPerChunk, end_of_range);
#pragma unroll 1
    for (std::int32_t block = begin + index * Tile::kBlocksOfStage; block < end; block += kBlocksAtOnce) {
      const std::int32_t blocks = min(Tile::kBlocksOfStage, end - block);
      wait_for_phase(position.drained(), position.parity ^ 1);
      arrive_expecting(position.filled, blocks * (row_bytes + Tile::kParts * expert_bytes));
#pragma unroll
      for (int i = 0; i < Tile::kBlocksOfStage; ++i) {
        if (i >= blocks) break;
        const std::uint32_t to = position.stage + i * Tile::kBlockBytes;
        const std::int32_t column = (block + i) * kTileColumns, row = static_cast<std::int32_t>(first_row);
        if (is_pair) {
          copy_box_to_pair(to + member * kWarpgroupRows * kLineBytes, rows, column, row, position.filled);
        } else {
          copy_box(to, rows, column, row, position.filled);
        }
#pragma unroll
        for (int part = 0; part < Tile::kParts; ++part)
          copy_bytes(to + Tile::kRowBytes + part * Tile::kExpertBytes,
                     experts + (std::int64_t{part} * arguments.num_blocks + i) * block_bytes, expert_bytes,
                     position.filled);
      }
      experts += kBlocksAtOnce * block_bytes;
      position.template advance<Tile::kCopyingWarps>();
    }
  }
}

// One warpgroup, the wgmmas of its 64 rows.
template <class Tile>
struct Multiplier {
  using Chain = float[Tile::kParts][Tile::kExperts / 2];

  RingPosition<Tile> position;
  std::uint32_t row_offset;
  bool first_lane, is_pair;
  int warpgroup;

  __device__ __forceinline__ Multiplier(const Ring& ring, int warpgroup, int members)
      : position(ring),
        row_offset(warpgroup * kWarpgroupRows * kLineBytes),
        first_lane(threadIdx.x % 32 == 0),
        is_pair(Tile::kMayPair && members > 1),
        warpgroup(warpgroup) {}

  static __device__ __forceinline__ void pin(Chain& chain) {
#pragma unroll
    for (int part = 0; part < Tile::kParts; ++part) pin_registers(chain[part]);
  }
  static __device__ __forceinline__ void clear(Chain& chain) {
#pragma unroll
    for (int part = 0; part < Tile::kParts; ++part) {
#pragma unroll
      for (int i = 0; i < Tile::kExperts / 2; ++i) chain[part][i] = 0.0f;
    }
  }

  // chain += a block of columns, or = where it does not accumulate; asynchronously, as one group.
  template <int kBlocks>
  __device__ __forceinline__ void multiply_blocks(Chain& chain, bool accumulate) const {
    pin(chain);
    fence_before_wgmma();
#pragma unroll
    for (int i = 0; i < kBlocks; ++i) {
      const std::uint32_t block = position.stage + i * Tile::kBlockBytes;
      const std::uint64_t rows = operand_descriptor(block + row_offset);
#pragma unroll
      for (int part = 0; part < Tile::kParts; ++part) {
        const std::uint64_t experts = operand_descriptor(block + Tile::kRowBytes + part * Tile::kExpertBytes);
#pragma unroll
        for (int step = 0; step < kTileColumns / kStepWidth; ++step)
          wgmma(chain[part], rows + step * kStepOfDescriptor, experts + step * kStepOfDescriptor,
                accumulate || i > 0 || step > 0);
      }
    }
    commit_wgmma();
  }
  // The stage at the position, of which `blocks` blocks are there.
  __device__ __forceinline__ void multiply_stage(Chain& chain, std::int32_t blocks, bool accumulate) const {
    wait_for_phase(position.filled, position.parity);
    if (Tile::kBlocksOfStage == 1 || blocks >= Tile::kBlocksOfStage) {
      multiply_blocks<Tile::kBlocksOfStage>(chain, accumulate);
    } else {
      multiply_blocks<1>(chain, accumulate);
    }
  }
  __device__ __forceinline__ void release(std::uint32_t drained) const {
    if (is_pair) {  // by a lane for each block
      const int lane = threadIdx.x % 32;
      if (lane < 2) arrive_in_cluster(address_in_block(drained, lane));
    } else if (first_lane) {
      arrive(drained);
    }
  }

  // take(the value of a chunk whose wgmmas have ended).
  template <class Take>
  static __device__ __forceinline__ void take_value(Chain& chain, Take take) {
    pin(chain);
    float value[Tile::kExperts / 2];
#pragma unroll
    for (int i = 0; i < Tile::kExperts / 2; ++i) {
      value[i] = chain[0][i];
#pragma unroll
      for (int part = 1; part < Tile::kParts; ++part) value[i] = __fadd_rn(value[i], chain[part][i]);
    }
    take(value);
  }

  // take(the value of each chunk of this thread block).
  template <class Take>
  __device__ __forceinline__ void multiply_chunks(std::int32_t num_blocks, Take take) {
    Chain chain;
    clear(chain);
    if constexpr (Tile::kStaggers) {
      if (warpgroup == 1 && num_blocks > 1) wait_for_first_warpgroup();
    }
#pragma unroll 1
    for (std::int32_t begin = 0; begin < num_blocks; begin += kBlocksPerChunk) {
      const std::int32_t end = min(begin + kBlocksPerChunk, num_blocks);
      std::uint32_t drained = 0;
#pragma unroll 1
      for (std::int32_t block = begin; block < end; block += Tile::kBlocksOfStage, position.advance()) {
        multiply_stage(chain, end - block, block > begin);
        wait_for_wgmma<1>();
        if constexpr (Tile::kStaggers) {
          if (warpgroup == 0 && block == 1) let_second_warpgroup_start();
        }
        if (block > begin) release(drained);
        drained = position.drained();
      }
      wait_for_wgmma<0>();
      release(drained);
      take_value(chain, take);
    }
  }
  static __device__ __forceinline__ void wait_for_first_warpgroup() {
    asm volatile("bar.sync 1, 256;" ::: "memory");
  }
  static __device__ __forceinline__ void let_second_warpgroup_start() {
    asm volatile("bar.arrive 1, 256;" ::: "memory");
  }

  // The same with two chains in turn: the value of a chunk is taken while the next one is multiplied.
  template <class Take>
  __device__ __forceinline__ void multiply_chunks_in_turn(std::int32_t num_blocks, Take take) {
    Chain even, odd;
    clear(even);
    clear(odd);
    std::uint32_t drained = 0;
    const auto multiply_chunk = [&](std::int32_t begin, Chain& chain, Chain& last_chain) {
      const std::int32_t end = min(begin + kBlocksPerChunk, num_blocks);
      multiply_stage(chain, end - begin, false);
      wait_for_wgmma<1>();
      if (begin > 0) {
        release(drained);
        take_value(last_chain, take);
      }
      drained = position.drained();
      position.advance();
#pragma unroll 1
      for (std::int32_t block = begin + Tile::kBlocksOfStage; block < end;
           block += Tile::kBlocksOfStage, position.advance()) {
        multiply_stage(chain, end - block, true);
        wait_for_wgmma<1>();
        release(drained);
        drained = position.drained();
      }
    };
    const auto end_chunk = [&](Chain& chain) {
      wait_for_wgmma<0>();
      release(drained);
      take_value(chain, take);
    };
    std::int32_t begin = 0;
#pragma unroll 1
    for (; begin + kBlocksPerChunk < num_blocks; begin += 2 * kBlocksPerChunk) {
      multiply_chunk(begin, even, odd);
      multiply_chunk(begin + kBlocksPerChunk, odd, even);
    }
    if (begin < num_blocks) {
      multiply_chunk(begin, even, odd);
      end_chunk(even);
    } else {
      end_chunk(odd);
    }
  }
};

template <class Tile>
__device__ __forceinline__ void store_sums(const PrefillArguments& arguments, std::int64_t num_rows,
                                           std::int64_t first_row, std::int32_t first_expert, int warp,
                                           const float (&sum)[Tile::kExperts / 2]) {
  if (__builtin_expect(arguments.outputs.count > 0, 0)) {  // behind the code of a router alone
#pragma unroll 1
    for (std::int32_t i = 0; i < arguments.outputs.count; ++i) {
      const OutputPiece& piece = arguments.outputs.pieces[i];
      if (piece.first_column < first_expert + Tile::kExperts && piece.end_column > first_expert)
        store_piece<Tile::kExperts>(piece, num_rows, first_row + 16 * warp, first_expert, sum);
    }
    return;
  }
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int64_t row = first_row + 16 * warp + lane / 4 + 8 * half;
    if (row >= num_rows) continue;
    float* out = arguments.sums + row * arguments.padded_gate_rows + first_expert + 2 * (lane % 4);
#pragma unroll
    for (int j = 0; j < Tile::kExperts / 8; ++j) {
      if (first_expert + 8 * j < arguments.padded_gate_rows)
        *reinterpret_cast<float2*>(out + 8 * j) = make_float2(sum[4 * j + 2 * half], sum[4 * j + 2 * half + 1]);
    }
  }
}

// All warps that multiply, of whole warpgroups.
template <class Tile>
__device__ __forceinline__ void multiply(const Ring& ring, const typename Tile::Exchange& exchange,
                                         const PrefillArguments& arguments, const BlockRange& range, int share,
                                         std::int64_t num_rows, std::int64_t first_row, std::int32_t first_expert,
                                         int warp) {
  Multiplier<Tile> multiplier(ring, warp / kWarpgroupWarps, arguments.members);
  float sum[Tile::kExperts / 2] = {};
  std::uint32_t last_kept = exchange.place(warp);
  const auto take = [&](const float(&value)[Tile::kExperts / 2]) {
    if (Tile::kShares == 1 || share == 0) {
      fold(value, sum);
    } else {
      exchange.keep(last_kept, value);
    }
  };
  if (Tile::kShares == 1 || range.count > 0) {  // of a single chunk the first block has none
    if constexpr (Tile::kChains == 2) {
      multiplier.multiply_chunks_in_turn(range.count, take);
    } else {
      multiplier.multiply_chunks(range.count, take);
    }
  }
  if constexpr (Tile::kShares > 1) {
    if (share == 0) return exchange.send(warp, sum);
    exchange.add_kept(warp, last_kept, sum);
  }
  store_sums<Tile>(arguments, num_rows, first_row, first_expert, warp, sum);
}

// What a block computes.
struct TilePlace {
  std::int32_t row_tile, slice, member;
};
template <class Tile>
__device__ __forceinline__ TilePlace place_of(const PrefillArguments& arguments) {
  const bool is_pair = Tile::kMayPair && arguments.members > 1;
  const std::int32_t block = static_cast<std::int32_t>(blockIdx.x) / Tile::kShares;
  const std::int32_t tile = is_pair ? block / 2 : block, member = is_pair ? block % 2 : 0;
  const std::int32_t slices = is_pair ? arguments.num_slices / 2 : arguments.num_slices;
  std::int32_t row_tile = tile / slices, slice = tile % slices;
  if (Tile::kWarpgroups == 2 && arguments.group_rows > 1) {
    const auto row_tiles = static_cast<std::int32_t>(ceil_div(arguments.num_tokens, Tile::kRows));
    const std::int32_t first = row_tile / arguments.group_rows * arguments.group_rows, place = tile - first * slices;
    const std::int32_t group_rows = min(arguments.group_rows, row_tiles - first);
    row_tile = first + place % group_rows;
    slice = place / group_rows;
  }
  return {row_tile, is_pair ? 2 * slice + member : slice, member};
}

#endif  // defined(__CUDA_ARCH_FEAT_SM90_ALL)

// Blocks of a cluster are neighbours in the grid, then slices of the same rows: they read the same rows at about the
// same time.
template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    prefill_kernel(const __grid_constant__ CUtensorMap rows, const __grid_constant__ PrefillArguments arguments) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char dynamic_shared[];
  __shared__ std::uint64_t barriers[2 * Tile::kStages], exchanged[Tile::Exchange::kWarps];
  Ring ring{(shared_address(dynamic_shared) + kSwizzleBytes - 1) / kSwizzleBytes * kSwizzleBytes,
            shared_address(barriers)};
  keep_in_register(ring.stages);
  keep_in_register(ring.barriers);
  const int share = static_cast<int>(blockIdx.x) % Tile::kShares;
  const TilePlace place = place_of<Tile>(arguments);
  const bool is_pair = Tile::kMayPair && arguments.members > 1;
  const typename Tile::Exchange exchange{ring.stages + Tile::kStages * Tile::kStageBytes, shared_address(exchanged)};
  const BlockRange range = blocks_of<Tile>(arguments.num_blocks, share);
  // The same in all lanes, and known to be to the compiler.
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
  let_next_kernel_start();
  if (warp == Tile::kMultiplyingWarps) {
    if (is_elected_lane()) {
      prefetch_map(rows);
      init_ring<Tile>(ring, Tile::kMayPair ? arguments.members : 1);
      if constexpr (Tile::kShares > 1) exchange.init();
      fence_barrier_init();
    }
  }
  if (Tile::kShares > 1 || is_pair) {
    __syncwarp();
    sync_cluster_barriers();
  } else {
    __syncthreads();
  }
  wait_for_previous_kernel();

  const std::int64_t row_of_tile = std::int64_t{place.row_tile} * Tile::kRows;
  const std::int32_t first_expert = place.slice * Tile::kExperts;
  const std::int64_t num_rows = arguments.num_valid_rows == nullptr
                                    ? arguments.num_tokens
                                    : clamp_rows(*arguments.num_valid_rows, arguments.num_tokens);
  if (row_of_tile >= num_rows) return;  // padding, of the whole cluster
  // The last tile begins where it ends with the last row; rows that it shares with the one before have the same bits.
  const std::int64_t first_row = min(row_of_tile, arguments.num_tokens - arguments.tile_rows);
  if (warp < Tile::kMultiplyingWarps) {
    if constexpr (Tile::kMovesRegisters) take_registers<240>();
    multiply<Tile>(ring, exchange, arguments, range, share, num_rows, first_row, first_expert, warp);
  } else {
    if constexpr (Tile::kMovesRegisters) give_registers<24>();
    const int copier = warp - Tile::kMultiplyingWarps;
    if (copier < Tile::kCopyingWarps && is_elected_lane()) {
      fence_before_copies();
      fill_stages<Tile>(ring, rows, arguments, range, copier, place.member, first_row, first_expert);
    }
  }
  if (Tile::kShares > 1) {  // no block ends while what it sends, or is sent, has not come
    __syncwarp();
    sync_cluster_barriers();
  } else if (is_pair) {  // nor while the other's stages are being released
    __syncwarp();
    sync_cluster_arrivals();
  }
#else
  __trap();  // launch_logits_prefill refuses other architectures
#endif
}

}  // namespace samebits::cuda
