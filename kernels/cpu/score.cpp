#include "kernels/cpu/score.h"

#include "kernels/cpu/bits.h"
#include "kernels/cpu/simd.h"

namespace samebits::cpu {

void apply_score_func(const samebits_router_spec& spec, const float* logits, std::int64_t n, float* scores) {
  switch (spec.score_func) {
    case SAMEBITS_SCORE_SIGMOID:
      apply_elementwise(Elementwise::kSigmoid, logits, n, scores);
      break;
    case SAMEBITS_SCORE_SQRT_SOFTPLUS:
      apply_elementwise(Elementwise::kSqrtSoftplus, logits, n, scores);
      break;
    default:
      softmax(logits, n, scores);
  }
  if (spec.score_dtype == SAMEBITS_BF16) {
    for (std::int64_t i = 0; i < n; ++i) scores[i] = round_to_bf16(scores[i]);
  }
}

void score_experts(const RouterConstants& constants, const float* logits, float* scores) {
  if (constants.spec.score_stage == SAMEBITS_SCORE_AFTER_TOPK) return;
  apply_score_func(constants.spec, logits, constants.spec.num_experts, scores);
}

void rank_keys(const RouterConstants& constants, const float* logits, const float* scores, float* keys) {
  const float* base = constants.spec.rank_by == SAMEBITS_RANK_BY_LOGIT ? logits : scores;
  for (std::int64_t e = 0; e < constants.spec.num_experts; ++e) {
    keys[e] = constants.selection_bias == nullptr ? base[e] : base[e] + constants.selection_bias[e];
  }
}

void round_bias(std::int32_t dtype, const float* bias, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = dtype == SAMEBITS_BF16 ? round_to_bf16(bias[i]) : bias[i];
}

void prepare_selection_bias(const samebits_router_spec& spec, const float* bias, float* out) {
  round_bias(spec.selection_bias_dtype, bias, spec.num_experts, out);
}

}  // namespace samebits::cpu
