// Values and weights of the chosen experts: identity, biased and sparsemixer scores, log-space sums, learned scales.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "kernels/common/bits.h"
#include "kernels/cpu/simd.h"
#include "kernels/test/test_router.h"

namespace samebits::cpu::test {
namespace {

using Ids = std::vector<std::int32_t>;
using Floats = std::vector<float>;

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNaN = std::numeric_limits<float>::quiet_NaN();
const float kMax = std::numeric_limits<float>::max();

Routed route_row(const samebits_router_spec& spec, const Floats& logits, const Constants& constants = {}) {
  return TestRouter(spec, constants).route_from_logits(logits);
}

samebits_router_spec spec_of(std::int32_t score_func, std::int32_t num_experts, std::int32_t top_k) {
  samebits_router_spec spec = plain_spec(0, num_experts, top_k);
  spec.score_func = score_func;
  return spec;
}

TEST(IdentityScore, IsTheLogit) {
  samebits_router_spec spec = spec_of(SAMEBITS_SCORE_IDENTITY, 4, 3);
  EXPECT_EQ(route_row(spec, {1.1f, -2, 3.3f, kNaN}).ids, (Ids{2, 0, 1}));
  EXPECT_EQ(route_row(spec, {1.1f, -2, 3.3f, kNaN}).weights, (Floats{3.3f, 1.1f, -2}));
  spec.score_dtype = SAMEBITS_BF16;
  EXPECT_EQ(route_row(spec, {1.1f, -2, 3.3f, kNaN}).weights, (Floats{round_to_bf16(3.3f), round_to_bf16(1.1f), -2}));
  spec.score_dtype = SAMEBITS_FP32, spec.renormalize = SAMEBITS_RENORM_L1;
  EXPECT_EQ(route_row(spec, {1, -2, 3, -9}).weights, (Floats{1.5f, 0.5f, -1}));
  EXPECT_TRUE(same_bits(route_row(spec, {1, -4, 3, -9}).weights, {0, 0, 0})) << "D = 0";
  EXPECT_TRUE(same_bits(route_row(spec, {kNaN, -kInf, kNaN, 1}).weights, {-0.0f, 0, -0.0f}))
      << "1 / -inf, and -inf / -inf is no weight; NaN counts as 0";
  spec.renormalize = SAMEBITS_RENORM_NONE;
  EXPECT_EQ(route_row(spec, {kInf, 5, 3, -9}).weights, (Floats{kMax, 0, 0}));
}

TEST(BiasedScore, IsTheKeyBeforeAMask) {
  samebits_router_spec spec = spec_of(SAMEBITS_SCORE_SIGMOID, 4, 2);
  spec.selection_bias_dtype = SAMEBITS_FP32;
  spec.num_bias_variants = 2;
  spec.weight_source = SAMEBITS_WEIGHT_BIASED_SCORE;
  Constants constants;
  constants.selection_bias = {0.5f, 1.5f, 0, 0, 0, 0, 2.5f, 3.5f};
  const TestRouter router(spec, constants);
  CallOptions options;
  options.row_class = {0, 1};
  const Routed routed = router.route_from_logits(Floats(8, 0.0f), options);
  EXPECT_EQ(routed.ids, (Ids{1, 0, 3, 2}));
  EXPECT_EQ(routed.weights, (Floats{2, 1, 4, 3}));

  // Group {0, 1} wins with the key -1; the masked key of 2 is 0, its value is still the sum.
  spec.num_bias_variants = 1;
  spec.n_group = 2, spec.topk_group = 1;
  spec.group_score = SAMEBITS_GROUP_SCORE_MAX, spec.group_mask = SAMEBITS_GROUP_MASK_ZERO;
  constants.selection_bias = {-1.5f, -2, -2.5f, -3};
  const Routed masked = route_row(spec, {0, 0, 0, 0}, constants);
  EXPECT_EQ(masked.ids, (Ids{2, 3}));
  EXPECT_EQ(masked.weights, (Floats{-2, -2.5f}));

  spec.rank_by = SAMEBITS_RANK_BY_LOGIT, spec.n_group = 1, spec.group_score = 0, spec.group_mask = 0;
  EXPECT_EQ(route_row(spec, {8, 0, 4, 0}, constants).weights, (Floats{6.5f, 1.5f})) << "the key starts from the logit";
}

// Each logit log(i): the softmax of those that take part is i / sum, up to a few units of the last place. Its terms are
// within 2 units (exp and the rounding of the argument, |x| < 2), their sum adds half a unit an addition, the quotient
// another half: together below 8 * 2^-24.
void expect_near(const Floats& found, const std::vector<double>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_NEAR(static_cast<double>(found[i]), expected[i], 8 * 0x1p-24 * expected[i]) << i;
  }
}

samebits_router_spec sparsemixer_spec(std::int32_t num_experts, float jitter_eps) {
  samebits_router_spec spec = plain_spec(0, num_experts, 2);
  spec.selection_method = SAMEBITS_SELECT_SPARSEMIXER;
  spec.rank_by = SAMEBITS_RANK_BY_LOGIT;
  spec.sparsemixer_jitter_eps = jitter_eps;
  return spec;
}

TEST(Sparsemixer, OneSoftmaxAPass) {
  // Pass 0: t = 4; 3.5 is at 0.125, 3 at 0.25, which is not above the limit. Pass 1: t = 3.5; 3 is at 1 / 7.
  const samebits_router_spec spec = sparsemixer_spec(4, 0.125f);
  const Routed routed = route_row(spec, {3, 4, 2, 3.5f});
  EXPECT_EQ(routed.ids, (Ids{1, 3}));
  const double half = std::exp(-0.5), one = std::exp(-1.0);
  expect_near(routed.weights, {1 / (1 + half + one), 1 / (1 + half)});
  // One bit less, and 3 takes no part in pass 0 but in pass 1: each pass has a mask of its own.
  expect_near(route_row(sparsemixer_spec(4, std::nextafterf(0.125f, 0)), {3, 4, 2, 3.5f}).weights,
              {1 / (1 + half), 1 / (1 + half)});
}

TEST(Sparsemixer, WeightsMaySumToTwo) {
  EXPECT_EQ(route_row(sparsemixer_spec(3, 0.01f), {8, 2, 4}).weights, (Floats{1, 1}));
}

// -1 is at 1.5 / max(1, 0.5) from 0.5: within the limit of 2, where 1.5 / 0.5 would not be.
TEST(Sparsemixer, DistancesAreRelativeToTheLargerMagnitude) {
  const double far = std::exp(-1.5);
  expect_near(route_row(sparsemixer_spec(3, 1.0f), {0.5f, -1, 0.5f}).weights, {1 / (2 + far), 1 / (1 + far)});
}

TEST(Sparsemixer, NonFiniteLogits) {
  const samebits_router_spec spec = sparsemixer_spec(4, 0.01f);
  EXPECT_EQ(route_row(spec, {kInf, kInf, 0, 1}).ids, (Ids{0, 1}));
  EXPECT_EQ(route_row(spec, {kInf, kInf, 0, 1}).weights, (Floats{0.5f, 1}));
  EXPECT_EQ(route_row(spec, {kNaN, kNaN, kNaN, kNaN}).weights, (Floats{0, 0}));
  EXPECT_EQ(route_row(spec, {kNaN, 5, kNaN, kNaN}).ids, (Ids{1, 0}));
  EXPECT_EQ(route_row(spec, {kNaN, 5, kNaN, kNaN}).weights, (Floats{1, 0}));
  EXPECT_EQ(route_row(spec, {-kInf, -kInf, -kInf, -kInf}).weights, (Floats{0, 0}));
  EXPECT_EQ(route_row(spec, {0, 0, -1, -1}).weights, (Floats{0.5f, 1})) << "0 / 0 takes part, 1 / 1 does not";
}

TEST(Sparsemixer, RoundsTheScoreToBf16) {
  samebits_router_spec spec = sparsemixer_spec(3, 0.5f);
  const Floats logits = {1, 0.75f, 0.5f}, weights = route_row(spec, logits).weights;
  spec.score_dtype = SAMEBITS_BF16;
  EXPECT_EQ(route_row(spec, logits).weights, (Floats{round_to_bf16(weights[0]), round_to_bf16(weights[1])}));
}

samebits_router_spec log_space_spec(std::int32_t num_experts, std::int32_t top_k) {
  samebits_router_spec spec = spec_of(SAMEBITS_SCORE_SIGMOID, num_experts, top_k);
  spec.rank_by = SAMEBITS_RANK_BY_LOGIT;
  spec.renormalize = SAMEBITS_RENORM_LOG_SPACE_L1;
  spec.routed_scaling_factor = 2.5f;
  return spec;
}

// The weight of two equal terms, D = 2: exp of -log 2 as rounded.
float log_space_half() {
  return apply_elementwise(Elementwise::kExp, -apply_elementwise(Elementwise::kLog, 2.0f));
}

TEST(LogSpace, EqualsTheQuotientOfSigmoids) {
  const Floats logits = {1.5f, -0.75f, 0.25f, -3};
  double sum = 0;
  std::vector<double> expected;
  for (const int id : {0, 2, 1}) {
    expected.push_back(1 / (1 + std::exp(-static_cast<double>(logits[static_cast<std::size_t>(id)]))));
    sum += expected.back();
  }
  const Floats found = route_row(log_space_spec(4, 3), logits).weights;
  // l, l - M and l - M - log D are below 4, each rounded to 2^-23 at most; log1p in l and M, and log D, are below 2 and
  // off by 2^-23 each. exp turns all that into a relative error, and it and the scale add 2^-23 and 2^-24.
  for (std::size_t c = 0; c < 3; ++c) {
    const double weight = 2.5 * expected[c] / sum;
    EXPECT_NEAR(static_cast<double>(found[c]), weight, 8 * 0x1p-23 * weight) << c;
  }
}

TEST(LogSpace, ByHand) {
  samebits_router_spec spec = log_space_spec(3, 2);
  spec.routed_scaling_factor = 1;
  const float half = log_space_half();
  EXPECT_EQ(route_row(spec, {-200, -200, -300}).weights, (Floats{half, half})) << "sigmoids of 0 in fp32";
  EXPECT_EQ(route_row(spec, {kInf, -kInf, -kInf}).weights, (Floats{1, 0}));
  EXPECT_EQ(route_row(spec, {kNaN, 3, kNaN}).weights, (Floats{1, 0}));
  EXPECT_EQ(route_row(spec, {-kInf, -kInf, -kInf}).weights, (Floats{0, 0}));
  EXPECT_EQ(route_row(spec, {kNaN, kNaN, kNaN}).weights, (Floats{0, 0}));
  spec.routed_scaling_factor = 4;
  EXPECT_EQ(route_row(spec, {kInf, -kInf, -kInf}).weights, (Floats{4, 0}));
  spec.scale_stage = SAMEBITS_SCALE_BEFORE_DIVIDE;
  EXPECT_EQ(route_row(spec, {kInf, -kInf, -kInf}).weights, (Floats{4, 0}));
  spec.scale_stage = SAMEBITS_SCALE_ON_EXPERT_OUTPUT;
  EXPECT_EQ(route_row(spec, {kInf, -kInf, -kInf}).weights, (Floats{1, 0}));
}

TEST(LogSpace, SharedExpertsTakePartInTheSum) {
  samebits_router_spec spec = log_space_spec(3, 1);
  spec.shared_experts = 1, spec.shared_mode = SAMEBITS_SHARED_IN_GATE;
  const Routed routed = route_row(spec, {-500, 2, -500, 2});
  EXPECT_EQ(routed.ids, (Ids{1, 3}));
  EXPECT_EQ(routed.weights, (Floats{log_space_half() * 2.5f, log_space_half() * 2.5f}));
}

TEST(LearnedScales, AreTakenById) {
  samebits_router_spec spec = spec_of(SAMEBITS_SCORE_IDENTITY, 6, 6);
  spec.routed_scaling_factor = 2;
  spec.per_expert_scale = 1;
  spec.global_scale = 1;
  Constants constants;
  constants.per_expert_scale = {0.1f, -3, kNaN, kInf, -kInf, 0x1p-140f};
  constants.global_scale = {0.9f};
  const Routed routed = route_row(spec, {1.5f, 5, 3, 2, 4, 6}, constants);
  EXPECT_EQ(routed.ids, (Ids{5, 1, 4, 2, 3, 0}));
  EXPECT_TRUE(same_bits(routed.weights, {12 * 0x1p-140f * 0.9f, 10 * -3.0f * 0.9f, 0, 0, 0, 3 * 0.1f * 0.9f}));
  EXPECT_NE(3 * 0.1f * 0.9f, 3 * (0.1f * 0.9f)) << "the data do not tell the orders apart";
}

TEST(LearnedScales, TouchNoRowWithoutASum) {
  samebits_router_spec spec = spec_of(SAMEBITS_SCORE_IDENTITY, 3, 3);
  spec.per_expert_scale = 1;
  Constants constants;
  constants.per_expert_scale = {-1, -1, -1};
  EXPECT_TRUE(same_bits(route_row(spec, {kInf, 2, 1}, constants).weights, {kMax, 0, 0})) << "stands for +inf";
  EXPECT_EQ(route_row(spec, {3, 2, 1}, constants).weights, (Floats{-3, -2, -1}));
  spec.renormalize = SAMEBITS_RENORM_L1;
  EXPECT_TRUE(same_bits(route_row(spec, {0, -1, 1}, constants).weights, {0, 0, 0})) << "D = 0";
  EXPECT_TRUE(same_bits(route_row(spec, {1, kNaN, 3}, constants).weights, {-0.75f, -0.25f, -0.0f}));
  spec = log_space_spec(3, 3);
  spec.per_expert_scale = 1;
  EXPECT_TRUE(same_bits(route_row(spec, {-kInf, kNaN, -kInf}, constants).weights, {0, 0, 0}));
}

TEST(LearnedScales, ComeBeforeTheRoundingToBf16) {
  samebits_router_spec spec = spec_of(SAMEBITS_SCORE_IDENTITY, 2, 1);
  spec.per_expert_scale = 1, spec.weights_dtype = SAMEBITS_BF16;
  Constants constants;
  constants.per_expert_scale = {1.37f, 1};
  EXPECT_EQ(route_row(spec, {1.3f, 0}, constants).weights, (Floats{round_to_bf16(1.3f * 1.37f)}));
  EXPECT_NE(round_to_bf16(1.3f * 1.37f), round_to_bf16(round_to_bf16(1.3f) * 1.37f));
}

}  // namespace
}  // namespace samebits::cpu::test
