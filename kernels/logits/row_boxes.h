// The rows that a call multiplies as a tensor map, for copies of boxes of them into shared memory (async_copy.cuh).
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "kernels/cuda/view.h"

namespace samebits::cuda {

// The rows [T][Hp] as boxes of kTileColumns columns and box_rows rows, with the 128-byte swizzle.
cudaError_t encode_rows(const RouterView& router, const CallView& call, int box_rows, CUtensorMap* map);

}  // namespace samebits::cuda
