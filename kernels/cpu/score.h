// score_e = score function of the logits, and the rank key made of it.
#pragma once

#include "kernels/cpu/steps.h"

namespace samebits::cpu {

// scores[0 .. n) of n logits: softmax, sigmoid, sqrt(softplus) or the logit, rounded to bf16 if the spec says so.
// logits != scores.
void apply_score_func(const samebits_router_spec& spec, const float* logits, std::int64_t n, float* scores);

// Steps::score: all G, for score stage before_topk; nothing for after_topk and sparsemixer (value scores the chosen
// ones).
void score_experts(const RouterConstants& constants, const float* logits, float* scores);

// Score or logit of an expert that competes, plus its selection bias.
float rank_key(const RouterConstants& constants, const RowInfo& row, const float* logits, const float* scores,
               std::int64_t expert);

// Steps::key.
void rank_keys(const RouterConstants& constants, const RowInfo& row, const float* logits, const float* scores,
               float* keys);

// Steps::prepare_bias, and the same for the linear bias: bf16 means rounded before it is added.
void round_bias(std::int32_t dtype, const float* bias, std::int64_t n, float* out);
void prepare_selection_bias(const samebits_router_spec& spec, const float* bias, float* out);

}  // namespace samebits::cpu
