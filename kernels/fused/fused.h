// Logits, selection and bookkeeping of few rows in one launch.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/launch.h"
#include "kernels/fused/handover.h"

namespace samebits::cuda {

inline constexpr std::int64_t kFusedRows = 16;  // the most rows of a call that the fused form serves
inline constexpr std::int64_t kFusedStride = (std::int64_t{1} << 26) - 1;  // the largest stride of rows, in values

// Whether it serves this many rows of this router: of bf16 weights, and of a shape that fused.cu has a kernel for.
bool can_fuse(const RouterView& router, std::int64_t num_tokens);

// Reads call.input and writes the outputs of launch_select, with the bits of the other forms, and those of
// launch_bookkeep where `bookkeeping` is not null. Launches only, like the functions of cuda/launch.h;
// can_fuse(router, call.num_tokens), and no stride is larger than kFusedStride.
cudaError_t launch_fused(const RouterView& router, const CallView& call, const Handover& handover,
                         const BookkeepOutputs* bookkeeping, cudaStream_t stream);

}  // namespace samebits::cuda
