// What a call says about its rows beside their input: token ids and classes.
#pragma once

#include "kernels/cpu/steps.h"

namespace samebits::cpu {

// Without a selection bias every row has class 0, and without a hash table token id 0.
RowInfo row_info(const samebits_router_spec& spec, const samebits_inputs& inputs, std::int64_t row);

// False: the token id or the class is out of range, and the row gets no experts.
bool has_answer(const samebits_router_spec& spec, const RowInfo& row);

}  // namespace samebits::cpu
