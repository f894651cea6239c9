// Where a logit of the contract tc256 can lie: what its steps, folds and bias may lose.
#pragma once

#include <cstdint>
#include <span>

#include "oracle/exact/interval.h"
#include "oracle/tensors/router_inputs.h"

namespace samebits::oracle {

// For the row `x` [H] that the gate reads, before rounding to bf16, temperature and softcap. kNothingClaimed where an
// operand is not finite or a partial sum may leave the range of fp32.
Interval tc256_bounds(std::span<const double> x, const RouterInputs& inputs, std::int64_t expert, double bias,
                      bool has_bias);

}  // namespace samebits::oracle
