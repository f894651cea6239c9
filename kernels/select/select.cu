// From logits, or the parts of their sums, to ids and weights: one block a row.
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pdl.h"
#include "kernels/logits/rows.cuh"
#include "kernels/select/fold_finish.cuh"
#include "kernels/select/lean.h"
#include "kernels/select/select_row.cuh"

namespace samebits::cuda {
namespace {

constexpr std::int64_t kMaxBlocks = std::int64_t{1} << 20;        // a block takes every kMaxBlocks-th row
constexpr std::size_t kPlainSharedBytes = std::size_t{48} << 10;  // what a kernel may have without asking

__global__ void __launch_bounds__(kMaxSelectThreads)
    select_kernel(const __grid_constant__ RouterView router, const __grid_constant__ CallView call) {
  extern __shared__ __align__(16) unsigned char shared[];
  const Block block;
  const RowMemory memory = row_memory(router, block.num_warps(), shared);
  fetch_constants(block, router, memory);
  wait_for_previous_kernel();
  let_next_kernel_start();
  const std::int64_t num_valid_rows = valid_rows(call);
  for (std::int64_t row = blockIdx.x; row < call.num_tokens; row += gridDim.x) {
    if (row < num_valid_rows) {
      const RowConstants constants = row_constants(router, call, row);
      load_logits(block, router, call, row, memory.logits);
      select_row(block, router, call, row, constants, memory);
    } else if (block.warp() == 0) {
      write_no_experts(router, call, row);
    }
    __syncthreads();  // before the next row takes the memory
  }
  wait_for_copies();
}

// All that the device has, so that calls on several threads ask for the same.
cudaError_t allow_most_shared_memory() {
  int device = 0, bytes = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  status = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (status != cudaSuccess) return status;
  return cudaFuncSetAttribute(select_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

}  // namespace

cudaError_t launch_select(const RouterView& router, const CallView& call, cudaStream_t stream) {
  if (call.num_tokens == 0) return cudaSuccess;
  if (lean_of(router) != Lean::kNo) return launch_lean_select(router, call, stream);
  const int threads = select_threads(router.gate_rows);
  const std::size_t shared_bytes = row_layout(router, threads / kWarpSize).bytes;
  if (shared_bytes > kPlainSharedBytes) {
    const cudaError_t status = allow_most_shared_memory();
    if (status != cudaSuccess) return status;
  }
  const auto blocks = static_cast<unsigned>(call.num_tokens < kMaxBlocks ? call.num_tokens : kMaxBlocks);
  return launch_pdl(select_kernel, blocks, dim3(static_cast<unsigned>(threads)), shared_bytes, stream, router, call);
}

}  // namespace samebits::cuda
