// The row that the gate reads where the spec normalises or scales the input.
#pragma once

#include "kernels/cpu/steps.h"

namespace samebits::cpu {

// Steps::prepare_input: norm, vector and factor in fp32, then one rounding to bf16.
void prepare_input(const RouterConstants& constants, const std::uint16_t* hidden_state, RowScratch& scratch,
                   std::uint16_t* prepared);

}  // namespace samebits::cpu
