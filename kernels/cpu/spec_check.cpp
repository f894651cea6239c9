#include "kernels/cpu/spec_check.h"

#include <cmath>
#include <initializer_list>
#include <string>

#include "kernels/cpu/error.h"

namespace samebits::cpu {
namespace {

struct Choice {
  std::int32_t value;
  const char* name;
};

void check_choice(const char* field, std::int32_t found, std::initializer_list<Choice> allowed) {
  std::string list;
  for (const Choice& choice : allowed) {
    if (choice.value == found) return;
    list += (list.empty() ? "" : ", ") + std::to_string(choice.value) + " (" + choice.name + ")";
  }
  fail_invalid(std::string(field) + ": found " + std::to_string(found) + ", allowed " + list);
}

void check_range(const char* field, std::int64_t found, std::int64_t low, std::int64_t high) {
  if (found >= low && found <= high) return;
  fail_invalid(std::string(field) + ": found " + std::to_string(found) + ", allowed " + std::to_string(low) + " to " +
               std::to_string(high));
}

void check_finite(const char* field, float found) {
  if (!std::isfinite(found)) fail_invalid(std::string(field) + ": found " + std::to_string(found) + ", allowed finite");
}

void require(bool condition, const std::string& text) {
  if (!condition) fail_invalid(text);
}

void not_implemented(bool needed, const char* what) {
  if (needed) fail_unsupported(std::string("not implemented yet: ") + what);
}

void check_choices(const samebits_router_spec& s) {
  constexpr Choice kNone{0, "none"}, kFp32{SAMEBITS_FP32, "fp32"}, kBf16{SAMEBITS_BF16, "bf16"};
  constexpr Choice kNo{0, "no"}, kYes{1, "yes"};
  check_choice("logits_dtype", s.logits_dtype, {kFp32, kBf16});
  check_choice("linear_bias_dtype", s.linear_bias_dtype, {kNone, kFp32, kBf16});
  check_choice("input_norm", s.input_norm, {kNone, {SAMEBITS_INPUT_NORM_RMSNORM_UNWEIGHTED, "rmsnorm_unweighted"}});
  check_choice("input_scale_vector", s.input_scale_vector, {kNo, kYes});
  check_choice("input_scale_rsqrt_hidden_size", s.input_scale_rsqrt_hidden_size, {kNo, kYes});
  check_choice("score_func", s.score_func,
               {{SAMEBITS_SCORE_SOFTMAX, "softmax"},
                {SAMEBITS_SCORE_SIGMOID, "sigmoid"},
                {SAMEBITS_SCORE_SQRT_SOFTPLUS, "sqrt_softplus"},
                {SAMEBITS_SCORE_IDENTITY, "identity"}});
  check_choice("score_stage", s.score_stage,
               {{SAMEBITS_SCORE_BEFORE_TOPK, "before_topk"}, {SAMEBITS_SCORE_AFTER_TOPK, "after_topk"}});
  check_choice("score_dtype", s.score_dtype, {kFp32, kBf16});
  check_choice("selection_method", s.selection_method,
               {{SAMEBITS_SELECT_TOPK, "topk"},
                {SAMEBITS_SELECT_HASH_TABLE, "hash_table"},
                {SAMEBITS_SELECT_SPARSEMIXER, "sparsemixer"}});
  check_choice("rank_by", s.rank_by, {{SAMEBITS_RANK_BY_SCORE, "score"}, {SAMEBITS_RANK_BY_LOGIT, "logit"}});
  check_choice("selection_bias_dtype", s.selection_bias_dtype, {kNone, kFp32, kBf16});
  check_choice("group_score", s.group_score,
               {kNone, {SAMEBITS_GROUP_SCORE_MAX, "max"}, {SAMEBITS_GROUP_SCORE_TOP2_SUM, "top2_sum"}});
  check_choice("group_mask", s.group_mask,
               {kNone, {SAMEBITS_GROUP_MASK_NEG_INF, "neg_inf"}, {SAMEBITS_GROUP_MASK_ZERO, "zero"}});
  check_choice("topk_scope", s.topk_scope, {{SAMEBITS_TOPK_GLOBAL, "global"}, {SAMEBITS_TOPK_PER_GROUP, "per_group"}});
  check_choice("sort", s.sort, {{SAMEBITS_SORT_BY_KEY_DESC, "by_key_desc"}, {SAMEBITS_SORT_BY_INDEX, "by_index"}});
  check_choice("weight_source", s.weight_source,
               {{SAMEBITS_WEIGHT_UNBIASED_SCORE, "unbiased_score"}, {SAMEBITS_WEIGHT_BIASED_SCORE, "biased_score"}});
  check_choice(
      "renormalize", s.renormalize,
      {{SAMEBITS_RENORM_NONE, "none"}, {SAMEBITS_RENORM_L1, "l1"}, {SAMEBITS_RENORM_LOG_SPACE_L1, "log_space_l1"}});
  check_choice("eps_mode", s.eps_mode, {kNone, {SAMEBITS_EPS_ADD, "add"}, {SAMEBITS_EPS_CLAMP_MIN, "clamp_min"}});
  check_choice("scale_stage", s.scale_stage,
               {{SAMEBITS_SCALE_AFTER_RENORM, "after_renorm"},
                {SAMEBITS_SCALE_BEFORE_DIVIDE, "before_divide"},
                {SAMEBITS_SCALE_ON_EXPERT_OUTPUT, "on_expert_output"}});
  check_choice("per_expert_scale", s.per_expert_scale, {kNo, kYes});
  check_choice("global_scale", s.global_scale, {kNo, kYes});
  check_choice("weights_dtype", s.weights_dtype, {kFp32, kBf16});
  check_choice("shared_mode", s.shared_mode,
               {{SAMEBITS_SHARED_OUTSIDE_ROUTER, "outside_router"},
                {SAMEBITS_SHARED_OUTSIDE_ROUTER_SIGMOID_GATE, "outside_router_sigmoid_gate"},
                {SAMEBITS_SHARED_FUSED_IDS, "fused_ids"},
                {SAMEBITS_SHARED_IN_GATE, "in_gate"}});
  check_choice("zero_type", s.zero_type,
               {kNone,
                {SAMEBITS_ZERO_EXPERTS_IDENTITY, "identity"},
                {SAMEBITS_ZERO_EXPERTS_IDENTITY_REMAPPED_TO_ID0_WEIGHT0, "identity_remapped_to_id0_weight0"}});
}

void check_numbers(const samebits_router_spec& s) {
  check_range("hidden_size", s.hidden_size, 0, INT32_MAX);
  check_range("num_experts", s.num_experts, 1, INT32_MAX);
  check_range("top_k", s.top_k, 1, s.num_experts);
  check_range("num_bias_variants", s.num_bias_variants, s.selection_bias_dtype == SAMEBITS_DTYPE_NONE ? 0 : 1,
              INT32_MAX);
  check_range("n_group", s.n_group, 1, s.num_experts);
  check_range("topk_group", s.topk_group, 1, s.n_group);
  check_range("shared_experts", s.shared_experts, 0, INT32_MAX);
  check_range("zero_experts", s.zero_experts, 0, INT32_MAX);
  check_finite("eps", s.eps);
  check_finite("routed_scaling_factor", s.routed_scaling_factor);
  check_finite("softcap", s.softcap);
  check_finite("temperature", s.temperature);
  check_finite("input_scale", s.input_scale);
  require(s.temperature > 0, "temperature: found " + std::to_string(s.temperature) + ", allowed more than 0 (1: off)");
  require((s.eps_mode == SAMEBITS_EPS_NONE) == (s.eps == 0) && s.eps >= 0,
          "eps: found " + std::to_string(s.eps) + " with eps_mode " + std::to_string(s.eps_mode) +
              ", allowed 0 for eps_mode 0 (none) and more than 0 otherwise");
}

void check_combinations(const samebits_router_spec& s) {
  const std::int64_t group_size = s.num_experts / s.n_group;
  require(s.num_experts % s.n_group == 0, "n_group: found " + std::to_string(s.n_group) +
                                              ", allowed divisors of num_experts " + std::to_string(s.num_experts));
  require(s.top_k <= s.topk_group * group_size, "top_k: found " + std::to_string(s.top_k) + ", allowed at most the " +
                                                    std::to_string(s.topk_group * group_size) + " experts of " +
                                                    std::to_string(s.topk_group) + " groups");
  if (s.n_group > 1) {
    require(s.group_score != SAMEBITS_GROUP_SCORE_NONE,
            "group_score: found 0 (none), allowed 1 (max), 2 (top2_sum) with n_group > 1");
    require(s.group_mask != SAMEBITS_GROUP_MASK_NONE,
            "group_mask: found 0 (none), allowed 1 (neg_inf), 2 (zero) with n_group > 1");
    require(s.group_score != SAMEBITS_GROUP_SCORE_TOP2_SUM || group_size >= 2,
            "n_group: found " + std::to_string(s.n_group) + ", but group_score top2_sum needs two experts in a group");
  }
  if (s.score_stage == SAMEBITS_SCORE_AFTER_TOPK) {
    require(s.rank_by == SAMEBITS_RANK_BY_LOGIT,
            "rank_by: found 1 (score), allowed 2 (logit) with score_stage after_topk");
    require(s.selection_bias_dtype == SAMEBITS_DTYPE_NONE, "selection_bias_dtype: found " +
                                                               std::to_string(s.selection_bias_dtype) +
                                                               ", allowed 0 (none) with score_stage after_topk");
  }
}

void check_implemented(const samebits_router_spec& s) {
  not_implemented(s.selection_method == SAMEBITS_SELECT_HASH_TABLE, "hash_table (selection_method)");
  not_implemented(s.selection_method == SAMEBITS_SELECT_SPARSEMIXER, "sparsemixer (selection_method)");
  not_implemented(s.score_func == SAMEBITS_SCORE_IDENTITY, "identity (score_func)");
  not_implemented(s.input_norm != SAMEBITS_INPUT_NORM_NONE, "rmsnorm_unweighted (input_norm)");
  not_implemented(s.input_scale_vector != 0, "input_scale_vector");
  not_implemented(s.input_scale_rsqrt_hidden_size != 0, "rsqrt_hidden_size (input_scale)");
  not_implemented(s.input_scale != 1.0f, "input_scale other than 1");
  not_implemented(s.temperature != 1.0f, "temperature other than 1");
  not_implemented(s.softcap != 0.0f, "softcap");
  not_implemented(s.num_bias_variants > 1 && s.selection_bias_dtype != SAMEBITS_DTYPE_NONE,
                  "more than one bias variant");
  not_implemented(s.topk_scope == SAMEBITS_TOPK_PER_GROUP, "per_group (topk_scope)");
  not_implemented(s.weight_source == SAMEBITS_WEIGHT_BIASED_SCORE, "biased_score (weight_source)");
  not_implemented(s.renormalize == SAMEBITS_RENORM_LOG_SPACE_L1, "log_space_l1 (renormalize)");
  not_implemented(s.per_expert_scale != 0, "per_expert_scale");
  not_implemented(s.global_scale != 0, "global_scale");
  not_implemented(s.shared_experts > 0 && s.shared_mode == SAMEBITS_SHARED_FUSED_IDS, "fused_ids (shared_mode)");
  not_implemented(s.shared_experts > 0 && s.shared_mode == SAMEBITS_SHARED_IN_GATE, "in_gate (shared_mode)");
  not_implemented(s.zero_experts > 0, "zero_experts");
}

}  // namespace

void check_spec(const samebits_router_spec& spec) {
  check_choices(spec);
  check_numbers(spec);
  check_combinations(spec);
  check_implemented(spec);
}

}  // namespace samebits::cpu
