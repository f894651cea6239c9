// Scores of sparsemixer: one softmax for each chosen expert, over the experts near it.
#pragma once

#include "kernels/cpu/steps.h"

namespace samebits::cpu {

// pass[0 .. R): the logits among which `chosen` is scored, -inf for experts far below it and for the num_earlier
// experts chosen before it.
void sparsemixer_pass(const samebits_router_spec& spec, const float* logits, std::int32_t chosen,
                      const std::int32_t* earlier, std::int64_t num_earlier, float* pass);

// scratch.chosen_values[0 .. k) of scratch.ids; overwrites scratch.keys and scratch.scores.
void sparsemixer_scores(const samebits_router_spec& spec, const float* logits, RowScratch& scratch);

}  // namespace samebits::cpu
