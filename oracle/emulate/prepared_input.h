// Step 0: what the gate reads of a row.
#pragma once

#include <cstdint>
#include <vector>

#include "oracle/spec/router_spec.h"
#include "oracle/tensors/router_inputs.h"

namespace samebits::oracle {

// bf16 bits [H]: the hidden states of the row, or, where prepares_input(spec), after RMS norm, scale vector and scale,
// rounded to bf16 once at the end.
std::vector<std::uint16_t> prepared_input(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t row);

}  // namespace samebits::oracle
