// The selection of few rows by block_choice.cuh.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/cuda/view.h"

namespace samebits::cuda {

inline constexpr std::size_t kMostSelectBytes = std::size_t{116} << 10;  // that a launch may ask for

// Of a router that lean.h knows: up to 512 experts, of which up to 8 are chosen, and groups of 32 or none.
bool can_choice_select(const RouterView& router, const CallView& call);

// launch_select for a call that it can; shared_bytes: lean_bytes or more, up to kMostSelectBytes.
cudaError_t launch_choice_select(const RouterView& router, const CallView& call, std::size_t shared_bytes,
                                 cudaStream_t stream);

}  // namespace samebits::cuda
