// The decode form for 17 to some hundred rows, by wgmma (decode_wide.cuh).
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/view.h"

namespace samebits::cuda {

// Whether launch_logits_decode leaves a call to it: from where it is as fast or faster, of a weight of one part.
bool takes_decode_wide(const RouterView& router, std::int64_t num_tokens);

// launch_logits_decode for a weight of one part.
cudaError_t launch_decode_wide(const RouterView& router, const CallView& call, cudaStream_t stream);

// The same by a given tile, of num_decode_wide_tiles; for tests.
int num_decode_wide_tiles();
cudaError_t launch_decode_wide_tile(int tile, const RouterView& router, const CallView& call, cudaStream_t stream);

}  // namespace samebits::cuda
