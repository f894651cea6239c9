// The C ABI at creation: which specs are refused, and which constants do not fit a spec.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "kernels/test/test_router.h"

namespace samebits::cpu::test {
namespace {

constexpr std::int32_t kHidden = 20, kExperts = 9, kTopK = 2;

struct BadSpec {
  samebits_status status;
  const char* text;
  std::function<void(samebits_router_spec&)> change;
};

const BadSpec kBadSpecs[] = {
    {SAMEBITS_INVALID_ARGUMENT, "top_k: found 10, allowed 1 to 9", [](auto& s) { s.top_k = 10; }},
    {SAMEBITS_INVALID_ARGUMENT, "num_experts: found 0", [](auto& s) { s.num_experts = 0; }},
    {SAMEBITS_INVALID_ARGUMENT, "n_group: found 2, allowed divisors of num_experts 9", [](auto& s) { s.n_group = 2; }},
    {SAMEBITS_INVALID_ARGUMENT, "n_group: found 0", [](auto& s) { s.n_group = 0; }},
    {SAMEBITS_INVALID_ARGUMENT, "top_k: found 4, allowed at most the 3 experts of 1 groups",
     [](auto& s) { s.n_group = 3, s.top_k = 4; }},
    {SAMEBITS_INVALID_ARGUMENT, "group_mask: found 0",
     [](auto& s) { s.n_group = 3, s.group_score = SAMEBITS_GROUP_SCORE_MAX; }},
    {SAMEBITS_INVALID_ARGUMENT,
     "n_group: found 9, allowed at most 4, half of num_experts, with group_score 2 (top2_sum)",
     [](auto& s) {
       s.n_group = s.topk_group = 9, s.group_score = SAMEBITS_GROUP_SCORE_TOP2_SUM,
       s.group_mask = SAMEBITS_GROUP_MASK_ZERO;
     }},
    {SAMEBITS_INVALID_ARGUMENT, "score_func: found 7, allowed 1 (softmax)", [](auto& s) { s.score_func = 7; }},
    {SAMEBITS_INVALID_ARGUMENT, "eps: found", [](auto& s) { s.eps = 0; }},
    {SAMEBITS_INVALID_ARGUMENT, "routed_scaling_factor: found nan", [](auto& s) { s.routed_scaling_factor = NAN; }},
    {SAMEBITS_INVALID_ARGUMENT, "rank_by: found 1", [](auto& s) { s.score_stage = SAMEBITS_SCORE_AFTER_TOPK; }},
    {SAMEBITS_INVALID_ARGUMENT, "selection_bias_dtype",
     [](auto& s) { s.score_stage = SAMEBITS_SCORE_AFTER_TOPK, s.rank_by = SAMEBITS_RANK_BY_LOGIT; }},
    {SAMEBITS_INVALID_ARGUMENT, "struct_size: found 0", [](auto& s) { s.struct_size = 0; }},
    {SAMEBITS_INVALID_ARGUMENT, "struct_size: found 4294967295; set it to sizeof of the struct",
     [](auto& s) { s.struct_size = 0xffffffffu; }},
    {SAMEBITS_INVALID_ARGUMENT, "group_score: found 1 (max), allowed 0 (none) with n_group 1",
     [](auto& s) { s.group_score = SAMEBITS_GROUP_SCORE_MAX; }},
    {SAMEBITS_INVALID_ARGUMENT, "zero_experts: found 2, allowed 0 with n_group > 1",
     [](auto& s) { s.n_group = 3, s.zero_experts = 2, s.zero_type = SAMEBITS_ZERO_EXPERTS_IDENTITY; }},
    {SAMEBITS_INVALID_ARGUMENT, "zero_experts: found 2, allowed 0 without a zero_type",
     [](auto& s) { s.zero_experts = 2; }},
    {SAMEBITS_INVALID_ARGUMENT, "zero_experts: found 0, allowed 1 to 2147483647 with a zero_type",
     [](auto& s) { s.zero_type = SAMEBITS_ZERO_EXPERTS_IDENTITY; }},
    {SAMEBITS_INVALID_ARGUMENT, "num_experts: found 2147483656, allowed 1 to 2147483647 together with zero_experts",
     [](auto& s) { s.zero_experts = INT32_MAX, s.zero_type = SAMEBITS_ZERO_EXPERTS_IDENTITY; }},
    {SAMEBITS_INVALID_ARGUMENT, "shared_experts: found 0, allowed 1 to",
     [](auto& s) { s.shared_mode = SAMEBITS_SHARED_IN_GATE; }},
    {SAMEBITS_INVALID_ARGUMENT,
     "score_func: found 1 (softmax), allowed 2 (sigmoid), 3 (sqrt_softplus), 4 (identity) with",
     [](auto& s) {
       s.shared_experts = 1, s.shared_mode = SAMEBITS_SHARED_IN_GATE, s.score_func = SAMEBITS_SCORE_SOFTMAX;
     }},
    {SAMEBITS_INVALID_ARGUMENT, "weight_source: found 2 (biased_score), allowed 1 (unbiased_score) with shared_mode",
     [](auto& s) {
       s.shared_experts = 1, s.shared_mode = SAMEBITS_SHARED_IN_GATE, s.weight_source = SAMEBITS_WEIGHT_BIASED_SCORE;
     }},
    {SAMEBITS_INVALID_ARGUMENT, "selection_bias_dtype: found 0 (none), allowed 1 (fp32), 2 (bf16) with weight_source",
     [](auto& s) { s.selection_bias_dtype = 0, s.weight_source = SAMEBITS_WEIGHT_BIASED_SCORE; }},
    {SAMEBITS_INVALID_ARGUMENT, "score_func: found 3 (sqrt_softplus), allowed 2 (sigmoid) with renormalize",
     [](auto& s) { s.renormalize = SAMEBITS_RENORM_LOG_SPACE_L1, s.score_func = SAMEBITS_SCORE_SQRT_SOFTPLUS; }},
    {SAMEBITS_INVALID_ARGUMENT, "eps_mode: found 1 (add), allowed 0 (none) with renormalize 2 (log_space_l1)",
     [](auto& s) { s.renormalize = SAMEBITS_RENORM_LOG_SPACE_L1; }},
    {SAMEBITS_INVALID_ARGUMENT, "weight_source: found 2 (biased_score), allowed 1 (unbiased_score) with renormalize",
     [](auto& s) {
       s.renormalize = SAMEBITS_RENORM_LOG_SPACE_L1, s.eps_mode = 0, s.eps = 0,
       s.weight_source = SAMEBITS_WEIGHT_BIASED_SCORE;
     }},
    {SAMEBITS_INVALID_ARGUMENT, "top_k: found 2, allowed multiples of n_group 3",
     [](auto& s) { s.n_group = s.topk_group = 3, s.topk_scope = SAMEBITS_TOPK_PER_GROUP; }},
    {SAMEBITS_INVALID_ARGUMENT, "topk_group: found 2, allowed 3 (n_group) with topk_scope",
     [](auto& s) { s.n_group = s.top_k = 3, s.topk_group = 2, s.topk_scope = SAMEBITS_TOPK_PER_GROUP; }},
    {SAMEBITS_INVALID_ARGUMENT, "group_mask: found 1 (neg_inf), allowed 0 (none) with topk_scope 2 (per_group)",
     [](auto& s) {
       s.n_group = s.top_k = s.topk_group = 3, s.topk_scope = SAMEBITS_TOPK_PER_GROUP,
       s.group_mask = SAMEBITS_GROUP_MASK_NEG_INF;
     }},
    {SAMEBITS_INVALID_ARGUMENT, "hash_vocab_size: found 0, allowed 1 to 2147483647",
     [](auto& s) { s.selection_method = SAMEBITS_SELECT_HASH_TABLE; }},
    {SAMEBITS_INVALID_ARGUMENT, "selection_bias_dtype: found 1 (fp32), allowed 0 (none) with selection_method 2",
     [](auto& s) { s.selection_method = SAMEBITS_SELECT_HASH_TABLE, s.hash_vocab_size = 5; }},
    {SAMEBITS_INVALID_ARGUMENT, "n_group: found 3, allowed 1 with selection_method 2 (hash_table)",
     [](auto& s) {
       s.selection_method = SAMEBITS_SELECT_HASH_TABLE, s.hash_vocab_size = 5, s.selection_bias_dtype = 0;
       s.n_group = 3, s.group_score = SAMEBITS_GROUP_SCORE_MAX, s.group_mask = SAMEBITS_GROUP_MASK_ZERO;
     }},
    {SAMEBITS_INVALID_ARGUMENT, "score_stage: found 2 (after_topk), allowed 1 (before_topk) with selection_method 2",
     [](auto& s) {
       s.selection_method = SAMEBITS_SELECT_HASH_TABLE, s.hash_vocab_size = 5, s.selection_bias_dtype = 0;
       s.score_stage = SAMEBITS_SCORE_AFTER_TOPK, s.rank_by = SAMEBITS_RANK_BY_LOGIT;
     }},
    {SAMEBITS_INVALID_ARGUMENT, "sparsemixer_jitter_eps: found 0.000000, allowed more than 0",
     [](auto& s) { s.selection_method = SAMEBITS_SELECT_SPARSEMIXER; }},
    {SAMEBITS_INVALID_ARGUMENT, "score_func: found 2 (sigmoid), allowed 1 (softmax) with selection_method 3",
     [](auto& s) { s.selection_method = SAMEBITS_SELECT_SPARSEMIXER, s.sparsemixer_jitter_eps = 0.01f; }},
    {SAMEBITS_INVALID_ARGUMENT, "rank_by: found 1 (score), allowed 2 (logit) with selection_method 3 (sparsemixer)",
     [](auto& s) {
       s.selection_method = SAMEBITS_SELECT_SPARSEMIXER, s.sparsemixer_jitter_eps = 0.01f;
       s.score_func = SAMEBITS_SCORE_SOFTMAX;
     }},
    {SAMEBITS_INVALID_ARGUMENT, "zero_experts: found 1, allowed 0 with selection_method 3 (sparsemixer)",
     [](auto& s) {
       s.selection_method = SAMEBITS_SELECT_SPARSEMIXER, s.sparsemixer_jitter_eps = 0.01f;
       s.score_func = SAMEBITS_SCORE_SOFTMAX, s.rank_by = SAMEBITS_RANK_BY_LOGIT, s.selection_bias_dtype = 0;
       s.zero_experts = 1, s.zero_type = SAMEBITS_ZERO_EXPERTS_IDENTITY;
     }},
    {SAMEBITS_INVALID_ARGUMENT, "softcap: found -1", [](auto& s) { s.softcap = -1; }},
    {SAMEBITS_INVALID_ARGUMENT, "temperature: found 0", [](auto& s) { s.temperature = 0; }},
    {SAMEBITS_INVALID_ARGUMENT, "input_scale: found 0", [](auto& s) { s.input_scale = 0; }},
    {SAMEBITS_INVALID_ARGUMENT, "input_scale_rsqrt_hidden_size: found 3, allowed 0 (no), 1 (rsqrt_hidden_size), 2",
     [](auto& s) { s.input_scale_rsqrt_hidden_size = 3; }},
    {SAMEBITS_INVALID_ARGUMENT, "input_norm_eps: found 0.000000, allowed more than 0 with input_norm",
     [](auto& s) { s.input_norm = SAMEBITS_INPUT_NORM_RMSNORM_UNWEIGHTED; }},
    {SAMEBITS_UNSUPPORTED, "not implemented: shared_mode 2 (fused_ids)",
     [](auto& s) { s.shared_experts = 1, s.shared_mode = SAMEBITS_SHARED_FUSED_IDS; }},
};

TEST(Spec, WrongAndUnsupportedOnesAreNamed) {
  for (const BadSpec& bad : kBadSpecs) {
    samebits_router_spec spec = sigmoid_bias_spec(kHidden, kExperts, kTopK);
    const Constants values = random_constants(spec, 1);
    const samebits_constants constants = abi_constants(spec, values);
    ASSERT_EQ(samebits_supports(&spec, nullptr, 0), SAMEBITS_OK);
    bad.change(spec);
    char reason[300] = "";
    EXPECT_EQ(samebits_supports(&spec, reason, sizeof(reason)), bad.status) << bad.text;
    EXPECT_NE(std::string(reason).find(bad.text), std::string::npos) << bad.text << "\nfound: " << reason;
    samebits_router* router = nullptr;
    EXPECT_EQ(samebits_create(&spec, &constants, &router), bad.status) << bad.text;
    EXPECT_STREQ(samebits_last_error(nullptr), reason);
    char tiny[4];
    EXPECT_EQ(samebits_supports(&spec, tiny, sizeof(tiny)), bad.status);
    EXPECT_EQ(std::string(tiny).size(), 3u);
  }
}

TEST(Spec, TopkColumns) {
  samebits_router_spec spec = plain_spec(0, 8, 3);
  EXPECT_EQ(samebits_topk_columns(&spec), 3);
  spec.score_func = SAMEBITS_SCORE_SIGMOID;
  spec.shared_experts = 2, spec.shared_mode = SAMEBITS_SHARED_IN_GATE;
  EXPECT_EQ(samebits_topk_columns(&spec), 5);
  spec.shared_mode = SAMEBITS_SHARED_FUSED_IDS;
  EXPECT_EQ(samebits_topk_columns(&spec), 3) << "unsupported is not invalid";
  spec.top_k = 0;
  EXPECT_EQ(samebits_topk_columns(&spec), 0);
}

TEST(Constants, MustFitTheSpec) {
  const samebits_router_spec spec = sigmoid_bias_spec(kHidden, kExperts, kTopK);
  const Constants values = random_constants(spec, 1);
  const auto error_of = [&](const std::function<void(samebits_constants&)>& change) {
    samebits_constants constants = abi_constants(spec, values);
    change(constants);
    samebits_router* router = nullptr;
    EXPECT_EQ(samebits_create(&spec, &constants, &router), SAMEBITS_INVALID_ARGUMENT);
    EXPECT_EQ(router, nullptr);
    return std::string(samebits_last_error(nullptr));
  };
  EXPECT_EQ(error_of([](auto& c) { c.memory = SAMEBITS_MEMORY_DEVICE; }),
            "constants.memory: found 2, allowed 1 (host)");
  EXPECT_EQ(error_of([](auto& c) { c.gate_weight.cols = 21; }), "gate_weight: found shape [9, 21], allowed [9, 20]");
  EXPECT_EQ(error_of([](auto& c) { c.gate_weight.dtype = SAMEBITS_INT32; }),
            "gate_weight: found dtype 3 (int32), allowed 2 (bf16), 1 (fp32)");
  EXPECT_EQ(error_of([](auto& c) { c.selection_bias.data = nullptr, c.selection_bias.rows = 0; }),
            "selection_bias: found shape [0, 9], allowed [1, 9]");
  for (const std::int64_t stride : {INT64_MAX, (std::int64_t{1} << 62) + 20}) {
    EXPECT_EQ(error_of([&](auto& c) { c.gate_weight.row_stride = stride; }),
              "gate_weight: found row_stride " + std::to_string(stride) +
                  ", allowed at most 576460752303423485 elements with 9 rows: a tensor has fewer than 2^63 bytes; "
                  "count the stride in elements, usually cols");
  }
  EXPECT_NE(error_of([](auto& c) { c.linear_bias = c.selection_bias; }).find("linear_bias: given"), std::string::npos);
  EXPECT_NE(error_of([](auto& c) { c.hash_table = c.selection_bias; }).find("hash_table: given"), std::string::npos);
}

// A spec with a tensor of every kind, R = 11, G = 13, K = 4.
samebits_router_spec full_spec() {
  samebits_router_spec spec = sigmoid_bias_spec(kHidden, kExperts, kTopK);
  spec.zero_experts = 2, spec.zero_type = SAMEBITS_ZERO_EXPERTS_IDENTITY;
  spec.shared_experts = 2, spec.shared_mode = SAMEBITS_SHARED_IN_GATE;
  spec.linear_bias_dtype = SAMEBITS_FP32;
  spec.num_bias_variants = 3;
  spec.input_scale_vector = spec.per_expert_scale = spec.global_scale = 1;
  return spec;
}

TEST(Constants, HaveTheShapesOfTheSpec) {
  const samebits_router_spec spec = full_spec();
  const Constants values = random_constants(spec, 1);
  const auto error_of = [&](const std::function<void(samebits_constants&)>& change) {
    samebits_constants constants = abi_constants(spec, values);
    change(constants);
    samebits_router* router = nullptr;
    EXPECT_EQ(samebits_create(&spec, &constants, &router), SAMEBITS_INVALID_ARGUMENT);
    return std::string(samebits_last_error(nullptr));
  };
  EXPECT_EQ(error_of([](auto& c) { c.gate_weight.rows = 9; }), "gate_weight: found shape [9, 20], allowed [13, 20]");
  EXPECT_EQ(error_of([](auto& c) { c.linear_bias.cols = 11; }), "linear_bias: found shape [1, 11], allowed [1, 13]");
  EXPECT_EQ(error_of([](auto& c) { c.selection_bias.rows = 1; }),
            "selection_bias: found shape [1, 11], allowed [3, 11]");
  EXPECT_EQ(error_of([](auto& c) { c.input_scale_vector = {}; }),
            "input_scale_vector: found shape [0, 0], allowed [1, 20]");
  EXPECT_EQ(error_of([](auto& c) { c.per_expert_scale.cols = 9; }),
            "per_expert_scale: found shape [1, 9], allowed [1, 13]");
  EXPECT_EQ(error_of([](auto& c) { c.global_scale.dtype = SAMEBITS_BF16; }),
            "global_scale: found dtype 2 (bf16), allowed 1 (fp32)");
  samebits_router_spec without = spec;
  without.per_expert_scale = 0;
  const samebits_constants constants = abi_constants(spec, values);
  samebits_router* router = nullptr;
  EXPECT_EQ(samebits_create(&without, &constants, &router), SAMEBITS_INVALID_ARGUMENT);
  EXPECT_STREQ(samebits_last_error(nullptr),
               "per_expert_scale: given, but per_expert_scale of the spec is 0 (no); leave it out or change it");
}

TEST(Constants, BiasRowsMayBeApart) {
  samebits_router_spec spec = full_spec();
  const Constants values = random_constants(spec, 1);
  samebits_constants constants = abi_constants(spec, values);
  std::vector<float> apart(3 * 20, 1e9f);
  for (std::int64_t v = 0; v < 3; ++v) std::copy_n(values.selection_bias.begin() + v * 11, 11, apart.begin() + v * 20);
  constants.selection_bias.data = apart.data(), constants.selection_bias.row_stride = 20;
  samebits_router* router = nullptr;
  ASSERT_EQ(samebits_create(&spec, &constants, &router), SAMEBITS_OK) << samebits_last_error(nullptr);
  const std::vector<float> logits = normal_fp32(5, 3 * 13);
  const std::vector<std::int32_t> classes = {2, 1, 0};
  std::vector<std::int32_t> ids(12);
  std::vector<float> weights(12);
  samebits_inputs inputs{};
  inputs.struct_size = sizeof(inputs), inputs.num_tokens = 3;
  inputs.router_logits = tensor(logits, 3, 13, SAMEBITS_FP32), inputs.row_class = tensor(classes, 1, 3, SAMEBITS_INT32);
  samebits_outputs outputs{};
  outputs.struct_size = sizeof(outputs);
  outputs.topk_ids = tensor(ids, 3, 4, SAMEBITS_INT32), outputs.topk_weights = tensor(weights, 3, 4, SAMEBITS_FP32);
  std::vector<unsigned char> workspace(samebits_workspace_bytes(router, 3));
  ASSERT_EQ(samebits_workspace_init(router, workspace.data(), workspace.size(), nullptr), SAMEBITS_OK);
  ASSERT_EQ(samebits_route_from_logits(router, &inputs, &outputs, workspace.data(), nullptr), SAMEBITS_OK);
  samebits_destroy(router);
  CallOptions options;
  options.row_class = classes;
  const Routed expected = TestRouter(spec, values).route_from_logits(logits, options);
  EXPECT_EQ(ids, expected.ids);
  EXPECT_TRUE(same_bits(weights, expected.weights));
}

}  // namespace
}  // namespace samebits::cpu::test
