// The values of the chosen experts, from which their weights are made.
#pragma once

#include "kernels/cpu/steps.h"

namespace samebits::cpu {

// Steps::value: the score, or the key as it was before a mask (weight source biased_score); NaN becomes +0. For score
// stage after_topk the K chosen logits are scored here, in slot order, and for sparsemixer pass by pass.
void value_experts(const RouterConstants& constants, const RowInfo& row, const float* logits, RowScratch& scratch);

}  // namespace samebits::cpu
