// The logits of many rows, on the tensor cores of sm_90a.
//
// A cluster of kShares thread blocks computes kRows rows times kExperts experts over all of H. Its blocks take the
// chunks of 256 columns in turn. In a block one warp copies blocks of 64 columns, of the rows and of every part of the
// experts, into a ring of stages; each warpgroup (4 warps) multiplies 64 rows. A chunk is 4 such blocks: 16 steps from
// +0 for each part, so the parts are kParts independent chains. A last chunk is padded to whole blocks with +0 in both
// operands.
//
// The values of the chunks are added left to right, the order of docs/contract.md (Logits). Where one block has all
// chunks, it does so in registers. Where blocks share them, each warp hands its 16 rows of a chunk to the block that
// folds these rows (exchange.cuh), in which a warp does nothing else.
#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/pdl.h"
#include "kernels/logits/async_copy.cuh"
#include "kernels/logits/exchange.cuh"
#include "kernels/logits/prefill.h"
#include "kernels/logits/wgmma.cuh"

namespace samebits::cuda {
namespace {

constexpr int kLineBytes = kTileColumns * 2;
constexpr int kSwizzleBytes = 1024;  // alignment of an operand
constexpr int kWarpgroupRows = 64, kWarpgroupThreads = 128;

// Registers of a thread: (kParts + 1) * kExperts / 2 accumulators and sums, and some 30 more.
template <int kWarpgroups_, int kExperts_, int kParts_, int kShares_>
struct Tile {
  static constexpr int kWarpgroups = kWarpgroups_, kExperts = kExperts_, kParts = kParts_, kShares = kShares_;
  static constexpr int kRows = kWarpgroups * kWarpgroupRows;
  // Warps in their order: those that multiply, the one that copies, those that fold.
  static constexpr int kMultiplyingWarps = kWarpgroups * kWarpgroupThreads / 32;
  static constexpr int kFoldingWarps = kShares == 1 ? 0 : kMultiplyingWarps / kShares;
  static constexpr int kThreads = 32 * (kMultiplyingWarps + 1 + kFoldingWarps);
  // A stage: the rows, then the experts part by part.
  static constexpr int kRowBytes = kRows * kLineBytes, kExpertBytes = kExperts * kLineBytes;
  static constexpr int kStageBytes = kRowBytes + kParts * kExpertBytes;
  using Exchange = ChunkExchange<kMultiplyingWarps, kExperts, kShares>;
  static constexpr int kStages = (224 * 1024 - Exchange::kBytes) / kStageBytes;
  // The stages, what is exchanged, and what the alignment takes.
  static constexpr int kSharedBytes = kStages * kStageBytes + Exchange::kBytes + kSwizzleBytes;
  static_assert(kExpertBytes % kSwizzleBytes == 0, "every operand starts at a multiple of the swizzle");
  static_assert(kStages >= 3, "a stage is filled while two are read");
};

struct PrefillArguments {
  const std::uint16_t* weight_tiles;
  float* sums;  // [T][Gp]
  std::int64_t num_tokens;
  const std::int32_t* num_valid_rows;
  std::int32_t padded_gate_rows, num_blocks, num_slices;  // blocks of 64 columns; slices of kExperts experts
};

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

constexpr int kBlocksPerChunk = kChunkWidth / kTileColumns;
constexpr int kWarpgroupWarps = kWarpgroupThreads / 32;

template <class Tile>
struct Ring {
  std::uint32_t stages, filled, drained;  // shared addresses; one barrier of 8 bytes a stage

  __device__ __forceinline__ std::uint32_t stage(int i) const { return stages + i * Tile::kStageBytes; }
  __device__ __forceinline__ std::uint32_t filled_barrier(int i) const { return filled + 8 * i; }
  __device__ __forceinline__ std::uint32_t drained_barrier(int i) const { return drained + 8 * i; }
};

// One thread. Experts from Gp on are not copied: their accumulators hold anything and are not stored.
template <class Tile>
__device__ __forceinline__ void fill_stages(const Ring<Tile>& ring, const CUtensorMap& rows,
                                            const PrefillArguments& arguments, int share, std::int64_t first_row,
                                            std::int32_t first_expert) {
  const auto expert_bytes =
      static_cast<std::uint32_t>(min(Tile::kExperts, arguments.padded_gate_rows - first_expert) * kLineBytes);
  RingPosition<Tile::kStages> position;
  for (std::int32_t begin = share * kBlocksPerChunk; begin < arguments.num_blocks;
       begin += Tile::kShares * kBlocksPerChunk) {
    const std::int32_t end = min(begin + kBlocksPerChunk, arguments.num_blocks);
    for (std::int32_t block = begin; block < end; ++block, position.advance()) {
      const std::uint32_t stage = ring.stage(position.stage), filled = ring.filled_barrier(position.stage);
      wait_for_phase(ring.drained_barrier(position.stage), position.parity ^ 1);
      arrive_expecting(filled, Tile::kRowBytes + Tile::kParts * expert_bytes);
      copy_box(stage, rows, block * kTileColumns, static_cast<std::int32_t>(first_row), filled);
      for (int part = 0; part < Tile::kParts; ++part) {
        const std::int64_t line =
            (std::int64_t{part} * arguments.num_blocks + block) * arguments.padded_gate_rows + first_expert;
        copy_bytes(stage + Tile::kRowBytes + part * Tile::kExpertBytes, arguments.weight_tiles + line * kTileColumns,
                   expert_bytes, filled);
      }
    }
  }
}

// One warpgroup: take(the value of each chunk of this thread block), for its 64 rows.
template <class Tile, class Take>
__device__ __forceinline__ void multiply_stages(const Ring<Tile>& ring, std::int32_t num_blocks, int share,
                                                int warpgroup, Take take) {
  const bool first_lane = threadIdx.x % 32 == 0;
  float chain[Tile::kParts][Tile::kExperts / 2];
#pragma unroll
  for (int part = 0; part < Tile::kParts; ++part) {
#pragma unroll
    for (int i = 0; i < Tile::kExperts / 2; ++i) chain[part][i] = 0.0f;
  }

  RingPosition<Tile::kStages> position;
  for (std::int32_t begin = share * kBlocksPerChunk; begin < num_blocks; begin += Tile::kShares * kBlocksPerChunk) {
    const std::int32_t end = min(begin + kBlocksPerChunk, num_blocks);
    int previous_stage = 0;
#pragma unroll 1
    for (std::int32_t block = begin; block < end; ++block, position.advance()) {
      const std::uint32_t stage = ring.stage(position.stage);
      wait_for_phase(ring.filled_barrier(position.stage), position.parity);
      const std::uint64_t rows = operand_descriptor(stage + warpgroup * kWarpgroupRows * kLineBytes);
#pragma unroll
      for (int part = 0; part < Tile::kParts; ++part) pin_registers(chain[part]);
      fence_before_wgmma();
#pragma unroll
      for (int part = 0; part < Tile::kParts; ++part) {
        const std::uint64_t experts = operand_descriptor(stage + Tile::kRowBytes + part * Tile::kExpertBytes);
#pragma unroll
        for (int step = 0; step < kTileColumns / kStepWidth; ++step)
          wgmma(chain[part], rows + step * kStepOfDescriptor, experts + step * kStepOfDescriptor,
                block > begin || step > 0);
      }
      commit_wgmma();
      wait_for_wgmma<1>();
      if (block > begin && first_lane) arrive(ring.drained_barrier(previous_stage));
      previous_stage = position.stage;
    }
    wait_for_wgmma<0>();
    if (first_lane) arrive(ring.drained_barrier(previous_stage));
#pragma unroll
    for (int part = 0; part < Tile::kParts; ++part) pin_registers(chain[part]);
    float value[Tile::kExperts / 2];
#pragma unroll
    for (int i = 0; i < Tile::kExperts / 2; ++i) {
      value[i] = chain[0][i];
#pragma unroll
      for (int part = 1; part < Tile::kParts; ++part) value[i] = __fadd_rn(value[i], chain[part][i]);
    }
    take(value);
  }
}

template <class Tile>
__device__ __forceinline__ void store_sums(const PrefillArguments& arguments, std::int64_t num_rows,
                                           std::int64_t first_row, std::int32_t first_expert, int warp,
                                           const float (&sum)[Tile::kExperts / 2]) {
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

#endif  // defined(__CUDA_ARCH_FEAT_SM90_ALL)

// sum += value; no chunk is -0, so the first one is added to +0 like the others.
template <int kSize>
__device__ __forceinline__ void fold(const float (&value)[kSize], float (&sum)[kSize]) {
#pragma unroll
  for (int i = 0; i < kSize; ++i) sum[i] = __fadd_rn(sum[i], value[i]);
}

// Blocks of a cluster are neighbours in the grid, then slices of the same rows: they read the same rows at about the
// same time.
template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    prefill_kernel(const __grid_constant__ CUtensorMap rows, const __grid_constant__ PrefillArguments arguments) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char dynamic_shared[];
  __shared__ std::uint64_t filled[Tile::kStages], drained[Tile::kStages], exchanged[Tile::Exchange::kBarriers];
  const Ring<Tile> ring{(shared_address(dynamic_shared) + kSwizzleBytes - 1) / kSwizzleBytes * kSwizzleBytes,
                        shared_address(filled), shared_address(drained)};
  const int share = static_cast<int>(blockIdx.x) % Tile::kShares, tile = static_cast<int>(blockIdx.x) / Tile::kShares;
  const typename Tile::Exchange exchange{ring.stage(Tile::kStages), shared_address(exchanged), share};
  let_next_kernel_start();
  if (threadIdx.x == 0) {
    for (int i = 0; i < Tile::kStages; ++i) {
      init_barrier(ring.filled_barrier(i), 1);
      init_barrier(ring.drained_barrier(i), Tile::kMultiplyingWarps);
    }
    if constexpr (Tile::kShares > 1) exchange.init();
    fence_barrier_init();
  }
  if constexpr (Tile::kShares > 1) {
    sync_cluster_barriers();
  } else {
    __syncthreads();
  }
  wait_for_previous_kernel();

  const std::int64_t first_row = std::int64_t{tile / arguments.num_slices} * Tile::kRows;
  const std::int32_t first_expert = tile % arguments.num_slices * Tile::kExperts;
  const std::int64_t num_rows = arguments.num_valid_rows == nullptr
                                    ? arguments.num_tokens
                                    : clamp_rows(*arguments.num_valid_rows, arguments.num_tokens);
  if (first_row >= num_rows) return;  // padding, of the whole cluster
  // The same in all lanes, and known to be to the compiler.
  const int warp = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / 32, 0);
  if (warp < Tile::kMultiplyingWarps) {
    if constexpr (Tile::kShares == 1) {
      float sum[Tile::kExperts / 2] = {};
      multiply_stages(ring, arguments.num_blocks, share, warp / kWarpgroupWarps,
                      [&](const float(&value)[Tile::kExperts / 2]) { fold(value, sum); });
      store_sums<Tile>(arguments, num_rows, first_row, first_expert, warp, sum);
    } else {
      int round = 0;
      multiply_stages(ring, arguments.num_blocks, share, warp / kWarpgroupWarps,
                      [&](const float(&value)[Tile::kExperts / 2]) { exchange.send(warp, round++, value); });
      exchange.wait_until_read(warp, round);
    }
  } else if (warp == Tile::kMultiplyingWarps) {
    if (threadIdx.x % 32 == 0) {
      fence_before_copies();
      fill_stages(ring, rows, arguments, share, first_row, first_expert);
    }
  } else if constexpr (Tile::kShares > 1) {
    const int index = warp - Tile::kMultiplyingWarps - 1;
    float sum[Tile::kExperts / 2] = {};
    exchange.receive(index, static_cast<int>(ceil_div(arguments.num_blocks, kBlocksPerChunk)),
                     [&](const float(&value)[Tile::kExperts / 2]) { fold(value, sum); });
    store_sums<Tile>(arguments, num_rows, first_row, first_expert, share * Tile::kFoldingWarps + index, sum);
  }
#else
  __trap();  // launch_logits_prefill refuses other architectures
#endif
}

// The rows [T][Hp] as boxes of kTileColumns columns and box_rows rows.
cudaError_t encode_rows(const RouterView& router, const CallView& call, int box_rows, CUtensorMap* map) {
  static const PFN_cuTensorMapEncodeTiled_v12000 kEncode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const cudaError_t status =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    return status == cudaSuccess && found == cudaDriverEntryPointSuccess
               ? reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function)
               : nullptr;
  }();
  if (kEncode == nullptr) return cudaErrorNotSupported;
  const auto columns = static_cast<cuuint64_t>(router.padded_hidden_size);
  // A single row may have any stride, but the map asks for rows that do not overlap.
  const cuuint64_t stride = call.num_tokens == 1 ? columns : static_cast<cuuint64_t>(call.input_stride);
  const cuuint64_t sizes[2] = {columns, static_cast<cuuint64_t>(call.num_tokens)}, stride_bytes[1] = {stride * 2};
  const cuuint32_t box[2] = {kTileColumns, static_cast<cuuint32_t>(box_rows)}, element_strides[2] = {1, 1};
  const CUresult result =
      kEncode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<std::uint16_t*>(call.input), sizes, stride_bytes,
              box, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
              CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

template <class Tile>
cudaError_t launch(const RouterView& router, const CallView& call, cudaStream_t stream) {
  CUtensorMap rows;
  cudaError_t status = encode_rows(router, call, Tile::kRows, &rows);
  if (status != cudaSuccess) return status;
  status = cudaFuncSetAttribute(prefill_kernel<Tile>, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes);
  if (status != cudaSuccess) return status;
  const auto num_slices = ceil_div(router.padded_gate_rows, Tile::kExperts);
  const PrefillArguments arguments{router.weight_tiles,
                                   call.sums,
                                   call.num_tokens,
                                   call.num_valid_rows,
                                   router.padded_gate_rows,
                                   static_cast<std::int32_t>(ceil_div(router.padded_hidden_size, kTileColumns)),
                                   static_cast<std::int32_t>(num_slices)};
  const std::int64_t blocks = ceil_div(call.num_tokens, Tile::kRows) * num_slices * Tile::kShares;
  return launch_pdl_clusters(prefill_kernel<Tile>, Tile::kShares, dim3(static_cast<unsigned>(blocks)),
                             dim3(Tile::kThreads), Tile::kSharedBytes, stream, rows, arguments);
}

// How long a tile shape takes, in microseconds, by rates measured on an H200. A block of 64 columns takes as long as
// its operands need into a multiprocessor (126 KB/us) or from the L2 cache into all (12 TB/s), or its products (690
// TFLOP/s), and no less than an experiment showed; a chunk no less than its exchange (18 KB/us); launch and ends
// are 3.2 us.
template <class Tile>
double predicted_time(const RouterView& router, const CallView& call) {
  static const int kClusters = [] {
    int clusters = 0;
    cudaLaunchConfig_t config{};
    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = Tile::kShares;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    config.gridDim = dim3(Tile::kShares);
    config.blockDim = dim3(Tile::kThreads);
    config.dynamicSmemBytes = Tile::kSharedBytes;
    config.attrs = &cluster;
    config.numAttrs = 1;
    if (cudaFuncSetAttribute(prefill_kernel<Tile>, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes) !=
            cudaSuccess ||
        cudaOccupancyMaxActiveClusters(&clusters, prefill_kernel<Tile>, &config) != cudaSuccess)
      return 0;
    return clusters;
  }();
  if (kClusters == 0) return 1e30;
  const std::int64_t clusters =
      ceil_div(call.num_tokens, Tile::kRows) * ceil_div(router.padded_gate_rows, Tile::kExperts);
  const std::int64_t waves = ceil_div(clusters, kClusters);
  const double at_once = static_cast<double>(waves == 1 ? clusters : kClusters) * Tile::kShares;
  const double kilobytes = Tile::kStageBytes / 1000.0;
  const double megaflop = 2e-6 * Tile::kRows * Tile::kExperts * Tile::kParts * kTileColumns;
  const double block = std::max(
      {Tile::kWarpgroups == 1 ? 0.2 : 0.34, kilobytes / 126, kilobytes * at_once / 12000, megaflop * at_once / 690});
  const double exchange = Tile::kShares == 1 ? 0.0 : Tile::kRows * Tile::kExperts * 4 / 1000.0 / 18;
  const double chunk = std::max(block * (kChunkWidth / kTileColumns), exchange);
  const auto rounds = static_cast<double>(ceil_div(router.num_chunks, Tile::kShares));
  return static_cast<double>(waves) * (rounds * chunk + 3.2);
}

// The fastest of the tile shapes.
template <class... Tiles>
cudaError_t launch_fastest(const RouterView& router, const CallView& call, cudaStream_t stream) {
  using Launch = cudaError_t (*)(const RouterView&, const CallView&, cudaStream_t);
  const std::pair<double, Launch> choices[] = {{predicted_time<Tiles>(router, call), launch<Tiles>}...};
  return std::min_element(std::begin(choices), std::end(choices),
                          [](const auto& a, const auto& b) { return a.first < b.first; })
      ->second(router, call, stream);
}

}  // namespace

cudaError_t launch_logits_prefill(const RouterView& router, const CallView& call, cudaStream_t stream) {
  int device = 0, major = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) status = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (status != cudaSuccess) return status;
  if (major != 9) return cudaErrorNotSupported;
  if (call.num_tokens == 0) return cudaSuccess;

  // Rows of a tile / 64, experts, parts, blocks that share the chunks.
  if (router.num_parts > 1) {
    return launch_fastest<Tile<1, 64, 3, 1>, Tile<1, 64, 3, 2>, Tile<1, 64, 3, 4>, Tile<2, 64, 3, 1>>(router, call,
                                                                                                      stream);
  }
  return launch_fastest<Tile<1, 64, 1, 1>, Tile<1, 64, 1, 2>, Tile<1, 64, 1, 4>, Tile<2, 64, 1, 1>, Tile<1, 96, 1, 1>,
                        Tile<1, 96, 1, 2>, Tile<1, 96, 1, 4>, Tile<2, 96, 1, 1>, Tile<1, 128, 1, 1>, Tile<1, 128, 1, 2>,
                        Tile<1, 128, 1, 4>, Tile<2, 128, 1, 1>, Tile<1, 144, 1, 1>, Tile<1, 144, 1, 2>,
                        Tile<1, 144, 1, 4>, Tile<2, 144, 1, 1>>(router, call, stream);
}

}  // namespace samebits::cuda
