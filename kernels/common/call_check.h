// Checks of the arguments of a call that every backend makes.
#pragma once

#include "samebits/samebits.h"

namespace samebits {

enum class Source { kHiddenStates, kLogits };

// Whether the call wants slots by expert.
bool wants_bookkeeping(const samebits_outputs& outputs);

// Throws Error (field, value found, values allowed) unless the tensors of the call fit the spec. No element is read.
// has_gate_weight: whether the router was created with one.
void check_call(const samebits_router_spec& spec, Source source, bool has_gate_weight, const samebits_inputs& inputs,
                const samebits_outputs& outputs);

}  // namespace samebits
