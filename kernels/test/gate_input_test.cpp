// What the gate reads and what follows its product: norm, scales, temperature and softcap. A gate weight of unit
// vectors shows the prepared row as logits.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "kernels/common/bits.h"
#include "kernels/test/contract_functions.h"
#include "kernels/test/test_router.h"

namespace samebits::cpu::test {
namespace {

using Floats = std::vector<float>;

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNaN = from_bits(kNaNBits);

Floats bf16_floats(const std::vector<std::uint16_t>& bits) {
  Floats values;
  for (const std::uint16_t b : bits) values.push_back(bf16_to_float(b));
  return values;
}

Floats rounded(const Floats& values) {
  Floats out;
  for (const float v : values) out.push_back(round_to_bf16(v));
  return out;
}

Constants unit_vectors(std::int32_t hidden_size) {
  Constants constants;
  constants.gate_weight.assign(static_cast<std::size_t>(hidden_size * hidden_size), 0);
  for (std::int32_t i = 0; i < hidden_size; ++i) {
    constants.gate_weight[static_cast<std::size_t>(i * (hidden_size + 1))] = 0x3f80;
  }
  return constants;
}

samebits_router_spec norm_spec(std::int32_t hidden_size, float eps) {
  samebits_router_spec spec = plain_spec(hidden_size, hidden_size, 1);
  spec.input_norm = SAMEBITS_INPUT_NORM_RMSNORM_UNWEIGHTED;
  spec.input_norm_eps = eps;
  return spec;
}

Floats prepared(const samebits_router_spec& spec, const Constants& constants, const Floats& row) {
  std::vector<std::uint16_t> hidden;
  for (const float x : row) hidden.push_back(float_to_bf16(x));
  return TestRouter(spec, constants).route(hidden).logits;
}

TEST(InputNorm, ByHand) {
  const Constants constants = unit_vectors(4);
  EXPECT_EQ(prepared(norm_spec(4, 1e-20f), constants, {2, 2, -2, 2}), (Floats{1, 1, -1, 1}));
  // The mean of squares is 4, eps 12: r = 1/4.
  EXPECT_EQ(prepared(norm_spec(4, 12.0f), constants, {4, 0, 0, 0}), (Floats{1, 0, 0, 0}));
  EXPECT_EQ(prepared(norm_spec(4, 1e-6f), constants, {0, 0, 0, 0}), (Floats{0, 0, 0, 0}));
}

TEST(InputNorm, NonFiniteRows) {
  const Constants constants = unit_vectors(3);
  const Floats nan_row(3, kNaN);
  EXPECT_TRUE(same_bits(prepared(norm_spec(3, 1e-6f), constants, {kNaN, 1, 1}), nan_row));
  // r = 1 / sqrt(inf) = 0, and inf * 0.
  EXPECT_TRUE(same_bits(prepared(norm_spec(3, 1e-6f), constants, {kInf, 1, 1}), nan_row));
  // Squares that overflow: every product with 0.
  EXPECT_EQ(prepared(norm_spec(3, 1e-6f), constants, {0x1p100f, 1, 1}), (Floats{0, 0, 0}));
}

TEST(InputNorm, SumsSquaresAsAWarpDoes) {
  constexpr std::int32_t kHidden = 300;
  const std::vector<std::uint16_t> hidden = normal_bf16(5, kHidden, 3.0f);
  const Floats x = bf16_floats(hidden);
  Floats lanes(32);
  float sequential = 0;
  for (std::size_t i = 0; i < kHidden; ++i) {
    lanes[i % 32] = i < 32 ? x[i] * x[i] : lanes[i % 32] + x[i] * x[i];
    sequential += x[i] * x[i];
  }
  for (std::size_t distance = 16; distance > 0; distance /= 2) {
    for (std::size_t l = 0; l < distance; ++l) lanes[l] += lanes[l + distance];
  }
  EXPECT_NE(lanes[0], sequential) << "the data do not tell the orders apart";
  const float r = contract_rsqrt(lanes[0] / 300.0f + 1e-6f);
  Floats expected;
  for (const float v : x) expected.push_back(v * r);
  EXPECT_EQ(TestRouter(norm_spec(kHidden, 1e-6f), unit_vectors(kHidden)).route(hidden).logits, rounded(expected));
}

TEST(InputScale, VectorThenFactorThenOneRounding) {
  samebits_router_spec spec = plain_spec(3, 3, 1);
  spec.input_scale_vector = 1;
  spec.input_scale = 0.7f;
  Constants constants = unit_vectors(3);
  constants.input_scale_vector = {1.37f, -1.5f, 0x1p-130f};
  const Floats row = {1.5f, 1.484375f, 2.0f};
  const Floats expected = {1.5f * 1.37f * 0.7f, 1.484375f * -1.5f * 0.7f, 2.0f * 0x1p-130f * 0.7f};
  const Floats found = prepared(spec, constants, row);
  EXPECT_TRUE(same_bits(found, rounded(expected)));
  EXPECT_NE(found[0], round_to_bf16(round_to_bf16(1.5f * 1.37f) * 0.7f)) << "the data do not show a second rounding";
  EXPECT_NE(found[1], round_to_bf16(1.484375f * (-1.5f * 0.7f))) << "the data do not tell the orders apart";
}

TEST(InputScale, RsqrtOfTheHiddenSize) {
  samebits_router_spec spec = plain_spec(3, 3, 1);
  const Constants constants = unit_vectors(3);
  const Floats row = {1.03125f, 1.078125f, -1.1328125f};
  const float fp32 = 1 / std::sqrt(3.0f), bf16 = round_to_bf16(fp32);
  const auto times = [&](float s) { return rounded({row[0] * s, row[1] * s, row[2] * s}); };
  spec.input_scale_rsqrt_hidden_size = 1;
  EXPECT_EQ(prepared(spec, constants, row), times(fp32));
  spec.input_scale_rsqrt_hidden_size = 2;
  EXPECT_EQ(prepared(spec, constants, row), times(bf16));
  EXPECT_NE(times(fp32), times(bf16)) << "the data do not tell the two apart";
}

TEST(InputScale, AbsentChangesNothingAndIsNotAppliedToGivenLogits) {
  samebits_router_spec spec = norm_spec(2, 1e-6f);
  const Floats logits = {3.25f, -7.5f};
  EXPECT_EQ(TestRouter(spec, unit_vectors(2)).route_from_logits(logits).logits, logits);
  spec.temperature = 2.0f, spec.softcap = 1.0f;
  EXPECT_EQ(TestRouter(spec, unit_vectors(2)).route_from_logits(logits).logits, logits);
}

TEST(FinishedLogits, BiasThenBf16ThenTemperatureThenSoftcap) {
  samebits_router_spec spec = plain_spec(1, 3, 1);
  Constants constants;
  constants.gate_weight = {0x3f80, 0xc0a0, 0x7f80};  // 1, -5, inf
  spec.linear_bias_dtype = SAMEBITS_FP32;
  constants.linear_bias = {0.1f, 0.01f, 0};
  spec.temperature = 3.0f;
  const auto logits = [&] { return TestRouter(spec, constants).route({0x3f80}).logits; };
  EXPECT_EQ(logits(), (Floats{(1 + 0.1f) / 3.0f, (-5 + 0.01f) / 3.0f, kInf}));
  spec.logits_dtype = SAMEBITS_BF16;
  const Floats cooled = {round_to_bf16(1 + 0.1f) / 3.0f, round_to_bf16(-5 + 0.01f) / 3.0f, kInf};
  EXPECT_EQ(logits(), cooled);
  spec.softcap = 2.5f;
  const auto capped = [](float z) { return 2.5f * contract_tanh(z / 2.5f); };
  EXPECT_EQ(logits(), (Floats{capped(cooled[0]), capped(cooled[1]), 2.5f}));
}

TEST(FinishedLogits, SoftcapOfHugeAndNaN) {
  samebits_router_spec spec = plain_spec(1, 4, 1);
  spec.softcap = 30.0f;
  Constants constants;
  constants.gate_weight = {0x4f00, 0xff80, 0x7fc0, 0x8000};  // 2^31, -inf, NaN, -0: the product of which is +0
  EXPECT_TRUE(same_bits(TestRouter(spec, constants).route({0x3f80}).logits, {30, -30, kNaN, 0}));
}

}  // namespace
}  // namespace samebits::cpu::test
