// Where a correct logit can lie for a declared arithmetic: a double-precision dot product and a proven radius.
#pragma once

#include <cstdint>
#include <vector>

#include "oracle/spec/router_spec.h"
#include "oracle/tensors/router_inputs.h"

namespace samebits::oracle {

enum class Arithmetic { kTc256, kFp32AnyOrder, kBf16Logits };

// [lower, upper] per expert; derivations are at the definition. A non-finite operand gives lower > upper (nothing is
// claimed about that logit).
struct LogitBounds {
  std::vector<double> lower, upper;  // [E]
};
LogitBounds logit_bounds(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t row, Arithmetic arithmetic);

}  // namespace samebits::oracle
