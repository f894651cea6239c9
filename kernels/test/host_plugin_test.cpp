// The helper of plug-in authors: an ordinary router refuses, by name, each feature that it does not have.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>

#include "kernels/test/test_router.h"
#include "samebits/host_plugin.hpp"

namespace samebits::cpu::test {
namespace {

struct Ordinary : HostRouter {
  static std::vector<Rule> rules(const samebits_router_spec& spec) {
    std::vector<Rule> rules = ordinary(spec);
    rules.push_back({"score_func", static_cast<double>(spec.score_func), SAMEBITS_SCORE_SIGMOID});
    return rules;
  }
};

std::string refusal(const samebits_router_spec& spec) {
  char reason[256] = "";
  const samebits_status status = detail::supports<Ordinary>(&spec, reason, sizeof(reason));
  EXPECT_EQ(status == SAMEBITS_OK, reason[0] == '\0');
  return reason;
}

struct Refused {
  const char* text;
  std::function<void(samebits_router_spec&)> change;
};

const Refused kRefused[] = {
    {"input_norm: found rmsnorm_unweighted (1), this router has none (0)", [](auto& s) { s.input_norm = 1; }},
    {"input_scale_vector: found yes (1), this router has no (0)", [](auto& s) { s.input_scale_vector = 1; }},
    {"input_scale_rsqrt_hidden_size: found rsqrt_hidden_size_bf16 (2), this router has no (0)",
     [](auto& s) { s.input_scale_rsqrt_hidden_size = 2; }},
    {"input_scale: found 0.5, this router has 1", [](auto& s) { s.input_scale = 0.5f; }},
    {"linear_bias_dtype: found bf16 (2), this router has none (0)",
     [](auto& s) { s.linear_bias_dtype = SAMEBITS_BF16; }},
    {"logits_dtype: found bf16 (2), this router has fp32 (1)", [](auto& s) { s.logits_dtype = SAMEBITS_BF16; }},
    {"temperature: found 2, this router has 1", [](auto& s) { s.temperature = 2; }},
    {"softcap: found 30, this router has 0", [](auto& s) { s.softcap = 30; }},
    {"score_func: found softmax (1), this router has sigmoid (2)", [](auto& s) { s.score_func = 1; }},
    {"score_stage: found after_topk (2), this router has before_topk (1)", [](auto& s) { s.score_stage = 2; }},
    {"score_dtype: found bf16 (2), this router has fp32 (1)", [](auto& s) { s.score_dtype = SAMEBITS_BF16; }},
    {"selection_method: found hash_table (2), this router has topk (1)", [](auto& s) { s.selection_method = 2; }},
    {"selection_method: found sparsemixer (3), this router has topk (1)", [](auto& s) { s.selection_method = 3; }},
    {"rank_by: found logit (2), this router has score (1)", [](auto& s) { s.rank_by = 2; }},
    {"num_bias_variants: found 2, this router has 1", [](auto& s) { s.num_bias_variants = 2; }},
    {"n_group: found 8, this router has 1", [](auto& s) { s.n_group = 8; }},
    {"topk_scope: found per_group (2), this router has global (1)", [](auto& s) { s.topk_scope = 2; }},
    {"sort: found by_index (2), this router has by_key_desc (1)", [](auto& s) { s.sort = 2; }},
    {"weight_source: found biased_score (2), this router has unbiased_score (1)", [](auto& s) { s.weight_source = 2; }},
    {"renormalize: found log_space_l1 (2), this router has l1 (1)", [](auto& s) { s.renormalize = 2; }},
    {"per_expert_scale: found yes (1), this router has no (0)", [](auto& s) { s.per_expert_scale = 1; }},
    {"global_scale: found yes (1), this router has no (0)", [](auto& s) { s.global_scale = 1; }},
    {"weights_dtype: found bf16 (2), this router has fp32 (1)", [](auto& s) { s.weights_dtype = SAMEBITS_BF16; }},
    {"shared_mode: found in_gate (3), this router has outside_router (0)", [](auto& s) { s.shared_mode = 3; }},
    {"zero_experts: found 4, this router has 0", [](auto& s) { s.zero_experts = 4; }},
    {"score_func: found 9, this router has sigmoid (2)", [](auto& s) { s.score_func = 9; }},
};

TEST(HostPlugin, OrdinaryRoutersRefuseByName) {
  samebits_router_spec spec = sigmoid_bias_spec(8, 8, 2);
  EXPECT_EQ(refusal(spec), "");
  for (const std::int32_t renormalize : {SAMEBITS_RENORM_NONE, SAMEBITS_RENORM_L1}) {
    spec.renormalize = renormalize;
    EXPECT_EQ(refusal(spec), "") << "for the router itself";
  }
  for (const Refused& refused : kRefused) {
    samebits_router_spec changed = spec;
    refused.change(changed);
    EXPECT_EQ(refusal(changed), refused.text);
  }
}

TEST(HostPlugin, ClassesWithoutABiasMeanNothing) {
  samebits_router_spec spec = sigmoid_bias_spec(8, 8, 2);
  spec.selection_bias_dtype = SAMEBITS_DTYPE_NONE, spec.num_bias_variants = 0;
  EXPECT_EQ(refusal(spec), "");
}

TEST(HostPlugin, ColumnsCountSharedExpertsInTheGate) {
  samebits_router_spec spec = sigmoid_bias_spec(8, 8, 2);
  spec.shared_experts = 3;
  EXPECT_EQ(detail::topk_columns(&spec), 2);
  spec.shared_mode = SAMEBITS_SHARED_IN_GATE;
  EXPECT_EQ(detail::topk_columns(&spec), 5);
  EXPECT_EQ(detail::topk_columns(nullptr), 0);
}

}  // namespace
}  // namespace samebits::cpu::test
