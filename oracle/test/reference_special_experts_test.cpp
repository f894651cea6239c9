// Zero experts, shared experts in the gate, log-space renormalisation and learned scales.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "oracle/emulate/tc256.h"
#include "oracle/test/reference_rows.h"

namespace samebits::oracle {
namespace {

using test::spec_of;
using testing::Each;
using testing::ElementsAre;

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::bit_cast<float>(0x7fffffffu);

RouterSpec with_zero_experts(ZeroType type) {
  RouterSpec spec = spec_of(2, 2, ScoreFunc::kSoftmax);
  spec.special.zero_experts = 2;
  spec.special.zero_type = type;
  return spec;
}

TEST(ZeroExperts, CompeteAndTakePartInTheSoftmax) {
  const auto answer = test::route(with_zero_experts(ZeroType::kIdentity), {0, 1, 1, 0});
  EXPECT_THAT(answer.ids, ElementsAre(1, 2));
  const float e = tc256::exp(-1.0f);
  EXPECT_THAT(answer.weights, Each(1.0f / ((e + 1.0f) + (1.0f + e))));
}

TEST(ZeroExperts, RemappedOnesAreIdZeroWithWeightZeroAfterEverythingElse) {
  RouterSpec spec = with_zero_experts(ZeroType::kIdentityRemappedToId0Weight0);
  spec.shape.top_k = 3;
  spec.weights.renormalize = Renormalize::kL1;
  const auto answer = test::route(spec, {5, 4, 9, 9});
  EXPECT_THAT(answer.expert_ids, ElementsAre(2, 3, 0));
  EXPECT_THAT(answer.ids, ElementsAre(0, 0, 0));
  EXPECT_EQ(answer.weights[0], 0.0f);
  EXPECT_EQ(answer.weights[1], 0.0f);
  EXPECT_EQ(answer.weights[2], answer.values[2] / answer.sum) << "zero experts take part in the sum";
  spec.selection.sort = SlotOrder::kByIndex;
  EXPECT_THAT(test::route(spec, {5, 4, 9, 9}).expert_ids, ElementsAre(0, 2, 3)) << "sorted before the renaming";
}

RouterSpec with_shared_experts(Renormalize renormalize) {
  RouterSpec spec = spec_of(3, 1, ScoreFunc::kSigmoid);
  spec.special.shared_experts = 2;
  spec.special.shared_mode = SharedMode::kInGate;
  spec.weights.renormalize = renormalize;
  return spec;
}

TEST(SharedInGate, NeverCompeteAndFillTheLastColumns) {
  const auto answer = test::route(with_shared_experts(Renormalize::kL1), {0, 1, 0, 50, 60});
  EXPECT_THAT(answer.ids, ElementsAre(1, 3, 4));
  const float s = tc256::sigmoid(1.0f), sum = (s + 1.0f) + 1.0f;
  EXPECT_THAT(answer.weights, ElementsAre(s / sum, 1.0f / sum, 1.0f / sum));
  EXPECT_EQ(answer.keys.size(), 3u);
  EXPECT_EQ(answer.first_rejected, 0);
}

TEST(SharedInGate, OutsideTheGateTheyAreNotTheRoutersBusiness) {
  RouterSpec spec = with_shared_experts(Renormalize::kL1);
  spec.special.shared_mode = SharedMode::kOutsideRouter;
  EXPECT_THAT(test::route(spec, {0, 1, 0}).ids, ElementsAre(1));
}

TEST(LogSpace, EqualLogitsShareEqually) {
  RouterSpec spec = with_shared_experts(Renormalize::kLogSpaceL1);
  spec.weights.routed_scaling_factor = 8.0;
  const auto answer = test::route(spec, {-2, -2, -2, -2, -2});
  const float share = tc256::exp(0.0f - tc256::log(3.0f));
  EXPECT_THAT(answer.weights, Each(share * 8.0f));
  EXPECT_EQ(answer.sum, 3.0f);
}

TEST(LogSpace, SurvivesLogitsWhoseSigmoidsUnderflow) {
  const auto answer = test::route(with_shared_experts(Renormalize::kLogSpaceL1), {-200, -300, -300, -200, -200});
  EXPECT_THAT(answer.ids, ElementsAre(0, 3, 4)) << "the scores, all 0, still tie";
  EXPECT_THAT(answer.weights, Each(tc256::exp(0.0f - tc256::log(3.0f))));
}

TEST(LogSpace, IsNearTheQuotientOfSigmoids) {
  const std::vector<float> logits = {0.5f, 1.25f, -3.0f, -1.0f, 2.0f};
  const auto answer = test::route(with_shared_experts(Renormalize::kLogSpaceL1), logits);
  const auto exact = test::route_fp64(with_shared_experts(Renormalize::kL1), {0.5, 1.25, -3.0, -1.0, 2.0});
  for (std::size_t i = 0; i < 3; ++i) {
    // Arguments of exp are below 4 in magnitude and off by less than 4 ulp of 4, so a weight by 2^-19 relative; the
    // other errors are a few 2^-24.
    EXPECT_NEAR(static_cast<double>(answer.weights[i]), exact.weights[i], exact.weights[i] * 0x1p-18);
  }
}

TEST(LogSpace, InfinitiesAndNan) {
  const RouterSpec spec = with_shared_experts(Renormalize::kLogSpaceL1);
  EXPECT_THAT(test::route(spec, {-kInf, -kInf, -kInf, -kInf, -kInf}).weights, Each(0.0f));
  EXPECT_THAT(test::route(spec, {kNan, kNan, kNan, kNan, kNan}).weights, Each(0.0f));
  const auto mixed = test::route(spec, {-kInf, kInf, -kInf, kNan, kInf});
  EXPECT_THAT(mixed.ids, ElementsAre(1, 3, 4));
  const float half = tc256::exp(0.0f - tc256::log(2.0f));
  EXPECT_THAT(mixed.weights, ElementsAre(half, 0.0f, half));
}

TEST(LearnedScales, GoByIdAndComeAfterTheRoutedScale) {
  RouterSpec spec = spec_of(3, 2, ScoreFunc::kIdentity);
  spec.weights.per_expert_scale = spec.weights.global_scale = true;
  spec.weights.routed_scaling_factor = 3.0;
  const std::vector<float> logits = {1, 5, 4}, scale = {100, 0.1f, -2};
  const auto answer = route_row(spec, std::span(logits), {.per_expert_scale = scale, .global_scale = 0.7f});
  EXPECT_THAT(answer.ids, ElementsAre(1, 2));
  EXPECT_THAT(answer.weights, ElementsAre((15.0f * 0.1f) * 0.7f, (12.0f * -2.0f) * 0.7f));
}

TEST(LearnedScales, DoNotReachWeightsThatARuleHasSet) {
  RouterSpec spec = spec_of(2, 2, ScoreFunc::kIdentity);
  spec.weights.per_expert_scale = true;
  const std::vector<float> scale = {-1, -1};
  const std::vector<float> infinite = {kInf, 1}, zero = {1, -1};
  const auto without = route_row(spec, std::span(infinite), {.per_expert_scale = scale});
  EXPECT_THAT(without.weights, ElementsAre(std::numeric_limits<float>::max(), 0.0f));
  EXPECT_FALSE(std::signbit(without.weights[1]));
  spec.weights.renormalize = Renormalize::kL1;
  const auto no_sum = route_row(spec, std::span(zero), {.per_expert_scale = scale});
  for (const float w : no_sum.weights) EXPECT_EQ(std::bit_cast<std::uint32_t>(w), 0u);
}

TEST(LearnedScales, ThatAreNotFiniteGiveWeightZero) {
  RouterSpec spec = spec_of(3, 3, ScoreFunc::kIdentity);
  spec.weights.per_expert_scale = true;
  const std::vector<float> logits = {3, 2, 1}, scale = {kNan, kInf, 2};
  EXPECT_THAT(route_row(spec, std::span(logits), {.per_expert_scale = scale}).weights, ElementsAre(0.0f, 0.0f, 2.0f));
}

}  // namespace
}  // namespace samebits::oracle
