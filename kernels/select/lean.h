// Routers without rare features, which get kernels with little code: instructions come from memory, too, and a launch
// of few rows waits for them.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/view.h"

namespace samebits::cuda {

enum class Lean { kNo, kSigmoid, kSigmoidGroups, kSqrtSoftplus, kSoftmax };

inline constexpr int kLeanExperts = 928, kLeanGroups = 32;  // 29 keys a lane, and a group a lane

// Which of them serves this router: logits as they are or rounded, scored before the selection; the best k of all or of
// some groups, up to 32, by score and bias; weights are scores divided by their sum.
Lean lean_of(const RouterView& router);

// launch_select for such a router and a call with rows.
cudaError_t launch_lean_select(const RouterView& router, const CallView& call, cudaStream_t stream);

}  // namespace samebits::cuda
