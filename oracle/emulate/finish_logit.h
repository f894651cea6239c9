// What follows the sum of products of a logit.
#pragma once

#include "oracle/spec/router_spec.h"
#include "oracle/tensors/router_inputs.h"

namespace samebits::oracle {

// `sum` is the dot product for the gate row `expert`. Linear bias, rounding to bf16, temperature, softcap: in this
// order.
float finish_logit(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t expert, float sum);

}  // namespace samebits::oracle
