// The selection of few rows of many experts by wide_choice.cuh.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/cuda/view.h"

namespace samebits::cuda {

// Of a router that lean.h knows: sigmoid or sqrt(softplus), no groups, up to 928 experts, of which at most every 48th
// is chosen, and k up to 16.
bool can_wide_select(const RouterView& router, const CallView& call);

// launch_select for a call that it can; shared_bytes: lean_bytes or more, up to kMostSelectBytes.
cudaError_t launch_wide_select(const RouterView& router, const CallView& call, std::size_t shared_bytes,
                               cudaStream_t stream);

}  // namespace samebits::cuda
