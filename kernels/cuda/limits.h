// What the CUDA kernels are built for.
#pragma once

#include <cstdint>

#include "samebits/samebits.h"

namespace samebits::cuda {

inline constexpr std::int32_t kMaxGateRows = 2560;  // G: 2,304 experts, and room for zero and shared ones
inline constexpr std::int32_t kMaxTopK = 64;
inline constexpr std::int64_t kMaxTokens = INT32_MAX;  // num_valid_rows is int32

// Throws Error: UNSUPPORTED, the limit and the value found, for a valid spec that is too large.
void check_limits(const samebits_router_spec& spec);

}  // namespace samebits::cuda
