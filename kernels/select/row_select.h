// The selection of many rows by row_choice.cuh, a warp a row.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/view.h"

namespace samebits::cuda {

// Of a router that lean.h knows: no groups, or 256 experts in groups of 8 or more neighbours; sums in one part.
bool can_row_select(const RouterView& router, const CallView& call);

// launch_select for a call that it can.
cudaError_t launch_row_select(const RouterView& router, const CallView& call, cudaStream_t stream);

}  // namespace samebits::cuda
