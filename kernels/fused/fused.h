// Logits and selection of few rows in one launch.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/launch.h"
#include "kernels/fused/handover.h"

namespace samebits::cuda {

inline constexpr std::int64_t kFusedRows = 16;  // the most rows of a call that the fused form serves

// Whether it serves this many rows of this router: the weight fits the blocks of one wave, the sums fit the hand-over.
bool can_fuse(const RouterView& router, std::int64_t num_tokens);

// Whether the launch can do the bookkeeping, too: few.h does. can_fuse(router, call.num_tokens).
bool can_bookkeep_fused(const RouterView& router, const CallView& call);

// Reads call.input and writes the outputs of launch_select, with the bits of the other forms, and those of
// launch_bookkeep where `bookkeeping` is not null, and then can_bookkeep_fused. Launches only, like the functions of
// cuda/launch.h; can_fuse(router, call.num_tokens).
cudaError_t launch_fused(const RouterView& router, const CallView& call, const Handover& handover,
                         const BookkeepOutputs* bookkeeping, cudaStream_t stream);

}  // namespace samebits::cuda
