// What a call says about its rows beside their input: token ids and classes.
#pragma once

#include "kernels/cpu/steps.h"

namespace samebits::cpu {

// Throws Error unless token_ids and row_class, where given, are vectors of T elements of the right dtype, and token_ids
// are given where the spec needs them.
void check_row_tensors(const samebits_router_spec& spec, const samebits_inputs& inputs);

// Without a selection bias every row has class 0, and without a hash table token id 0.
RowInfo row_info(const samebits_router_spec& spec, const samebits_inputs& inputs, std::int64_t row);

// False: the token id or the class is out of range, and the row gets no experts.
bool has_answer(const samebits_router_spec& spec, const RowInfo& row);

}  // namespace samebits::cpu
