#include "kernels/cpu/score.h"

#include <algorithm>

#include "kernels/common/bits.h"
#include "kernels/common/sizes.h"
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
    case SAMEBITS_SCORE_IDENTITY:
      std::copy_n(logits, n, scores);
      break;
    default:
      softmax(logits, n, scores);
  }
  if (spec.score_dtype == SAMEBITS_BF16) {
    for (std::int64_t i = 0; i < n; ++i) scores[i] = round_to_bf16(scores[i]);
  }
}

void score_experts(const RouterConstants& constants, const float* logits, float* scores) {
  const samebits_router_spec& spec = constants.spec;
  if (spec.score_stage == SAMEBITS_SCORE_AFTER_TOPK || spec.selection_method == SAMEBITS_SELECT_SPARSEMIXER) return;
  apply_score_func(spec, logits, gate_rows(spec), scores);
}

namespace {

const float* base_of(const RouterConstants& constants, const float* logits, const float* scores) {
  return constants.spec.rank_by == SAMEBITS_RANK_BY_LOGIT ? logits : scores;
}

const float* bias_of(const RouterConstants& constants, const RowInfo& row) {
  if (constants.selection_bias == nullptr) return nullptr;
  return constants.selection_bias + row.row_class * ranked_experts(constants.spec);
}

}  // namespace

float rank_key(const RouterConstants& constants, const RowInfo& row, const float* logits, const float* scores,
               std::int64_t expert) {
  const float base = base_of(constants, logits, scores)[expert];
  const float* bias = bias_of(constants, row);
  return bias == nullptr ? base : base + bias[expert];
}

void rank_keys(const RouterConstants& constants, const RowInfo& row, const float* logits, const float* scores,
               float* keys) {
  const std::int64_t num_ranked = ranked_experts(constants.spec);
  const float* base = base_of(constants, logits, scores);
  const float* bias = bias_of(constants, row);
  for (std::int64_t e = 0; e < num_ranked; ++e) keys[e] = bias == nullptr ? base[e] : base[e] + bias[e];
}

void round_bias(std::int32_t dtype, const float* bias, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = dtype == SAMEBITS_BF16 ? round_to_bf16(bias[i]) : bias[i];
}

void prepare_selection_bias(const samebits_router_spec& spec, const float* bias, float* out) {
  round_bias(spec.selection_bias_dtype, bias, ranked_experts(spec), out);
}

}  // namespace samebits::cpu
