#include "oracle/reference/weigh.h"

#include <gmock/gmock.h>

#include <bit>
#include <cfloat>

namespace samebits::oracle {
namespace {

using testing::Each;
using testing::ElementsAre;

constexpr float kInf = INFINITY;
const float kNaN = std::bit_cast<float>(0x7fffffffu);

RouterSpec::Weights l1(EpsMode mode = EpsMode::kNone, double eps = 0) {
  RouterSpec::Weights spec;
  spec.renormalize = Renormalize::kL1;
  spec.eps_mode = mode;
  spec.eps = eps;
  return spec;
}

std::vector<float> weights(const RouterSpec::Weights& spec, const std::vector<float>& values) {
  return weigh<float>(spec, values).weights;
}

TEST(Weigh, SumIsALeftFoldInSlotOrder) {
  const Weighed<float> w = weigh<float>(l1(), std::vector<float>{0x1p24f, 1.0f, 1.0f});
  EXPECT_EQ(w.sum, 0x1p24f);
  EXPECT_EQ(w.denominator, 0x1p24f);
  EXPECT_EQ(weigh<float>(l1(), std::vector<float>{1.0f, 1.0f, 0x1p24f}).sum, 0x1p24f + 2);
}

TEST(Weigh, EpsilonModes) {
  const std::vector<float> small = {3e-5f, 1e-5f};
  const float sum = 3e-5f + 1e-5f;
  EXPECT_EQ(weigh<float>(l1(EpsMode::kAdd, 1e-6), small).denominator, sum + 1e-6f);
  EXPECT_EQ(weigh<float>(l1(EpsMode::kClampMin, 6.1e-5), small).denominator, 6.1e-5f);
  EXPECT_EQ(weigh<float>(l1(EpsMode::kClampMin, 1e-12), small).denominator, sum);
  EXPECT_EQ(weights(l1(EpsMode::kClampMin, 6.1e-5), small)[0], 3e-5f / 6.1e-5f);
}

TEST(Weigh, ZeroDenominatorGivesZeroWeights) {
  EXPECT_THAT(weights(l1(), {0, 0}), Each(0.0f));
  EXPECT_THAT(weights(l1(), {1, -1}), Each(0.0f));
  EXPECT_THAT(weights(l1(EpsMode::kAdd, 1e-20), {0, 0}), Each(0.0f));
}

TEST(Weigh, ScaleStages) {
  RouterSpec::Weights spec = l1();
  spec.routed_scaling_factor = 2.826;
  const std::vector<float> values = {0.7f, 0.1f};
  const float sum = 0.7f + 0.1f, scale = 2.826f;
  EXPECT_EQ(weights(spec, values)[0], (0.7f / sum) * scale);
  spec.scale_stage = ScaleStage::kBeforeDivide;
  EXPECT_EQ(weights(spec, values)[0], (0.7f * scale) / sum);
  spec.scale_stage = ScaleStage::kOnExpertOutput;
  EXPECT_EQ(weights(spec, values)[0], 0.7f / sum);
  spec.renormalize = Renormalize::kNone;
  EXPECT_EQ(weights(spec, values)[0], 0.7f);
  spec.scale_stage = ScaleStage::kBeforeDivide;  // nothing is divided
  EXPECT_EQ(weights(spec, values)[0], 0.7f * scale);
}

TEST(Weigh, NanCountsAsZero) {
  EXPECT_THAT(weights(l1(), {3, kNaN, 1}), ElementsAre(0.75f, 0.0f, 0.25f));
  RouterSpec::Weights plain;
  EXPECT_THAT(weights(plain, {kNaN, 2}), ElementsAre(0.0f, 2.0f));
}

TEST(Weigh, PlusInfSharesTheWeight) {
  RouterSpec::Weights spec = l1(EpsMode::kAdd, 1e-20);
  spec.routed_scaling_factor = 2.5;
  EXPECT_THAT(weights(spec, {kInf, kInf, 7, kNaN}), ElementsAre(1.25f, 1.25f, 0.0f, 0.0f));
  spec.scale_stage = ScaleStage::kBeforeDivide;
  EXPECT_THAT(weights(spec, {kInf, 7}), ElementsAre(2.5f, 0.0f));
}

TEST(Weigh, PlusInfWithoutRenormalisationIsTheLargestFiniteValue) {
  RouterSpec::Weights spec;
  spec.routed_scaling_factor = 2.5;
  EXPECT_THAT(weights(spec, {kInf, 7, kNaN}), ElementsAre(FLT_MAX, 0.0f, 0.0f));
}

TEST(Weigh, OtherNonFiniteWeightsAreZero) {
  RouterSpec::Weights spec;
  spec.routed_scaling_factor = 2.5;
  EXPECT_THAT(weights(spec, {3e38f, 1}), ElementsAre(0.0f, 2.5f));
  EXPECT_THAT(weights(spec, {1, -kInf}), ElementsAre(2.5f, 0.0f));
  spec.routed_scaling_factor = 1;
  spec.dtype = FloatType::kBf16;
  EXPECT_THAT(weights(spec, {FLT_MAX}), ElementsAre(0.0f));  // rounds to Inf
}

TEST(Weigh, Bf16RoundsTheFinishedWeightOnce) {
  RouterSpec::Weights spec = l1();
  spec.dtype = FloatType::kBf16;
  spec.routed_scaling_factor = 2.5;
  EXPECT_THAT(weights(spec, {2, 1}), ElementsAre(round_to_bf16(2.0f / 3.0f * 2.5f), round_to_bf16(1.0f / 3.0f * 2.5f)));
}

}  // namespace
}  // namespace samebits::oracle
