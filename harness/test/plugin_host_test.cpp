// host_plugin.hpp: what it takes off the author of a plug-in.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <samebits/host_plugin.hpp>

#include <array>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

namespace samebits {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// Logits are dot products; the ids are 0 .. K-1 and the weights the first K logits.
struct EchoRouter : HostRouter {
  static void describe(samebits_info& info) { std::strcpy(info.name, "echo"); }
  static std::vector<Rule> rules(const samebits_router_spec& s) { return ordinary(s); }
  void logits(const float* x, float* logits) const {
    for (int e = 0; e < spec.num_experts; ++e) {
      logits[e] = 0;
      for (int h = 0; h < spec.hidden_size; ++h)
        logits[e] += x[h] * gate_weight[static_cast<std::size_t>(e * spec.hidden_size + h)];
    }
  }
  void route(float* logits, std::int32_t* ids, float* weights) const {
    for (int c = 0; c < spec.top_k; ++c) {
      ids[c] = c;
      weights[c] = logits[c];
    }
  }
};

samebits_router_spec plain_spec() {
  samebits_router_spec spec{};
  spec.struct_size = sizeof(spec);
  spec.hidden_size = 2;
  spec.num_experts = 3;
  spec.top_k = 2;
  spec.logits_dtype = spec.score_dtype = spec.weights_dtype = SAMEBITS_FP32;
  spec.input_scale = spec.temperature = 1;
  spec.score_func = SAMEBITS_SCORE_SOFTMAX;
  spec.score_stage = SAMEBITS_SCORE_BEFORE_TOPK;
  spec.selection_method = SAMEBITS_SELECT_TOPK;
  spec.rank_by = SAMEBITS_RANK_BY_SCORE;
  spec.selection_bias_dtype = SAMEBITS_FP32;
  spec.num_bias_variants = spec.n_group = spec.topk_group = 1;
  spec.topk_scope = SAMEBITS_TOPK_GLOBAL;
  spec.sort = SAMEBITS_SORT_BY_KEY_DESC;
  spec.weight_source = SAMEBITS_WEIGHT_UNBIASED_SCORE;
  return spec;
}

constexpr std::uint16_t kOne = 0x3f80, kTwo = 0x4000, kThree = 0x4040;

// Gate weight [3, 2] in bf16 with two elements between its rows.
struct Constants {
  std::array<std::uint16_t, 12> weight = {kOne, 0, 7, 7, 0, kOne, 7, 7, kTwo, kThree, 7, 7};
  std::array<float, 3> bias = {1.0f + 0x1p-9f, 1.0f + 0x1p-8f, std::numeric_limits<float>::quiet_NaN()};
  samebits_constants c{};
  Constants() {
    c.struct_size = sizeof(c);
    c.memory = SAMEBITS_MEMORY_HOST;
    c.gate_weight = {weight.data(), 3, 2, 4, SAMEBITS_BF16, 0};
    c.selection_bias = {bias.data(), 1, 3, 3, SAMEBITS_FP32, 0};
  }
};

std::unique_ptr<EchoRouter> create(const samebits_router_spec& spec, const Constants& constants) {
  EchoRouter* router = nullptr;
  EXPECT_EQ(detail::create(&spec, &constants.c, &router), SAMEBITS_OK) << detail::last_error();
  return std::unique_ptr<EchoRouter>(router);
}

TEST(HostPlugin, ConstantsArePackedAndWidened) {
  const auto router = create(plain_spec(), Constants());
  EXPECT_THAT(router->gate_weight, ElementsAre(1.0f, 0.0f, 0.0f, 1.0f, 2.0f, 3.0f));
  EXPECT_TRUE(router->linear_bias.empty());
  EXPECT_EQ(router->selection_bias[0], 1.0f + 0x1p-9f);
}

TEST(HostPlugin, ABf16BiasIsRoundedToNearestEven) {
  samebits_router_spec spec = plain_spec();
  spec.selection_bias_dtype = SAMEBITS_BF16;
  const auto router = create(spec, Constants());
  EXPECT_EQ(router->selection_bias[0], 1.0f);  // below half a step of 2^-7
  EXPECT_EQ(router->selection_bias[1], 1.0f);  // a tie: to the even neighbour
  EXPECT_TRUE(std::isnan(router->selection_bias[2]));
}

// Hidden states and outputs with gaps between the rows; the second row is padding.
struct Call {
  std::array<std::uint16_t, 6> x = {kOne, kTwo, 9, kThree, kThree, 9};
  std::int32_t num_valid_rows = 1;
  std::array<std::int64_t, 8> wide_ids{};
  std::array<std::int32_t, 8> ids{};
  std::array<float, 8> weights{};
  std::vector<float> workspace;
  samebits_inputs inputs{};
  samebits_outputs outputs{};
  explicit Call(const samebits_router_spec& spec) : workspace(detail::workspace_bytes(spec) / sizeof(float)) {
    wide_ids.fill(-7);
    ids.fill(-7);
    weights.fill(-7);
    inputs.struct_size = sizeof(inputs);
    inputs.num_tokens = 2;
    inputs.hidden_states = {x.data(), 2, 2, 3, SAMEBITS_BF16, 0};
    inputs.num_valid_rows = &num_valid_rows;
    outputs.struct_size = sizeof(outputs);
    outputs.topk_ids = {ids.data(), 2, 2, 4, SAMEBITS_INT32, 0};
    outputs.topk_weights = {weights.data(), 2, 2, 4, SAMEBITS_FP32, 0};
  }
};

TEST(HostPlugin, RowsArePlacedByTheirStridesAndPaddingIsFilled) {
  const auto router = create(plain_spec(), Constants());
  Call call(router->spec);
  ASSERT_EQ(detail::route(*router, call.inputs, call.outputs, call.workspace.data(), false), SAMEBITS_OK);
  EXPECT_THAT(call.ids, ElementsAre(0, 1, -7, -7, -1, -1, -7, -7));
  EXPECT_THAT(call.weights, ElementsAre(1.0f, 2.0f, -7.0f, -7.0f, 0.0f, 0.0f, -7.0f, -7.0f));
  EXPECT_THAT(call.wide_ids, Each(-7));
  EXPECT_EQ(std::string(call.outputs.kernel_name), "one row at a time");
}

TEST(HostPlugin, IdsCanBeInt64) {
  const auto router = create(plain_spec(), Constants());
  Call call(router->spec);
  call.inputs.num_valid_rows = nullptr;
  call.outputs.topk_ids = {call.wide_ids.data(), 2, 2, 4, SAMEBITS_INT64, 0};
  ASSERT_EQ(detail::route(*router, call.inputs, call.outputs, call.workspace.data(), false), SAMEBITS_OK);
  EXPECT_THAT(call.wide_ids, ElementsAre(0, 1, -7, -7, 0, 1, -7, -7));
  EXPECT_THAT(call.weights, ElementsAre(1.0f, 2.0f, -7.0f, -7.0f, 3.0f, 3.0f, -7.0f, -7.0f));
}

// Given logits become weights as they are.
std::vector<std::uint16_t> bf16_weights_of(float first, float second) {
  const auto router = create(plain_spec(), Constants());
  Call call(router->spec);
  const std::array<float, 6> logits = {first, second, 0, 5, 5, 5};
  std::vector<std::uint16_t> weights(8, 0x1234);
  call.inputs.router_logits = {const_cast<float*>(logits.data()), 2, 3, 3, SAMEBITS_FP32, 0};
  call.outputs.topk_weights = {weights.data(), 2, 2, 4, SAMEBITS_BF16, 0};
  EXPECT_EQ(detail::route(*router, call.inputs, call.outputs, call.workspace.data(), true), SAMEBITS_OK);
  return weights;
}

TEST(HostPlugin, WeightsCanBeBf16) {
  constexpr std::uint16_t kGap = 0x1234;
  EXPECT_THAT(bf16_weights_of(1, -2), ElementsAre(kOne, kTwo | 0x8000, kGap, kGap, 0, 0, kGap, kGap));
  constexpr float kStep = 0x1p-7f, kHalf = 0x1p-8f;  // of the bf16 values from 1 to 2
  const auto rounded = [](float a, float b) {
    const std::vector<std::uint16_t> weights = bf16_weights_of(a, b);
    return std::vector<std::uint16_t>{weights[0], weights[1]};
  };
  EXPECT_THAT(rounded(1 + kHalf, 1 + kHalf + 0x1p-23f), ElementsAre(kOne, kOne + 1));  // a tie: to the even one
  EXPECT_THAT(rounded(1 + kStep + kHalf, 1 + kStep + kHalf - 0x1p-23f), ElementsAre(kOne + 2, kOne + 1));
  EXPECT_THAT(rounded(0x1p-133f, 0x1p-134f), ElementsAre(1, 0));  // the smallest subnormal, and a tie below it
  // Not finite, or no longer after the rounding: +0.
  constexpr float kInf = std::numeric_limits<float>::infinity();
  EXPECT_THAT(rounded(std::numeric_limits<float>::quiet_NaN(), -kInf), ElementsAre(0, 0));
  EXPECT_THAT(rounded(std::numeric_limits<float>::max(), -0x1.fffp127f), ElementsAre(0, 0));
  EXPECT_THAT(rounded(0x1.fep127f, 0x1.fefffep127f), ElementsAre(0x7f7f, 0x7f7f));  // the largest
}

TEST(HostPlugin, GivenLogitsAreReadAndNotChanged) {
  const auto router = create(plain_spec(), Constants());
  Call call(router->spec);
  std::array<float, 6> logits = {4, 5, 6, 7, 8, 9};
  const std::array<float, 6> before = logits;
  call.inputs.num_valid_rows = nullptr;
  call.inputs.router_logits = {logits.data(), 2, 3, 3, SAMEBITS_FP32, 0};
  ASSERT_EQ(detail::route(*router, call.inputs, call.outputs, call.workspace.data(), true), SAMEBITS_OK);
  EXPECT_THAT(call.weights, ElementsAre(4.0f, 5.0f, -7.0f, -7.0f, 7.0f, 8.0f, -7.0f, -7.0f));
  EXPECT_EQ(logits, before);
}

// E = k = 1, with a zero expert and a shared expert in the gate: G = 3, K = 2.
TEST(HostPlugin, ARowHasALogitOfEveryExpertAndAllColumns) {
  struct LastLogits : HostRouter {
    void logits(const float*, float*) const {}
    void route(float* logits, std::int32_t* ids, float* weights) const {
      for (int c = 0; c < 2; ++c) {
        ids[c] = c + 1;
        weights[c] = logits[c + 1];
      }
    }
  };
  LastLogits router{{plain_spec(), {}, {}, {}}};
  router.spec.num_experts = router.spec.top_k = router.spec.zero_experts = router.spec.shared_experts = 1;
  router.spec.shared_mode = SAMEBITS_SHARED_IN_GATE;
  EXPECT_EQ(detail::workspace_bytes(router.spec), sizeof(float) * (2 + 3 + 2 + 2));
  Call call(router.spec);
  std::array<float, 6> logits = {4, 5, 6, 7, 8, 9};
  call.inputs.router_logits = {logits.data(), 2, 3, 3, SAMEBITS_FP32, 0};
  ASSERT_EQ(detail::route(router, call.inputs, call.outputs, call.workspace.data(), true), SAMEBITS_OK);
  EXPECT_THAT(call.ids, ElementsAre(1, 2, -7, -7, -1, -1, -7, -7));
  EXPECT_THAT(call.weights, ElementsAre(5.0f, 6.0f, -7.0f, -7.0f, 0.0f, 0.0f, -7.0f, -7.0f));
}

TEST(HostPlugin, WrongCallsAreErrorsWithAText) {
  const auto router = create(plain_spec(), Constants());
  Call call(router->spec);
  for (const std::int32_t dtype : {SAMEBITS_DTYPE_NONE, SAMEBITS_INT32}) {
    call.outputs.topk_weights.dtype = dtype;
    EXPECT_EQ(detail::route(*router, call.inputs, call.outputs, call.workspace.data(), false),
              SAMEBITS_INVALID_ARGUMENT);
    EXPECT_EQ(detail::last_error(), "found dtype 3 of topk_ids and " + std::to_string(dtype) +
                                        " of topk_weights, allowed INT32 (3) or INT64 (4), and FP32 (1) or BF16 (2)");
  }
  EXPECT_THAT(call.weights, Each(-7.0f));
  call.outputs.topk_weights.dtype = SAMEBITS_FP32;
  call.outputs.topk_ids.dtype = SAMEBITS_FP32;
  EXPECT_EQ(detail::route(*router, call.inputs, call.outputs, call.workspace.data(), false), SAMEBITS_INVALID_ARGUMENT);
  call.outputs.topk_ids.dtype = SAMEBITS_INT32;
  EXPECT_EQ(detail::route(*router, call.inputs, call.outputs, call.workspace.data(), true), SAMEBITS_INVALID_ARGUMENT);
  EXPECT_EQ(detail::last_error(), "the input is absent");

  Constants without_weight;
  without_weight.c.gate_weight = {};
  const auto from_logits_only = create(plain_spec(), without_weight);
  EXPECT_EQ(detail::route(*from_logits_only, call.inputs, call.outputs, call.workspace.data(), false),
            SAMEBITS_INVALID_ARGUMENT);
  EXPECT_EQ(detail::last_error(), "there is no gate weight");

  Constants on_device;
  on_device.c.memory = SAMEBITS_MEMORY_DEVICE;
  const samebits_router_spec spec = plain_spec();
  EchoRouter* none = router.get();
  EXPECT_EQ(detail::create(&spec, &on_device.c, &none), SAMEBITS_UNSUPPORTED);
  EXPECT_EQ(none, nullptr);
  EXPECT_EQ(detail::create<EchoRouter>(nullptr, &on_device.c, &none), SAMEBITS_INVALID_ARGUMENT);

  samebits_info info{};
  info.struct_size = 8;
  EXPECT_EQ(detail::describe<EchoRouter>(&info), SAMEBITS_INVALID_ARGUMENT);
}

TEST(HostPlugin, ARefusalNamesTheFieldAndBothValues) {
  samebits_router_spec spec = plain_spec();
  char reason[64] = "";
  EXPECT_EQ(detail::supports<EchoRouter>(&spec, reason, sizeof(reason)), SAMEBITS_OK);
  spec.softcap = 30;
  EXPECT_EQ(detail::supports<EchoRouter>(&spec, reason, sizeof(reason)), SAMEBITS_UNSUPPORTED);
  EXPECT_EQ(std::string(reason), "softcap: found 30, this router has 0");
  EchoRouter* router = nullptr;
  const Constants constants;
  EXPECT_EQ(detail::create(&spec, &constants.c, &router), SAMEBITS_UNSUPPORTED);
  EXPECT_EQ(detail::last_error(), "softcap: found 30, this router has 0");
}

}  // namespace
}  // namespace samebits
