// The helper of plug-in authors: an ordinary router refuses, by name, each feature that it does not have.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <string>
#include <vector>

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

struct Echo : HostRouter {
  static std::vector<Rule> rules(const samebits_router_spec&) { return {}; }
  void logits(const float*, float*) const {}
  void route(float*, std::int32_t* ids, float* weights) const {
    for (std::int32_t c = 0; c < spec.top_k; ++c) ids[c] = c, weights[c] = 0.5f;
  }
};

// A call that works; each test changes one thing.
struct EchoCall {
  EchoCall() {
    EXPECT_EQ(detail::create(&spec, &constants, &router), SAMEBITS_OK) << detail::last_error();
    inputs.struct_size = sizeof(inputs), inputs.num_tokens = 3;
    inputs.hidden_states = tensor(hidden, 3, 8, SAMEBITS_BF16);
    outputs.struct_size = sizeof(outputs);
    outputs.topk_ids = tensor(ids, 3, 2, SAMEBITS_INT32), outputs.topk_weights = tensor(weights, 3, 2, SAMEBITS_FP32);
    workspace.resize(detail::workspace_bytes(spec) / sizeof(float));
  }
  ~EchoCall() { delete router; }
  EchoCall(const EchoCall&) = delete;
  EchoCall& operator=(const EchoCall&) = delete;
  samebits_status route() const { return detail::route(router, &inputs, &outputs, workspace_at, false); }

  samebits_router_spec spec = sigmoid_bias_spec(8, 8, 2);
  Constants values = random_constants(spec, 1);
  samebits_constants constants = abi_constants(spec, values);
  Echo* router = nullptr;
  std::vector<std::uint16_t> hidden = normal_bf16(2, 24);
  std::vector<std::int32_t> ids = std::vector<std::int32_t>(6, -7);
  std::vector<float> weights = std::vector<float>(6, -7.0f), workspace;
  std::vector<std::int32_t> counts = std::vector<std::int32_t>(9), classes = {0, 1, -1};
  samebits_inputs inputs{};
  mutable samebits_outputs outputs{};
  void* workspace_at = nullptr;
};

struct WrongCall {
  samebits_status status;
  const char* text;
  std::function<void(EchoCall&)> change;
};

const WrongCall kWrongCalls[] = {
    {SAMEBITS_INVALID_ARGUMENT, "inputs.struct_size: found 0", [](auto& c) { c.inputs.struct_size = 0; }},
    {SAMEBITS_INVALID_ARGUMENT, "outputs.struct_size: found 0", [](auto& c) { c.outputs.struct_size = 0; }},
    {SAMEBITS_INVALID_ARGUMENT, "num_tokens: found -1", [](auto& c) { c.inputs.num_tokens = -1; }},
    {SAMEBITS_INVALID_ARGUMENT, "the input: found row_stride 0, allowed 8 (cols) to 2305843009213693947 elements",
     [](auto& c) { c.inputs.hidden_states.row_stride = 0; }},
    {SAMEBITS_INVALID_ARGUMENT, "the input: found row_stride -8",
     [](auto& c) { c.inputs.hidden_states.row_stride = -8; }},
    {SAMEBITS_INVALID_ARGUMENT, "the input: found row_stride 9223372036854775807",
     [](auto& c) { c.inputs.hidden_states.row_stride = INT64_MAX; }},
    {SAMEBITS_INVALID_ARGUMENT, "topk_ids: found row_stride 1", [](auto& c) { c.outputs.topk_ids.row_stride = 1; }},
    {SAMEBITS_INVALID_ARGUMENT, "topk_weights: found row_stride 0",
     [](auto& c) { c.outputs.topk_weights.row_stride = 0; }},
    {SAMEBITS_INVALID_ARGUMENT, "topk_weights: data is not aligned to its elements of 4 bytes",
     [](auto& c) { c.outputs.topk_weights.data = reinterpret_cast<char*>(c.weights.data()) + 2; }},
    {SAMEBITS_INVALID_ARGUMENT, "the input: data is not aligned to its elements of 2 bytes",
     [](auto& c) { c.inputs.hidden_states.data = reinterpret_cast<char*>(c.hidden.data()) + 1; }},
    {SAMEBITS_INVALID_ARGUMENT, "the input: found 9223372036854775807 rows",
     [](auto& c) {
       c.inputs.num_tokens = c.inputs.hidden_states.rows = c.outputs.topk_ids.rows = c.outputs.topk_weights.rows =
           INT64_MAX;
     }},
    {SAMEBITS_INVALID_ARGUMENT, "row_class: found shape [1, 2], allowed [1, 3]",
     [](auto& c) { c.inputs.row_class = tensor(c.classes, 1, 2, SAMEBITS_INT32); }},
    {SAMEBITS_INVALID_ARGUMENT, "workspace: null", [](auto& c) { c.workspace_at = nullptr; }},
    {SAMEBITS_UNSUPPORTED, "outputs.router_logits: wanted",
     [](auto& c) { c.outputs.router_logits = tensor(c.weights, 3, 8, SAMEBITS_FP32); }},
    {SAMEBITS_UNSUPPORTED, "outputs: bookkeeping: wanted",
     [](auto& c) { c.outputs.tokens_per_expert = c.counts.data(); }},
    {SAMEBITS_UNSUPPORTED, "outputs: bookkeeping: wanted", [](auto& c) { c.outputs.expert_ids = c.counts.data(); }},
    {SAMEBITS_UNSUPPORTED, "outputs.block_size: wanted", [](auto& c) { c.outputs.block_size = 16; }},
};

TEST(HostPlugin, WrongCallsAreRefusedAndWriteNothing) {
  for (const WrongCall& wrong : kWrongCalls) {
    EchoCall call;
    call.workspace_at = call.workspace.data();
    wrong.change(call);
    EXPECT_EQ(call.route(), wrong.status) << wrong.text;
    EXPECT_NE(detail::last_error().find(wrong.text), std::string::npos)
        << wrong.text << "\nfound: " << detail::last_error();
    EXPECT_EQ(call.ids, std::vector<std::int32_t>(6, -7)) << wrong.text;
  }
}

TEST(HostPlugin, NullArgumentsAreErrors) {
  EchoCall call;
  EXPECT_EQ(detail::route<Echo>(nullptr, &call.inputs, &call.outputs, nullptr, false), SAMEBITS_INVALID_ARGUMENT);
  EXPECT_EQ(detail::route(call.router, nullptr, &call.outputs, nullptr, false), SAMEBITS_INVALID_ARGUMENT);
  EXPECT_EQ(detail::route(call.router, &call.inputs, nullptr, nullptr, false), SAMEBITS_INVALID_ARGUMENT);
  EXPECT_EQ(detail::last_error(), "outputs is null");
  EXPECT_EQ(detail::workspace_init(nullptr, &call), SAMEBITS_INVALID_ARGUMENT);
  EXPECT_EQ(detail::workspace_init(call.router, nullptr), SAMEBITS_INVALID_ARGUMENT);
  Echo* none = call.router;
  EXPECT_EQ(detail::create<Echo>(nullptr, &call.constants, &none), SAMEBITS_INVALID_ARGUMENT);
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(detail::create<Echo>(&call.spec, nullptr, &none), SAMEBITS_INVALID_ARGUMENT);
  EXPECT_EQ(detail::last_error(), "constants is null");
  EXPECT_EQ(detail::create<Echo>(&call.spec, &call.constants, nullptr), SAMEBITS_INVALID_ARGUMENT);
  samebits_router_spec bad = call.spec;
  bad.score_func = 9;
  EXPECT_EQ(detail::supports<Ordinary>(&bad, nullptr, 100), SAMEBITS_UNSUPPORTED);
  EXPECT_EQ(detail::supports<Ordinary>(nullptr, nullptr, 100), SAMEBITS_INVALID_ARGUMENT);
}

TEST(HostPlugin, SpecsThatAreNoneAreRefused) {
  struct Wrong {
    const char* text;
    std::function<void(samebits_router_spec&)> change;
  };
  const Wrong wrong[] = {
      {"spec.struct_size: found 0", [](auto& s) { s.struct_size = 0; }},
      {"spec.struct_size: found 4294967295", [](auto& s) { s.struct_size = 0xffffffffu; }},
      {"routed_scaling_factor: found nan, allowed finite", [](auto& s) { s.routed_scaling_factor = std::nanf(""); }},
      {"routed_scaling_factor: found inf",
       [](auto& s) { s.routed_scaling_factor = std::numeric_limits<float>::infinity(); }},
      {"eps: found nan", [](auto& s) { s.eps = std::nanf(""); }},
      {"top_k: found 0, allowed 1 to 8", [](auto& s) { s.top_k = 0; }},
      {"top_k: found 9", [](auto& s) { s.top_k = 9; }},
      {"hidden_size: found -1", [](auto& s) { s.hidden_size = -1; }},
      {"zero_experts: found 2147483647, allowed 0 to 2147483639", [](auto& s) { s.zero_experts = INT32_MAX; }},
      {"shared_experts: found 2147483647",
       [](auto& s) { s.shared_experts = INT32_MAX, s.shared_mode = SAMEBITS_SHARED_IN_GATE; }},
  };
  EchoCall call;
  for (const Wrong& w : wrong) {
    samebits_router_spec spec = call.spec;
    w.change(spec);
    char reason[256] = "";
    EXPECT_EQ(detail::supports<Echo>(&spec, reason, sizeof(reason)), SAMEBITS_INVALID_ARGUMENT) << w.text;
    EXPECT_NE(std::string(reason).find(w.text), std::string::npos) << w.text << "\nfound: " << reason;
    Echo* none = nullptr;
    EXPECT_EQ(detail::create(&spec, &call.constants, &none), SAMEBITS_INVALID_ARGUMENT) << w.text;
    EXPECT_EQ(detail::columns_of_any(&spec), 0) << w.text;
  }
}

TEST(HostPlugin, WrongConstantsAreRefused) {
  struct Wrong {
    const char* text;
    std::function<void(samebits_constants&)> change;
  };
  const Wrong wrong[] = {
      {"constants.struct_size: found 0", [](auto& c) { c.struct_size = 0; }},
      {"gate_weight: found row_stride 0", [](auto& c) { c.gate_weight.row_stride = 0; }},
      {"gate_weight: found row_stride", [](auto& c) { c.gate_weight.row_stride = (std::int64_t{1} << 62) + 8; }},
      {"selection_bias is absent", [](auto& c) { c.selection_bias.data = nullptr; }},
      {"linear_bias: given", [](auto& c) { c.linear_bias = c.selection_bias; }},
      {"per_expert_scale: given", [](auto& c) { c.per_expert_scale = c.selection_bias; }},
  };
  EchoCall call;
  for (const Wrong& w : wrong) {
    samebits_constants constants = call.constants;
    w.change(constants);
    Echo* none = nullptr;
    EXPECT_EQ(detail::create(&call.spec, &constants, &none), SAMEBITS_INVALID_ARGUMENT) << w.text;
    EXPECT_NE(detail::last_error().find(w.text), std::string::npos) << w.text << "\nfound: " << detail::last_error();
  }
}

TEST(HostPlugin, ConstantsThatNoRouterIsGivenAreUnsupported) {
  samebits_router_spec spec = sigmoid_bias_spec(8, 8, 2);
  spec.per_expert_scale = 1;
  char reason[256] = "";
  EXPECT_EQ(detail::supports<Echo>(&spec, reason, sizeof(reason)), SAMEBITS_UNSUPPORTED);
  EXPECT_STREQ(reason, "per_expert_scale: found yes (1), this router has no (0)");
}

TEST(HostPlugin, ARowOfAClassWithoutABiasHasNoExperts) {
  EchoCall call;
  call.workspace_at = call.workspace.data();
  call.inputs.row_class = tensor(call.classes, 1, 3, SAMEBITS_INT32);
  ASSERT_EQ(call.route(), SAMEBITS_OK) << detail::last_error();
  EXPECT_EQ(call.ids, (std::vector<std::int32_t>{0, 1, -1, -1, -1, -1}));
  EXPECT_EQ(call.weights, (std::vector<float>{0.5f, 0.5f, 0, 0, 0, 0}));
}

TEST(HostPlugin, FieldsBeyondTheStructSizeAreNotRead) {
  EchoCall call;
  call.workspace_at = call.workspace.data();
  call.inputs.struct_size = offsetof(samebits_inputs, num_valid_rows);
  std::memset(&call.inputs.num_valid_rows, 0xff, sizeof(call.inputs) - call.inputs.struct_size);
  call.outputs.struct_size = offsetof(samebits_outputs, router_logits);
  std::memset(&call.outputs.router_logits, 0xff, sizeof(call.outputs) - call.outputs.struct_size);
  EXPECT_EQ(call.route(), SAMEBITS_OK) << detail::last_error();
  EXPECT_EQ(static_cast<unsigned char>(call.outputs.kernel_name[0]), 0xff);
}

}  // namespace
}  // namespace samebits::cpu::test
