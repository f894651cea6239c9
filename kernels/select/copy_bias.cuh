// A row of the selection bias, on its way to shared memory while its reader has other things to wait for.
#pragma once

#include <cuda_pipeline_primitives.h>

#include "kernels/cuda/view.h"
#include "kernels/select/threads.cuh"

namespace samebits::cuda {

// Starts the copy of a row of the selection bias; a thread copies what it will read.
__device__ inline void copy_bias(Block block, const RouterView& router, const float* bias, float* memory) {
  for (int e = block.rank(); e < router.ranked_experts; e += block.size) {
    __pipeline_memcpy_async(memory + e, bias + e, sizeof(float));
  }
}
// The one row of a bias was written at creation, so its copy may come before wait_for_previous_kernel.
__device__ inline bool has_one_bias(const RouterView& router) {
  return router.selection_bias != nullptr && router.spec.num_bias_variants == 1;
}
// Until this thread's copies have come. Before a thread ends, too.
__device__ inline void wait_for_copies() {
  __pipeline_commit();
  __pipeline_wait_prior(0);
}

}  // namespace samebits::cuda
