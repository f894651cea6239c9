// A dot product without any rounding but the last.
#pragma once

#include <span>

namespace samebits::oracle {

// Sum of x[i] * w[i], rounded once to the nearest fp32, ties to even; overflow is Inf. x holds bf16 values, w bf16 or
// fp32 values. An exact sum of 0 is +0. A non-finite term gives what IEEE addition gives in any order, NaN as the one
// NaN.
float exact_dot(std::span<const float> x, std::span<const float> w);

}  // namespace samebits::oracle
