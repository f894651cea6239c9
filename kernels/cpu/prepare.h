// The row that the gate reads where the spec normalises or scales the input.
#pragma once

#include "kernels/cpu/steps.h"

namespace samebits::cpu {

bool has_prepared_input(const samebits_router_spec& spec);

// The factor on the input as fp32: input_scale, or H^-1/2 in fp32 or rounded to bf16.
float input_scale_factor(const samebits_router_spec& spec);

// Steps::prepare_input: norm, vector and factor in fp32, then one rounding to bf16.
void prepare_input(const RouterConstants& constants, const std::uint16_t* hidden_state, RowScratch& scratch,
                   std::uint16_t* prepared);

}  // namespace samebits::cpu
