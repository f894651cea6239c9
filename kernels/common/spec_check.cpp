#include "kernels/common/spec_check.h"

#include <cmath>
#include <initializer_list>
#include <string>

#include "kernels/common/error.h"
#include "kernels/common/sizes.h"

namespace samebits {
namespace {

using Spec = samebits_router_spec;

struct Choice {
  std::int32_t value;
  const char* name;  // null: past the last choice
};

struct ChoiceField {
  const char* name;
  std::int32_t Spec::*member;
  Choice choices[4];
};

constexpr Choice kNone{0, "none"}, kFp32{SAMEBITS_FP32, "fp32"}, kBf16{SAMEBITS_BF16, "bf16"};
constexpr Choice kNo{0, "no"}, kYes{1, "yes"};

constexpr ChoiceField kChoiceFields[] = {
    {"logits_dtype", &Spec::logits_dtype, {kFp32, kBf16}},
    {"linear_bias_dtype", &Spec::linear_bias_dtype, {kNone, kFp32, kBf16}},
    {"input_norm", &Spec::input_norm, {kNone, {SAMEBITS_INPUT_NORM_RMSNORM_UNWEIGHTED, "rmsnorm_unweighted"}}},
    {"input_scale_vector", &Spec::input_scale_vector, {kNo, kYes}},
    {"input_scale_rsqrt_hidden_size",
     &Spec::input_scale_rsqrt_hidden_size,
     {kNo, {1, "rsqrt_hidden_size"}, {2, "rsqrt_hidden_size_bf16"}}},
    {"score_func",
     &Spec::score_func,
     {{SAMEBITS_SCORE_SOFTMAX, "softmax"},
      {SAMEBITS_SCORE_SIGMOID, "sigmoid"},
      {SAMEBITS_SCORE_SQRT_SOFTPLUS, "sqrt_softplus"},
      {SAMEBITS_SCORE_IDENTITY, "identity"}}},
    {"score_stage",
     &Spec::score_stage,
     {{SAMEBITS_SCORE_BEFORE_TOPK, "before_topk"}, {SAMEBITS_SCORE_AFTER_TOPK, "after_topk"}}},
    {"score_dtype", &Spec::score_dtype, {kFp32, kBf16}},
    {"selection_method",
     &Spec::selection_method,
     {{SAMEBITS_SELECT_TOPK, "topk"},
      {SAMEBITS_SELECT_HASH_TABLE, "hash_table"},
      {SAMEBITS_SELECT_SPARSEMIXER, "sparsemixer"}}},
    {"rank_by", &Spec::rank_by, {{SAMEBITS_RANK_BY_SCORE, "score"}, {SAMEBITS_RANK_BY_LOGIT, "logit"}}},
    {"selection_bias_dtype", &Spec::selection_bias_dtype, {kNone, kFp32, kBf16}},
    {"group_score",
     &Spec::group_score,
     {kNone, {SAMEBITS_GROUP_SCORE_MAX, "max"}, {SAMEBITS_GROUP_SCORE_TOP2_SUM, "top2_sum"}}},
    {"group_mask",
     &Spec::group_mask,
     {kNone, {SAMEBITS_GROUP_MASK_NEG_INF, "neg_inf"}, {SAMEBITS_GROUP_MASK_ZERO, "zero"}}},
    {"topk_scope", &Spec::topk_scope, {{SAMEBITS_TOPK_GLOBAL, "global"}, {SAMEBITS_TOPK_PER_GROUP, "per_group"}}},
    {"sort", &Spec::sort, {{SAMEBITS_SORT_BY_KEY_DESC, "by_key_desc"}, {SAMEBITS_SORT_BY_INDEX, "by_index"}}},
    {"weight_source",
     &Spec::weight_source,
     {{SAMEBITS_WEIGHT_UNBIASED_SCORE, "unbiased_score"}, {SAMEBITS_WEIGHT_BIASED_SCORE, "biased_score"}}},
    {"renormalize",
     &Spec::renormalize,
     {{SAMEBITS_RENORM_NONE, "none"}, {SAMEBITS_RENORM_L1, "l1"}, {SAMEBITS_RENORM_LOG_SPACE_L1, "log_space_l1"}}},
    {"eps_mode", &Spec::eps_mode, {kNone, {SAMEBITS_EPS_ADD, "add"}, {SAMEBITS_EPS_CLAMP_MIN, "clamp_min"}}},
    {"scale_stage",
     &Spec::scale_stage,
     {{SAMEBITS_SCALE_AFTER_RENORM, "after_renorm"},
      {SAMEBITS_SCALE_BEFORE_DIVIDE, "before_divide"},
      {SAMEBITS_SCALE_ON_EXPERT_OUTPUT, "on_expert_output"}}},
    {"per_expert_scale", &Spec::per_expert_scale, {kNo, kYes}},
    {"global_scale", &Spec::global_scale, {kNo, kYes}},
    {"weights_dtype", &Spec::weights_dtype, {kFp32, kBf16}},
    {"shared_mode",
     &Spec::shared_mode,
     {{SAMEBITS_SHARED_OUTSIDE_ROUTER, "outside_router"},
      {SAMEBITS_SHARED_OUTSIDE_ROUTER_SIGMOID_GATE, "outside_router_sigmoid_gate"},
      {SAMEBITS_SHARED_FUSED_IDS, "fused_ids"},
      {SAMEBITS_SHARED_IN_GATE, "in_gate"}}},
    {"zero_type",
     &Spec::zero_type,
     {kNone,
      {SAMEBITS_ZERO_EXPERTS_IDENTITY, "identity"},
      {SAMEBITS_ZERO_EXPERTS_IDENTITY_REMAPPED_TO_ID0_WEIGHT0, "identity_remapped_to_id0_weight0"}}},
};

std::string text_of(const ChoiceField& field, std::int32_t value) {
  for (const Choice& choice : field.choices) {
    if (choice.name != nullptr && choice.value == value) return std::to_string(value) + " (" + choice.name + ")";
  }
  return std::to_string(value);
}

void check_choices(const Spec& s) {
  for (const ChoiceField& field : kChoiceFields) {
    const std::int32_t found = s.*field.member;
    bool known = false;
    std::string list;
    for (const Choice& choice : field.choices) {
      if (choice.name == nullptr) break;
      known = known || choice.value == found;
      list += (list.empty() ? "" : ", ") + text_of(field, choice.value);
    }
    if (!known) fail_invalid(std::string(field.name) + ": found " + std::to_string(found) + ", allowed " + list);
  }
}

// The member must have one of the values where another field has the value that `reason` names.
void must_be(const Spec& s, std::int32_t Spec::*member, std::initializer_list<std::int32_t> allowed,
             const char* reason) {
  for (const std::int32_t value : allowed) {
    if (s.*member == value) return;
  }
  for (const ChoiceField& field : kChoiceFields) {
    if (field.member != member) continue;
    std::string list;
    for (const std::int32_t value : allowed) list += (list.empty() ? "" : ", ") + text_of(field, value);
    fail_invalid(std::string(field.name) + ": found " + text_of(field, s.*member) + ", allowed " + list + " with " +
                 reason);
  }
}

void check_range(const char* field, std::int64_t found, std::int64_t low, std::int64_t high,
                 const std::string& reason = "") {
  if (found >= low && found <= high) return;
  const std::string range = low == high ? std::to_string(low) : std::to_string(low) + " to " + std::to_string(high);
  fail_invalid(std::string(field) + ": found " + std::to_string(found) + ", allowed " + range + reason);
}

void require(bool condition, const std::string& text) {
  if (!condition) fail_invalid(text);
}

void check_finite(const char* field, float found) {
  require(std::isfinite(found), std::string(field) + ": found " + std::to_string(found) + ", allowed finite");
}

void check_positive(const char* field, float found, const std::string& reason) {
  check_finite(field, found);
  require(found > 0, std::string(field) + ": found " + std::to_string(found) + ", allowed more than 0" + reason);
}

void check_numbers(const Spec& s) {
  check_range("hidden_size", s.hidden_size, 0, INT32_MAX);
  check_range("num_experts", s.num_experts, 1, INT32_MAX);
  check_range("num_bias_variants", s.num_bias_variants, s.selection_bias_dtype == SAMEBITS_DTYPE_NONE ? 0 : 1,
              INT32_MAX);
  check_range("n_group", s.n_group, 1, s.num_experts);
  check_range("topk_group", s.topk_group, 1, s.n_group);
  check_range("shared_experts", s.shared_experts, s.shared_mode == SAMEBITS_SHARED_OUTSIDE_ROUTER ? 0 : 1, INT32_MAX);
  const bool has_zero_type = s.zero_type != SAMEBITS_ZERO_EXPERTS_NONE;
  check_range("zero_experts", s.zero_experts, has_zero_type ? 1 : 0, has_zero_type ? INT32_MAX : 0,
              has_zero_type ? " with a zero_type" : " without a zero_type");
  check_range("top_k", s.top_k, 1, ranked_experts(s));
  check_range("num_experts", gate_rows(s), 1, INT32_MAX, " together with zero_experts and shared experts in the gate");
  check_finite("eps", s.eps);
  check_finite("routed_scaling_factor", s.routed_scaling_factor);
  check_finite("softcap", s.softcap);
  require(s.softcap >= 0, "softcap: found " + std::to_string(s.softcap) + ", allowed 0 (off) or more");
  check_positive("temperature", s.temperature, " (1: off)");
  check_finite("input_scale", s.input_scale);
  if (s.input_scale_rsqrt_hidden_size == 0) check_positive("input_scale", s.input_scale, " (1: off)");
  if (s.input_norm != SAMEBITS_INPUT_NORM_NONE) check_positive("input_norm_eps", s.input_norm_eps, " with input_norm");
  require((s.eps_mode == SAMEBITS_EPS_NONE) == (s.eps == 0) && s.eps >= 0,
          "eps: found " + std::to_string(s.eps) + " with eps_mode " + std::to_string(s.eps_mode) +
              ", allowed 0 for eps_mode 0 (none) and more than 0 otherwise");
}

void check_groups(const Spec& s) {
  if (s.n_group > 1) check_range("zero_experts", s.zero_experts, 0, 0, " with n_group > 1");
  const std::int64_t group_size = ranked_experts(s) / s.n_group;
  require(s.num_experts % s.n_group == 0, "n_group: found " + std::to_string(s.n_group) +
                                              ", allowed divisors of num_experts " + std::to_string(s.num_experts));
  require(s.top_k <= s.topk_group * group_size, "top_k: found " + std::to_string(s.top_k) + ", allowed at most the " +
                                                    std::to_string(s.topk_group * group_size) + " experts of " +
                                                    std::to_string(s.topk_group) + " groups");
  if (s.topk_scope == SAMEBITS_TOPK_PER_GROUP) {
    constexpr const char* kReason = "topk_scope 2 (per_group)";
    require(s.top_k % s.n_group == 0, "top_k: found " + std::to_string(s.top_k) + ", allowed multiples of n_group " +
                                          std::to_string(s.n_group) + " with " + kReason);
    check_range("topk_group", s.topk_group, s.n_group, s.n_group, std::string(" (n_group) with ") + kReason);
    must_be(s, &Spec::group_score, {SAMEBITS_GROUP_SCORE_NONE}, kReason);
    must_be(s, &Spec::group_mask, {SAMEBITS_GROUP_MASK_NONE}, kReason);
  } else if (s.n_group > 1) {
    must_be(s, &Spec::group_score, {SAMEBITS_GROUP_SCORE_MAX, SAMEBITS_GROUP_SCORE_TOP2_SUM}, "n_group > 1");
    must_be(s, &Spec::group_mask, {SAMEBITS_GROUP_MASK_NEG_INF, SAMEBITS_GROUP_MASK_ZERO}, "n_group > 1");
    require(s.group_score != SAMEBITS_GROUP_SCORE_TOP2_SUM || group_size >= 2,
            "n_group: found " + std::to_string(s.n_group) + ", allowed at most " + std::to_string(s.num_experts / 2) +
                ", half of num_experts, with group_score 2 (top2_sum)");
  } else {
    must_be(s, &Spec::group_score, {SAMEBITS_GROUP_SCORE_NONE}, "n_group 1");
    must_be(s, &Spec::group_mask, {SAMEBITS_GROUP_MASK_NONE}, "n_group 1");
  }
}

// A table and sparsemixer choose in their own way.
void check_plain_choice(const Spec& s, const char* reason) {
  must_be(s, &Spec::selection_bias_dtype, {SAMEBITS_DTYPE_NONE}, reason);
  check_range("n_group", s.n_group, 1, 1, std::string(" with ") + reason);
  must_be(s, &Spec::score_stage, {SAMEBITS_SCORE_BEFORE_TOPK}, reason);
}

void check_selection(const Spec& s) {
  if (s.score_stage == SAMEBITS_SCORE_AFTER_TOPK) {
    must_be(s, &Spec::rank_by, {SAMEBITS_RANK_BY_LOGIT}, "score_stage after_topk");
    must_be(s, &Spec::selection_bias_dtype, {SAMEBITS_DTYPE_NONE}, "score_stage after_topk");
  }
  if (s.selection_method == SAMEBITS_SELECT_HASH_TABLE) {
    constexpr const char* kReason = "selection_method 2 (hash_table)";
    check_range("hash_vocab_size", s.hash_vocab_size, 1, INT32_MAX, std::string(" with ") + kReason);
    check_plain_choice(s, kReason);
  }
  if (s.selection_method == SAMEBITS_SELECT_SPARSEMIXER) {
    constexpr const char* kReason = "selection_method 3 (sparsemixer)";
    check_positive("sparsemixer_jitter_eps", s.sparsemixer_jitter_eps, std::string(" with ") + kReason);
    must_be(s, &Spec::score_func, {SAMEBITS_SCORE_SOFTMAX}, kReason);
    must_be(s, &Spec::rank_by, {SAMEBITS_RANK_BY_LOGIT}, kReason);
    check_plain_choice(s, kReason);
    check_range("zero_experts", s.zero_experts, 0, 0, std::string(" with ") + kReason);
  }
}

void check_weights(const Spec& s) {
  if (s.weight_source == SAMEBITS_WEIGHT_BIASED_SCORE) {
    must_be(s, &Spec::selection_bias_dtype, {SAMEBITS_FP32, SAMEBITS_BF16}, "weight_source 2 (biased_score)");
  }
  if (s.renormalize == SAMEBITS_RENORM_LOG_SPACE_L1) {
    constexpr const char* kReason = "renormalize 2 (log_space_l1)";
    must_be(s, &Spec::score_func, {SAMEBITS_SCORE_SIGMOID}, kReason);
    must_be(s, &Spec::eps_mode, {SAMEBITS_EPS_NONE}, kReason);
    must_be(s, &Spec::weight_source, {SAMEBITS_WEIGHT_UNBIASED_SCORE}, kReason);
  }
  if (s.shared_mode == SAMEBITS_SHARED_IN_GATE) {
    constexpr const char* kReason = "shared_mode 3 (in_gate)";
    must_be(s, &Spec::score_func, {SAMEBITS_SCORE_SIGMOID, SAMEBITS_SCORE_SQRT_SOFTPLUS, SAMEBITS_SCORE_IDENTITY},
            kReason);
    must_be(s, &Spec::weight_source, {SAMEBITS_WEIGHT_UNBIASED_SCORE}, kReason);
  }
}

}  // namespace

void check_spec(const samebits_router_spec& spec) {
  check_choices(spec);
  check_numbers(spec);
  check_groups(spec);
  check_selection(spec);
  check_weights(spec);
  if (spec.shared_mode == SAMEBITS_SHARED_FUSED_IDS) {
    fail_unsupported(
        "not implemented: shared_mode 2 (fused_ids), whose ids the dispatch of the engine decides; route with "
        "shared_mode "
        "0 (outside_router)");
  }
}

}  // namespace samebits
