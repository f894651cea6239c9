// Weights of the chosen experts.
#pragma once

#include "kernels/cpu/steps.h"

namespace samebits::cpu {

// Steps::weigh of tc256: w = s / D * scale from the unbiased scores s of the chosen experts, D = sum in slot order with
// the spec's eps. Always finite: D = 0 gives 0; a NaN score counts as 0; +inf scores share the weight.
void weigh_tc256(const RouterConstants& constants, const float* logits, RowScratch& scratch, float* weights);

}  // namespace samebits::cpu
