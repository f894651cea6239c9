// Where a correct logit can lie for a declared arithmetic: a double-precision dot product and a proven radius.
#pragma once

#include <cstdint>
#include <vector>

#include "oracle/exact/declared_arithmetic.h"
#include "oracle/spec/router_spec.h"
#include "oracle/tensors/router_inputs.h"

namespace samebits::oracle {

// [lower, upper] of the finished logit of each expert; derivations are at the definition. An operand that is not
// finite, or a sum that may overflow, gives lower > upper (nothing is claimed about that logit).
struct LogitBounds {
  std::vector<double> lower, upper;  // [G]
};
LogitBounds logit_bounds(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t row,
                         const Arithmetic& arithmetic);

}  // namespace samebits::oracle
