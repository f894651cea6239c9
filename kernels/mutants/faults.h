// The faulty steps of the mutants; each stands for one step of the CPU router (steps.h).
#pragma once

#include "kernels/cpu/steps.h"

namespace samebits::mutants {

using cpu::RouterConstants;
using cpu::RowInfo;
using cpu::RowScratch;

// Steps::logits.
void split_logits(const RouterConstants& constants, const std::uint16_t* hidden_states, std::int64_t row_stride,
                  std::int64_t num_rows, std::int64_t num_tokens, float* logits, std::int64_t logits_stride);
void softcap_by_exponentials(const RouterConstants& constants, const std::uint16_t* hidden_states,
                             std::int64_t row_stride, std::int64_t num_rows, std::int64_t num_tokens, float* logits,
                             std::int64_t logits_stride);
// Steps::prepare_bias.
void bf16_selection_bias(const samebits_router_spec& spec, const float* bias, float* out);
// Steps::score.
void softmax_without_zero_experts(const RouterConstants& constants, const float* logits, float* scores);
// Steps::key.
void keys_of_first_class(const RouterConstants& constants, const RowInfo& row, const float* logits, const float* scores,
                         float* keys);
// Steps::select.
void select_higher_id(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch);
void hash_ids_by_score(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch);
// Steps::value.
void biased_values(const RouterConstants& constants, const RowInfo& row, const float* logits, RowScratch& scratch);
void sparsemixer_with_kept_mask(const RouterConstants& constants, const RowInfo& row, const float* logits,
                                RowScratch& scratch);
// Steps::weigh.
void uniform_hash_weights(const RouterConstants& constants, RowScratch& scratch, float* weights);
void sum_without_shared_experts(const RouterConstants& constants, RowScratch& scratch, float* weights);
void expert_scale_by_slot(const RouterConstants& constants, RowScratch& scratch, float* weights);

}  // namespace samebits::mutants
