// Weights of the chosen experts.
#pragma once

#include "kernels/cpu/steps.h"

namespace samebits::cpu {

// Steps::weigh of tc256: w = s / D * scale from the values s of the chosen experts, D = sum in slot order with the
// spec's eps, or the same from log-sigmoids; then the learned scales. Always finite: D = 0 gives 0; +inf values share
// the weight.
void weigh_tc256(const RouterConstants& constants, RowScratch& scratch, float* weights);

}  // namespace samebits::cpu
