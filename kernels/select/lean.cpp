#include "kernels/select/lean.h"

namespace samebits::cuda {
namespace {

constexpr int kMostColumns = 32;

bool has_lean_logits(const samebits_router_spec& spec) {
  return spec.linear_bias_dtype == SAMEBITS_DTYPE_NONE && spec.temperature == 1.0f && spec.softcap == 0.0f;
}
bool has_lean_keys(const samebits_router_spec& spec) {
  return spec.score_stage == SAMEBITS_SCORE_BEFORE_TOPK && spec.score_dtype != SAMEBITS_BF16 &&
         spec.selection_method == SAMEBITS_SELECT_TOPK && spec.rank_by == SAMEBITS_RANK_BY_SCORE &&
         spec.topk_scope == SAMEBITS_TOPK_GLOBAL;
}
bool has_lean_weights(const samebits_router_spec& spec) {
  return spec.sort == SAMEBITS_SORT_BY_KEY_DESC && spec.weight_source == SAMEBITS_WEIGHT_UNBIASED_SCORE &&
         spec.renormalize == SAMEBITS_RENORM_L1 && spec.scale_stage != SAMEBITS_SCALE_BEFORE_DIVIDE &&
         spec.per_expert_scale == 0 && spec.global_scale == 0;
}

}  // namespace

Lean lean_of(const RouterView& router) {
  const samebits_router_spec& spec = router.spec;
  if (!has_lean_logits(spec) || !has_lean_keys(spec) || !has_lean_weights(spec)) return Lean::kNo;
  if (router.gate_rows != spec.num_experts || router.gate_rows > kLeanExperts) return Lean::kNo;
  if (router.columns != router.top_k || router.top_k > kMostColumns) return Lean::kNo;
  if (spec.n_group > 1) {
    return spec.score_func == SAMEBITS_SCORE_SIGMOID && spec.n_group <= kLeanGroups ? Lean::kSigmoidGroups : Lean::kNo;
  }
  switch (spec.score_func) {
    case SAMEBITS_SCORE_SIGMOID:
      return Lean::kSigmoid;
    case SAMEBITS_SCORE_SQRT_SOFTPLUS:
      return Lean::kSqrtSoftplus;
    case SAMEBITS_SCORE_SOFTMAX:
      return Lean::kSoftmax;
    default:
      return Lean::kNo;
  }
}

}  // namespace samebits::cuda
