// The logits of many rows, on the tensor cores of sm_90a.
//
// A thread block computes kRows rows times kExperts experts over all of H. One warp copies blocks of 64 columns, of the
// rows and of every part of the experts, into a ring of stages; each warpgroup (4 warps) multiplies 64 rows. A chunk of
// 256 columns is 4 such blocks: 16 steps from +0 for each part, so the parts are kParts independent chains. At the end
// of a chunk its value is folded into the sum, in registers: the order of docs/contract.md (Logits), which needs no
// exchange between threads. A last chunk is padded to whole blocks with +0 in both operands.
#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/pdl.h"
#include "kernels/logits/async_copy.cuh"
#include "kernels/logits/prefill.h"
#include "kernels/logits/wgmma.cuh"

namespace samebits::cuda {
namespace {

constexpr int kLineBytes = kTileColumns * 2;
constexpr int kSwizzleBytes = 1024;  // alignment of an operand
constexpr int kWarpgroupRows = 64, kWarpgroupThreads = 128;

// Registers of a thread: (kParts + 1) * kExperts / 2 accumulators and sums, and some 30 more.
template <int kWarpgroups_, int kExperts_, int kParts_>
struct Tile {
  static constexpr int kWarpgroups = kWarpgroups_, kExperts = kExperts_, kParts = kParts_;
  static constexpr int kRows = kWarpgroups * kWarpgroupRows;
  static constexpr int kThreads = kWarpgroups * kWarpgroupThreads + 32;
  static constexpr int kBlocksPerMultiprocessor = kWarpgroups == 1 ? 2 : 1;
  // A stage: the rows, then the experts part by part.
  static constexpr int kRowBytes = kRows * kLineBytes, kExpertBytes = kExperts * kLineBytes;
  static constexpr int kStageBytes = kRowBytes + kParts * kExpertBytes;
  static constexpr int kStages = (kBlocksPerMultiprocessor == 1 ? 224 : 104) * 1024 / kStageBytes;
  static constexpr int kSharedBytes = kStages * kStageBytes + kSwizzleBytes;  // the rest: for the alignment
  static_assert(kExpertBytes % kSwizzleBytes == 0, "every operand starts at a multiple of the swizzle");
  static_assert(kStages >= 3, "a stage is filled while two are read");
};

struct PrefillArguments {
  const std::uint16_t* weight_tiles;
  float* sums;  // [T][Gp]
  std::int64_t num_tokens;
  const std::int32_t* num_valid_rows;
  std::int32_t padded_gate_rows, num_blocks, num_slices;  // blocks of columns; slices of kExperts experts
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
                                            const PrefillArguments& arguments, std::int64_t first_row,
                                            std::int32_t first_expert) {
  const auto expert_bytes =
      static_cast<std::uint32_t>(min(Tile::kExperts, arguments.padded_gate_rows - first_expert) * kLineBytes);
  RingPosition<Tile::kStages> position;
  for (std::int32_t block = 0; block < arguments.num_blocks; ++block, position.advance()) {
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

// One warpgroup: sum = the logits of its 64 rows as they are before the linear bias.
template <class Tile>
__device__ __forceinline__ void multiply_stages(const Ring<Tile>& ring, std::int32_t num_blocks, int warpgroup,
                                                float (&sum)[Tile::kExperts / 2]) {
  const bool first_lane = threadIdx.x % 32 == 0;
  float chain[Tile::kParts][Tile::kExperts / 2];
#pragma unroll
  for (int i = 0; i < Tile::kExperts / 2; ++i) {
    sum[i] = 0.0f;
#pragma unroll
    for (int part = 0; part < Tile::kParts; ++part) chain[part][i] = 0.0f;
  }

  RingPosition<Tile::kStages> position;
  for (std::int32_t begin = 0; begin < num_blocks; begin += kBlocksPerChunk) {
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

      // No chunk is -0, so the first one is added to +0 like the others.
#pragma unroll
    for (int i = 0; i < Tile::kExperts / 2; ++i) {
      float value = chain[0][i];
#pragma unroll
      for (int part = 1; part < Tile::kParts; ++part) value = __fadd_rn(value, chain[part][i]);
      sum[i] = __fadd_rn(sum[i], value);
    }
  }
}

template <class Tile>
__device__ __forceinline__ void store_sums(const PrefillArguments& arguments, std::int64_t num_rows,
                                           std::int64_t first_row, std::int32_t first_expert,
                                           const float (&sum)[Tile::kExperts / 2]) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
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

// Slices of the same rows are neighbours in the grid: they read the same rows at about the same time.
template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, Tile::kBlocksPerMultiprocessor)
    prefill_kernel(const __grid_constant__ CUtensorMap rows, const PrefillArguments arguments) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ unsigned char dynamic_shared[];
  __shared__ std::uint64_t filled[Tile::kStages], drained[Tile::kStages];
  const Ring<Tile> ring{(shared_address(dynamic_shared) + kSwizzleBytes - 1) / kSwizzleBytes * kSwizzleBytes,
                        shared_address(filled), shared_address(drained)};
  let_next_kernel_start();
  if (threadIdx.x == 0) {
    for (int i = 0; i < Tile::kStages; ++i) {
      init_barrier(ring.filled_barrier(i), 1);
      init_barrier(ring.drained_barrier(i), Tile::kWarpgroups * kWarpgroupWarps);
    }
    fence_barrier_init();
  }
  __syncthreads();
  wait_for_previous_kernel();

  const std::int64_t first_row = std::int64_t{blockIdx.x / arguments.num_slices} * Tile::kRows;
  const std::int32_t first_expert = static_cast<std::int32_t>(blockIdx.x % arguments.num_slices) * Tile::kExperts;
  const std::int64_t num_rows = arguments.num_valid_rows == nullptr
                                    ? arguments.num_tokens
                                    : clamp_rows(*arguments.num_valid_rows, arguments.num_tokens);
  if (first_row >= num_rows) return;  // padding
  // The same in all lanes, and known to be to the compiler.
  const int warpgroup = __shfl_sync(~0u, static_cast<int>(threadIdx.x) / kWarpgroupThreads, 0);
  if (warpgroup == Tile::kWarpgroups) {
    if (threadIdx.x % 32 == 0) {
      fence_before_copies();
      fill_stages(ring, rows, arguments, first_row, first_expert);
    }
  } else {
    float sum[Tile::kExperts / 2];
    multiply_stages(ring, arguments.num_blocks, warpgroup, sum);
    store_sums<Tile>(arguments, num_rows, first_row, first_expert, sum);
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
std::int64_t num_blocks_of(const RouterView& router, const CallView& call) {
  return ceil_div(call.num_tokens, Tile::kRows) * ceil_div(router.padded_gate_rows, Tile::kExperts);
}

template <class Tile>
cudaError_t launch(const RouterView& router, const CallView& call, cudaStream_t stream) {
  CUtensorMap rows;
  cudaError_t status = encode_rows(router, call, Tile::kRows, &rows);
  if (status != cudaSuccess) return status;
  status = cudaFuncSetAttribute(prefill_kernel<Tile>, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes);
  if (status != cudaSuccess) return status;
  const PrefillArguments arguments{router.weight_tiles,
                                   call.sums,
                                   call.num_tokens,
                                   call.num_valid_rows,
                                   router.padded_gate_rows,
                                   static_cast<std::int32_t>(ceil_div(router.padded_hidden_size, kTileColumns)),
                                   static_cast<std::int32_t>(ceil_div(router.padded_gate_rows, Tile::kExperts))};
  return launch_pdl(prefill_kernel<Tile>, dim3(static_cast<unsigned>(num_blocks_of<Tile>(router, call))),
                    dim3(Tile::kThreads), Tile::kSharedBytes, stream, rows, arguments);
}

// A wide tile reads less from memory for the same products, but has to keep most multiprocessors (132) busy.
constexpr std::int64_t kBlocksForWideTiles = 96;

template <class WideTile, class NarrowTile>
cudaError_t launch_wide_or_narrow(const RouterView& router, const CallView& call, cudaStream_t stream) {
  return num_blocks_of<WideTile>(router, call) >= kBlocksForWideTiles ? launch<WideTile>(router, call, stream)
                                                                      : launch<NarrowTile>(router, call, stream);
}

}  // namespace

cudaError_t launch_logits_prefill(const RouterView& router, const CallView& call, cudaStream_t stream) {
  int device = 0, major = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) status = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (status != cudaSuccess) return status;
  if (major != 9) return cudaErrorNotSupported;
  if (call.num_tokens == 0) return cudaSuccess;

  if (router.num_parts > 1) return launch_wide_or_narrow<Tile<2, 64, 3>, Tile<1, 64, 3>>(router, call, stream);
  using Narrow = Tile<1, 64, 1>;
  const std::int64_t rows = router.padded_gate_rows;
  if (rows <= Narrow::kExperts) return launch<Narrow>(router, call, stream);
  // The width that wastes least; among equals the widest.
  const std::int64_t padded_to_144 = round_up(rows, 144), padded_to_128 = round_up(rows, 128),
                     padded_to_96 = round_up(rows, 96);
  if (padded_to_144 <= padded_to_128 && padded_to_144 <= padded_to_96)
    return launch_wide_or_narrow<Tile<2, 144, 1>, Narrow>(router, call, stream);
  if (padded_to_128 <= padded_to_96) return launch_wide_or_narrow<Tile<2, 128, 1>, Narrow>(router, call, stream);
  return launch_wide_or_narrow<Tile<2, 96, 1>, Narrow>(router, call, stream);
}

}  // namespace samebits::cuda
