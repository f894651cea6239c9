// Rows of a call, on the device.
#pragma once

#include "kernels/cuda/view.h"

namespace samebits::cuda {

// Rows that are not padding; after wait_for_previous_kernel.
__device__ inline std::int64_t valid_rows(const CallView& call) {
  return call.num_valid_rows == nullptr ? call.num_tokens : clamp_rows(*call.num_valid_rows, call.num_tokens);
}

}  // namespace samebits::cuda
