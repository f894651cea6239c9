// Launches that may start while the kernel before them still runs (programmatic dependent launch).
#pragma once

#include <cuda_runtime.h>

#include "kernels/plan/plan.h"

namespace samebits::cuda {

// Every thread of a kernel launched by launch_pdl calls this before its first access of memory that another kernel
// reads or writes, and before it ends: a kernel that ended without it would let the next one start too early.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// The kernel after this one on the stream may start as soon as all blocks of this one have called this or ended. What
// it does before its own wait_for_previous_kernel must not need this one. Its blocks take places that blocks of this
// one, and of the one before, still wait for: so a product by tensor cores calls this first of all, a selection by a
// block a row, which the bookkeeping may follow, when the product has ended.
__device__ __forceinline__ void let_next_kernel_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// The current device has programmatic dependent launch (compute capability 9.0 and later), and the environment variable
// SAMEBITS_CUDA_PDL is not "off" (read once; for tests that compare the two).
bool may_overlap();

// The same with clusters of cluster_size blocks that are neighbours in x.
template <class... Parameters, class... Arguments>
cudaError_t launch_pdl_clusters(void (*kernel)(Parameters...), unsigned cluster_size, dim3 grid, dim3 block,
                                std::size_t shared_bytes, cudaStream_t stream, Arguments... arguments) {
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (may_overlap()) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster_size > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count].val.clusterDim.x = cluster_size;
    attributes[count].val.clusterDim.y = 1;
    attributes[count++].val.clusterDim.z = 1;
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

template <class... Parameters, class... Arguments>
cudaError_t launch_pdl(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
                       cudaStream_t stream, Arguments... arguments) {
  return launch_pdl_clusters(kernel, 1, grid, block, shared_bytes, stream, arguments...);
}

}  // namespace samebits::cuda
