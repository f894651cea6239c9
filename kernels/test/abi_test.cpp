// The C ABI: arguments, sizes of structs, padding rows, strides, limits.
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cpu/bits.h"
#include "kernels/test/test_router.h"

namespace samebits::cpu::test {
namespace {

constexpr std::int32_t kHidden = 20, kExperts = 9, kTopK = 2;
constexpr std::int64_t kRows = 5;

// A call that works; each test changes one thing.
struct GoodCall {
  GoodCall() {
    inputs.struct_size = sizeof(inputs);
    inputs.num_tokens = kRows;
    inputs.hidden_states = tensor(hidden, kRows, kHidden, SAMEBITS_BF16);
    inputs.router_logits = tensor(logits, kRows, kExperts, SAMEBITS_FP32);
    outputs.struct_size = sizeof(outputs);
    outputs.topk_ids = tensor(ids, kRows, kTopK, SAMEBITS_INT32);
    outputs.topk_weights = tensor(weights, kRows, kTopK, SAMEBITS_FP32);
    workspace.resize(samebits_workspace_bytes(router.get(), kRows));
    EXPECT_EQ(samebits_workspace_init(router.get(), workspace.data(), workspace.size(), nullptr), SAMEBITS_OK);
  }
  samebits_status route() { return samebits_route(router.get(), &inputs, &outputs, workspace.data(), nullptr); }
  samebits_status route_from_logits() {
    return samebits_route_from_logits(router.get(), &inputs, &outputs, workspace.data(), nullptr);
  }
  std::string error() const { return samebits_last_error(router.get()); }

  samebits_router_spec spec = sigmoid_bias_spec(kHidden, kExperts, kTopK);
  TestRouter router{spec, random_constants(spec, 1)};
  std::vector<std::uint16_t> hidden = normal_bf16(2, kRows* kHidden);
  std::vector<float> logits = normal_fp32(3, kRows*kExperts), weights = std::vector<float>(kRows * kTopK);
  std::vector<std::int32_t> ids = std::vector<std::int32_t>(kRows * kTopK);
  std::vector<unsigned char> workspace;
  samebits_inputs inputs{};
  samebits_outputs outputs{};
};

struct BadCall {
  const char* text;  // part of the error
  std::function<void(GoodCall&)> change;
};

const BadCall kBadCalls[] = {
    {"inputs.struct_size: found 0", [](GoodCall& c) { c.inputs.struct_size = 0; }},
    {"outputs.struct_size: found 0", [](GoodCall& c) { c.outputs.struct_size = 0; }},
    {"num_tokens: found -1", [](GoodCall& c) { c.inputs.num_tokens = -1; }},
    {"hidden_states: found shape [5, 20], allowed [4, 20]", [](GoodCall& c) { c.inputs.num_tokens = 4; }},
    {"hidden_states: found dtype 1 (fp32), allowed 2 (bf16)",
     [](GoodCall& c) { c.inputs.hidden_states.dtype = SAMEBITS_FP32; }},
    {"hidden_states: data is null", [](GoodCall& c) { c.inputs.hidden_states.data = nullptr; }},
    {"hidden_states: found row_stride 19, allowed at least cols, 20",
     [](GoodCall& c) { c.inputs.hidden_states.row_stride = 19; }},
    {"topk_ids: data is null", [](GoodCall& c) { c.outputs.topk_ids.data = nullptr; }},
    {"topk_ids: found dtype 2 (bf16), allowed 3 (int32), 4 (int64)",
     [](GoodCall& c) { c.outputs.topk_ids.dtype = SAMEBITS_BF16; }},
    {"topk_ids: found shape [5, 3], allowed [5, 2]", [](GoodCall& c) { c.outputs.topk_ids.cols = 3; }},
    {"topk_weights: found dtype 0 (none), allowed 1 (fp32), 2 (bf16)",
     [](GoodCall& c) { c.outputs.topk_weights.dtype = 0; }},
    {"topk_weights: data is not aligned",
     [](GoodCall& c) { c.outputs.topk_weights.data = static_cast<char*>(c.outputs.topk_weights.data) + 1; }},
    {"outputs.router_logits: found shape",
     [](GoodCall& c) { c.outputs.router_logits = tensor(c.logits, kRows, kExperts - 1, SAMEBITS_FP32); }},
    {"block_size: found -1", [](GoodCall& c) { c.outputs.block_size = -1; }},
    {"block_size: found 0, allowed 1 or more", [](GoodCall& c) { c.outputs.num_tokens_post_padded = c.ids.data(); }},
    {"num_tokens: found 5, but bookkeeping", [](GoodCall& c) { c.outputs.block_size = INT32_MAX; }},
    {"workspace: not initialised",
     [](GoodCall& c) { std::fill(c.workspace.begin(), c.workspace.end(), static_cast<unsigned char>(0)); }},
};

TEST(Abi, BadCallsHaveClearErrors) {
  for (const BadCall& bad : kBadCalls) {
    GoodCall call;
    ASSERT_EQ(call.route(), SAMEBITS_OK);
    const std::vector<std::int32_t> before = call.ids;
    bad.change(call);
    EXPECT_EQ(call.route(), SAMEBITS_INVALID_ARGUMENT) << bad.text;
    EXPECT_NE(call.error().find(bad.text), std::string::npos) << bad.text << "\nfound: " << call.error();
    EXPECT_EQ(call.ids, before) << "outputs are untouched: " << bad.text;
  }
}

TEST(Abi, NullArguments) {
  GoodCall call;
  samebits_router* router = call.router.get();
  EXPECT_EQ(samebits_route(nullptr, &call.inputs, &call.outputs, call.workspace.data(), nullptr),
            SAMEBITS_INVALID_ARGUMENT);
  EXPECT_EQ(samebits_route(router, nullptr, &call.outputs, call.workspace.data(), nullptr), SAMEBITS_INVALID_ARGUMENT);
  EXPECT_EQ(samebits_route(router, &call.inputs, nullptr, call.workspace.data(), nullptr), SAMEBITS_INVALID_ARGUMENT);
  EXPECT_EQ(samebits_route(router, &call.inputs, &call.outputs, nullptr, nullptr), SAMEBITS_INVALID_ARGUMENT);
  int stream = 0;
  EXPECT_EQ(samebits_route(router, &call.inputs, &call.outputs, call.workspace.data(), &stream),
            SAMEBITS_INVALID_ARGUMENT);
  EXPECT_EQ(samebits_create(&call.spec, nullptr, &router), SAMEBITS_INVALID_ARGUMENT);
  EXPECT_EQ(router, nullptr);
  EXPECT_STREQ(samebits_last_error(nullptr), "constants is null");
  EXPECT_EQ(samebits_create(nullptr, nullptr, &router), SAMEBITS_INVALID_ARGUMENT);
  EXPECT_EQ(samebits_create(&call.spec, nullptr, nullptr), SAMEBITS_INVALID_ARGUMENT);
  EXPECT_EQ(samebits_describe(nullptr), SAMEBITS_INVALID_ARGUMENT);
  EXPECT_EQ(samebits_workspace_bytes(nullptr, 1), 0u);
  EXPECT_EQ(samebits_topk_columns(nullptr), 0);
  samebits_destroy(nullptr);
}

TEST(Abi, WorkspaceTooSmallForTheRows) {
  GoodCall call;
  const std::size_t small = samebits_workspace_bytes(call.router.get(), 0);
  ASSERT_EQ(samebits_workspace_init(call.router.get(), call.workspace.data(), small, nullptr), SAMEBITS_OK);
  call.inputs.num_tokens = 4096;
  call.inputs.hidden_states.rows = call.outputs.topk_ids.rows = call.outputs.topk_weights.rows = 4096;
  EXPECT_EQ(call.route(), SAMEBITS_INVALID_ARGUMENT);
  EXPECT_NE(call.error().find("workspace: found"), std::string::npos) << call.error();
  EXPECT_EQ(samebits_workspace_init(call.router.get(), call.workspace.data(), 10, nullptr), SAMEBITS_INVALID_ARGUMENT);
}

TEST(Abi, ErrorsBelongToRouterAndThread) {
  GoodCall first, second;
  first.inputs.num_tokens = -1;
  second.inputs.num_tokens = -2;
  first.route(), second.route();
  EXPECT_NE(first.error().find("-1"), std::string::npos);
  EXPECT_NE(second.error().find("-2"), std::string::npos);
  std::string elsewhere = "not called";
  std::thread([&] { elsewhere = first.error(); }).join();
  EXPECT_EQ(elsewhere, "");
}

TEST(Abi, FieldsBeyondTheStructSizeAreZero) {
  GoodCall call;
  ASSERT_EQ(call.route(), SAMEBITS_OK);
  const auto ids = call.ids;
  // A caller that knows no bookkeeping and no kernel_name: what lies there is not read or written.
  call.outputs.struct_size = offsetof(samebits_outputs, router_logits);
  std::memset(&call.outputs.router_logits, 0xff, sizeof(call.outputs) - call.outputs.struct_size);
  call.inputs.struct_size = offsetof(samebits_inputs, num_valid_rows);
  std::memset(&call.inputs.num_valid_rows, 0xff, sizeof(call.inputs) - call.inputs.struct_size);
  EXPECT_EQ(call.route(), SAMEBITS_OK) << call.error();
  EXPECT_EQ(call.ids, ids);
  EXPECT_EQ(static_cast<unsigned char>(call.outputs.kernel_name[0]), 0xff);
}

TEST(Abi, NewerCallersMaySetNothingUnknown) {
  struct Newer {
    samebits_router_spec spec;
    std::int32_t new_field;
  } newer{plain_spec(0, 4, 2), 0};
  newer.spec.struct_size = sizeof(Newer);
  EXPECT_EQ(samebits_supports(&newer.spec, nullptr, 0), SAMEBITS_OK);
  newer.new_field = 1;
  char reason[200];
  EXPECT_EQ(samebits_supports(&newer.spec, reason, sizeof(reason)), SAMEBITS_UNSUPPORTED);
  EXPECT_NE(std::string(reason).find("beyond"), std::string::npos) << reason;
}

TEST(Abi, Describe) {
  samebits_info info;
  std::memset(&info, 0xff, sizeof(info));
  info.struct_size = sizeof(info);
  ASSERT_EQ(samebits_describe(&info), SAMEBITS_OK);
  EXPECT_EQ(samebits_abi_version(), SAMEBITS_ABI_VERSION);
  EXPECT_EQ(info.abi_version, SAMEBITS_ABI_VERSION);
  EXPECT_STREQ(info.name, "samebits-cpu");
  EXPECT_STREQ(info.arithmetic, "tc256");
  EXPECT_EQ(info.memory_kinds, static_cast<std::uint32_t>(SAMEBITS_MEMORY_HOST));
  EXPECT_EQ(info.determinism, SAMEBITS_BATCH_INVARIANT);
  EXPECT_EQ(info.max_tokens, 0);
  std::memset(&info, 0xff, sizeof(info));
  info.struct_size = offsetof(samebits_info, arithmetic);
  ASSERT_EQ(samebits_describe(&info), SAMEBITS_OK);
  EXPECT_STREQ(info.name, "samebits-cpu");
  EXPECT_EQ(static_cast<unsigned char>(info.arithmetic[0]), 0xff);
}

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
    {SAMEBITS_INVALID_ARGUMENT, "top2_sum needs two",
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
    {SAMEBITS_UNSUPPORTED, "not implemented yet: fused_ids",
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
  EXPECT_NE(error_of([](auto& c) { c.linear_bias = c.selection_bias; }).find("linear_bias: given"), std::string::npos);
  EXPECT_NE(error_of([](auto& c) { c.hash_table = c.selection_bias; }).find("hash_table: given"), std::string::npos);
}

TEST(Constants, WithoutAGateWeightOnlyLogitsCanBeRouted) {
  GoodCall good;
  const Constants values = random_constants(good.spec, 1);
  samebits_constants constants = abi_constants(good.spec, values);
  constants.gate_weight = {};
  samebits_router* router = nullptr;
  ASSERT_EQ(samebits_create(&good.spec, &constants, &router), SAMEBITS_OK);
  EXPECT_EQ(samebits_route(router, &good.inputs, &good.outputs, good.workspace.data(), nullptr),
            SAMEBITS_INVALID_ARGUMENT);
  EXPECT_NE(std::string(samebits_last_error(router)).find("gate_weight: absent"), std::string::npos);
  EXPECT_EQ(samebits_route_from_logits(router, &good.inputs, &good.outputs, good.workspace.data(), nullptr),
            SAMEBITS_OK);
  samebits_destroy(router);
}

TEST(PaddingRows, HaveNoExpertsAndKeepTheirLogits) {
  GoodCall call;
  for (const std::int32_t valid : {-3, 0, 2, 5, 100}) {
    const std::int64_t rows = std::clamp<std::int64_t>(valid, 0, kRows);
    std::vector<float> logits(kRows * kExperts, 77.0f);
    call.outputs.router_logits = tensor(logits, kRows, kExperts, SAMEBITS_FP32);
    call.inputs.num_valid_rows = &valid;
    ASSERT_EQ(call.route(), SAMEBITS_OK) << call.error();
    for (std::int64_t i = 0; i < kRows * kTopK; ++i) {
      EXPECT_EQ(call.ids[static_cast<std::size_t>(i)] == -1, i >= rows * kTopK);
      EXPECT_EQ(call.weights[static_cast<std::size_t>(i)] == 0.0f, i >= rows * kTopK);
    }
    for (std::int64_t i = 0; i < kRows * kExperts; ++i) {
      EXPECT_EQ(logits[static_cast<std::size_t>(i)] == 77.0f, i >= rows * kExperts);
    }
  }
}

TEST(EmptyCall, NeedsNoBuffers) {
  GoodCall call;
  std::vector<std::int32_t> offsets(kExperts + 1, -9);
  call.inputs.num_tokens = 0;
  call.inputs.hidden_states = {nullptr, 0, kHidden, kHidden, SAMEBITS_BF16, 0};
  call.outputs.topk_ids = {nullptr, 0, kTopK, kTopK, SAMEBITS_INT32, 0};
  call.outputs.topk_weights = {nullptr, 0, kTopK, kTopK, SAMEBITS_FP32, 0};
  call.outputs.expert_offsets = offsets.data();
  EXPECT_EQ(call.route(), SAMEBITS_OK) << call.error();
  EXPECT_EQ(offsets, std::vector<std::int32_t>(kExperts + 1, 0));
}

// Buffers with gaps between rows, 2-byte aligned hidden states, int64 ids and bf16 weights.
TEST(Layout, StridesAlignmentAndDtypesChangeNoBit) {
  GoodCall call;
  ASSERT_EQ(call.route(), SAMEBITS_OK);
  constexpr std::int64_t kGap = 3;
  std::vector<std::uint16_t> hidden(1 + kRows * (kHidden + kGap), 0x7fff);
  for (std::int64_t r = 0; r < kRows; ++r) {
    std::copy_n(call.hidden.begin() + r * kHidden, kHidden, hidden.begin() + 1 + r * (kHidden + kGap));
  }
  std::vector<std::int64_t> ids(kRows * (kTopK + kGap), -9);
  std::vector<std::uint16_t> weights(kRows * (kTopK + kGap), 0x1234);
  std::vector<float> logits(kRows * (kExperts + kGap), 77.0f);
  call.inputs.hidden_states = {hidden.data() + 1, kRows, kHidden, kHidden + kGap, SAMEBITS_BF16, 0};
  GoodCall wide;
  wide.inputs.hidden_states = call.inputs.hidden_states;
  wide.outputs.topk_ids = {ids.data(), kRows, kTopK, kTopK + kGap, SAMEBITS_INT64, 0};
  wide.outputs.topk_weights = {weights.data(), kRows, kTopK, kTopK + kGap, SAMEBITS_BF16, 0};
  wide.outputs.router_logits = {logits.data(), kRows, kExperts, kExperts + kGap, SAMEBITS_FP32, 0};
  ASSERT_EQ(wide.route(), SAMEBITS_OK) << wide.error();
  const Routed plain = call.router.route(call.hidden);
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t c = 0; c < kTopK + kGap; ++c) {
      const auto at = static_cast<std::size_t>(r * (kTopK + kGap) + c),
                 slot = static_cast<std::size_t>(r * kTopK + c % kTopK);
      EXPECT_EQ(ids[at], c < kTopK ? plain.ids[slot] : -9);
      const std::uint16_t rounded = c < kTopK ? weight_to_bf16(plain.weights[slot]) : std::uint16_t{0x1234};
      EXPECT_EQ(weights[at], rounded);
    }
    for (std::int64_t e = 0; e < kExperts + kGap; ++e) {
      EXPECT_EQ(logits[static_cast<std::size_t>(r * (kExperts + kGap) + e)],
                e < kExperts ? plain.logits[static_cast<std::size_t>(r * kExperts + e)] : 77.0f);
    }
  }
}

}  // namespace
}  // namespace samebits::cpu::test
