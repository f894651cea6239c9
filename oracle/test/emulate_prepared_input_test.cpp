#include "oracle/emulate/prepared_input.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "oracle/emulate/tc256.h"
#include "oracle/reference/answer.h"
#include "oracle/tensors/bf16.h"

namespace samebits::oracle {
namespace {

using testing::Each;
using testing::ElementsAre;

RouterInputs row_of(std::initializer_list<float> values) {
  RouterInputs inputs;
  inputs.num_tokens = 1;
  inputs.hidden_size = static_cast<std::int64_t>(values.size());
  inputs.gate_rows = 1;
  for (const float value : values) inputs.hidden_states.push_back(fp32_to_bf16(value));
  return inputs;
}

std::vector<float> prepared(const RouterSpec& spec, const RouterInputs& inputs) {
  std::vector<float> x;
  for (const std::uint16_t bits : prepared_input(spec, inputs, 0)) x.push_back(bf16_to_fp32(bits));
  return x;
}

RouterSpec norm_spec(double eps) {
  RouterSpec spec;
  spec.gate.input_norm = InputNorm::kRmsnormUnweighted;
  spec.gate.input_norm_eps = eps;
  return spec;
}

TEST(PreparedInput, WithoutStepsKeepsTheBits) {
  RouterInputs inputs = row_of({1, -0.0f});
  inputs.hidden_states.push_back(0xffc1);  // a NaN with a payload
  inputs.hidden_size = 3;
  EXPECT_THAT(prepared_input(RouterSpec(), inputs, 0), ElementsAre(0x3f80, 0x8000, 0xffc1));
}

TEST(PreparedInput, NormVectorScaleInThisOrder) {
  // Mean square 16, eps 9: divided by 5.
  RouterSpec spec = norm_spec(9.0);
  RouterInputs inputs = row_of({4, -4});
  EXPECT_THAT(prepared(spec, inputs), ElementsAre(round_to_bf16(0.8f), round_to_bf16(-0.8f)));
  spec.gate.input_scale_vector = true;
  inputs.input_scale_vector = {10, 0.5f};
  spec.gate.input_scale = 3.0;
  const float r = 1.0f / 5.0f;
  EXPECT_THAT(prepared(spec, inputs),
              ElementsAre(round_to_bf16(((4 * r) * 10) * 3), round_to_bf16(((-4 * r) * 0.5f) * 3)));
}

TEST(PreparedInput, InverseRootOfTheHiddenSize) {
  RouterSpec spec;
  spec.gate.input_scale_kind = InputScale::kRsqrtHiddenSize;
  const RouterInputs inputs = row_of({384, 1, 1});
  const float scale = 1.0f / std::sqrt(3.0f);
  EXPECT_EQ(prepared(spec, inputs)[0], round_to_bf16(384 * scale));
  spec.gate.input_scale_kind = InputScale::kRsqrtHiddenSizeBf16;
  EXPECT_EQ(prepared(spec, inputs)[0], round_to_bf16(384 * round_to_bf16(scale)));
  EXPECT_NE(round_to_bf16(385 * scale), round_to_bf16(385 * round_to_bf16(scale))) << "the two differ";
}

TEST(PreparedInput, SpecialRows) {
  EXPECT_THAT(prepared(norm_spec(1e-6), row_of({0, -0.0f})), Each(0.0f)) << "the eps keeps 0 / 0 away";
  // 2^127 squared is Inf, so the norm is Inf and its inverse 0.
  EXPECT_THAT(prepared(norm_spec(1e-6), row_of({0x1p127f, 1})), Each(0.0f));
  EXPECT_THAT(prepared(norm_spec(1e-6), row_of({std::numeric_limits<float>::infinity(), 1})),
              ElementsAre(testing::IsNan(), 0.0f));
  EXPECT_THAT(prepared(norm_spec(1e-6), row_of({std::numeric_limits<float>::quiet_NaN(), 1})), Each(testing::IsNan()));
  EXPECT_THAT(prepared_input(norm_spec(1e-6), row_of({std::numeric_limits<float>::quiet_NaN()}), 0), Each(0x7fff));
}

TEST(PreparedInput, ReachesTheLogitsOfBothArithmetics) {
  RouterSpec spec = norm_spec(9.0);
  RouterInputs inputs = row_of({4, -4});
  inputs.gate_weight_bf16 = {0x3f80, 0};
  const std::int64_t rows[] = {0};
  EXPECT_EQ(tc256_logits(spec, inputs, rows)[0], round_to_bf16(0.8f));
  EXPECT_EQ(logits_fp64(spec, inputs, 0)[0], static_cast<double>(round_to_bf16(0.8f)));
  spec.logits.softcap = 2.0;
  EXPECT_NEAR(logits_fp64(spec, inputs, 0)[0], 2 * std::tanh(static_cast<double>(round_to_bf16(0.8f)) / 2), 0x1p-50);
}

}  // namespace
}  // namespace samebits::oracle
