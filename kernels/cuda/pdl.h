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
// it does before its own wait_for_previous_kernel must not need this one.
__device__ __forceinline__ void let_next_kernel_start() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

// The current device has programmatic dependent launch (compute capability 9.0 and later), and the environment variable
// SAMEBITS_CUDA_PDL is not "off" (read once; for tests that compare the two).
bool may_overlap();

template <class... Parameters, class... Arguments>
cudaError_t launch_pdl(void (*kernel)(Parameters...), dim3 grid, dim3 block, std::size_t shared_bytes,
                       cudaStream_t stream, Arguments... arguments) {
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = &overlap;
  config.numAttrs = may_overlap() ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
}

}  // namespace samebits::cuda
