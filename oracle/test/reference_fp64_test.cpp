// The two arithmetics of the reference against each other, and the small functions beside them.

#include <gmock/gmock.h>

#include <bit>
#include <cfloat>
#include <random>

#include "oracle/test/reference_rows.h"

namespace samebits::oracle {
namespace {

using test::route;
using test::route_fp64;
using test::spec_of;
using test::with_groups;

constexpr double kUnit = 0x1p-24;

// Relative error of an fp32 score of the contract. Sigmoid and sqrt(softplus): below one ulp, 2 units. Softmax: the
// difference x - max is rounded (relative error |x - max| units of the exponential), the exponential is within 0.66
// ulp, the sum has at most E/32 + 5 roundings of positive terms that carry the same errors, the division rounds once.
double score_error(const RouterSpec& spec, const std::vector<float>& logits) {
  if (spec.score.func != ScoreFunc::kSoftmax) return 2 * kUnit;
  const auto [least, greatest] = std::minmax_element(logits.begin(), logits.end());
  const double spread = static_cast<double>(*greatest) - static_cast<double>(*least);
  return (2 * (spread + 2) + static_cast<double>(logits.size()) / 32 + 5 + 1) * kUnit;
}

// The sum of K scores, the division and the scale on top; positive terms, so errors do not grow by cancellation.
double weight_error(const RouterSpec& spec, double of_score) {
  return 2 * of_score + static_cast<double>(top_k(spec) + 3) * kUnit;
}

struct NamedSpec {
  const char* name;
  RouterSpec spec;
  bool has_bias;
};

std::vector<NamedSpec> specs() {
  std::vector<NamedSpec> list = {
      {"sigmoid, bias, scale", spec_of(288, 8, ScoreFunc::kSigmoid, true), true},
      {"sigmoid, groups",
       with_groups(spec_of(256, 8, ScoreFunc::kSigmoid, true), 8, 4, GroupScore::kTop2Sum, GroupMask::kNegInf), true},
      {"softmax, groups, zero mask",
       with_groups(spec_of(160, 6, ScoreFunc::kSoftmax), 8, 3, GroupScore::kMax, GroupMask::kZero), false},
      {"softmax", spec_of(128, 8, ScoreFunc::kSoftmax, true), false},
      {"sqrt softplus", spec_of(256, 6, ScoreFunc::kSqrtSoftplus, true), true},
      {"softmax after top-k", spec_of(64, 4, ScoreFunc::kSoftmax), false},
      {"sigmoid after top-k", spec_of(16, 1, ScoreFunc::kSigmoid), false},
  };
  list[0].spec.weights.routed_scaling_factor = 2.5;
  for (const std::size_t i : {5u, 6u}) {
    list[i].spec.score.stage = ScoreStage::kAfterTopk;
    list[i].spec.selection.rank_by = RankBy::kLogit;
  }
  return list;
}

TEST(Fp64Witness, AgreesWithTheContractWhereverTheCutIsClear) {
  std::mt19937 random(12);
  std::normal_distribution<float> normal;
  for (const NamedSpec& named : specs()) {
    const RouterSpec& spec = named.spec;
    const std::size_t experts = static_cast<std::size_t>(num_experts(spec));
    int clear = 0;
    for (int i = 0; i < 100; ++i) {
      std::vector<float> logits, bias;
      for (std::size_t e = 0; e < experts; ++e) {
        logits.push_back(normal(random) * 2);
        if (named.has_bias) bias.push_back(0.5f + 0.1f * normal(random));
      }
      const RowAnswer<float> fp32 = route(spec, logits, bias);
      const RowAnswer<double> fp64 = route_fp64(spec, {logits.begin(), logits.end()}, bias);
      const double of_score = score_error(spec, logits);
      // A key is a score plus a rounding of the sum; a group score one more.
      double key_error = 0;
      for (std::size_t e = 0; e < experts; ++e) {
        key_error = std::max(key_error, std::fabs(fp64.keys[e]) * (of_score + 2 * kUnit) + of_score);
      }
      bool certain = true;
      std::vector<double> ranked(fp64.keys);
      for (std::size_t e = 0; e < experts; ++e) {
        if (fp64.excluded[e] != 0) ranked[e] = -DBL_MAX;
      }
      std::sort(ranked.begin(), ranked.end(), std::greater<>());
      for (std::size_t r = 0; r < fp64.ids.size() && r + 1 < experts; ++r) {
        certain = certain && ranked[r] - ranked[r + 1] > 2 * key_error;
      }
      std::vector<double> groups = fp64.group_scores;
      std::sort(groups.begin(), groups.end(), std::greater<>());
      const std::size_t kept = static_cast<std::size_t>(spec.selection.topk_group);
      if (!groups.empty()) certain = certain && groups[kept - 1] - groups[kept] > 4 * key_error;
      if (!certain) continue;
      ++clear;
      ASSERT_EQ(fp32.ids, fp64.ids) << named.name;
      for (std::size_t slot = 0; slot < fp64.ids.size(); ++slot) {
        ASSERT_NEAR(static_cast<double>(fp32.weights[slot]), fp64.weights[slot],
                    fp64.weights[slot] * weight_error(spec, of_score))
            << named.name;
      }
    }
    EXPECT_GT(clear, 50) << named.name;
  }
}

TEST(Fp64Witness, HasTheSameRulesForNonFiniteRows) {
  const double inf = INFINITY, nan = NAN;
  const std::vector<std::vector<double>> rows = {
      {inf, 1, nan, inf, -inf}, {nan, nan, nan, nan, nan}, {-inf, -inf, -inf, -inf, -inf}, {-inf, nan, 3, -inf, 2}};
  for (const ScoreFunc func : {ScoreFunc::kSoftmax, ScoreFunc::kSigmoid, ScoreFunc::kSqrtSoftplus}) {
    for (const bool renormalize : {false, true}) {
      for (const std::vector<double>& logits : rows) {
        const RouterSpec spec = spec_of(5, 4, func, renormalize);
        const RowAnswer<double> fp64 = route_fp64(spec, logits);
        const RowAnswer<float> fp32 = route(spec, {logits.begin(), logits.end()});
        EXPECT_EQ(fp64.ids, fp32.ids);
        for (std::size_t i = 0; i < 4; ++i) {
          EXPECT_NEAR(fp64.weights[i], static_cast<double>(fp32.weights[i]), std::fabs(fp64.weights[i]) * 20 * kUnit);
        }
      }
    }
  }
}

TEST(LogitsFp64, DotProductBiasRoundingTemperature) {
  RouterInputs inputs;
  inputs.num_tokens = 2;
  inputs.hidden_size = 2;
  inputs.gate_rows = 2;
  inputs.hidden_states = {0, 0, 0x3f80, 0x3b00};               // 1, 2^-9
  inputs.gate_weight_bf16 = {0x3f80, 0x3f80, 0x3f80, 0x0000};  // {1, 1}, {1, 0}
  RouterSpec spec;
  EXPECT_THAT(logits_fp64(spec, inputs, 1), testing::ElementsAre(1 + 0x1p-9, 1.0));
  spec.gate.linear_bias = BiasType::kBf16;
  inputs.linear_bias = {1.001953125f, -1.0f};
  EXPECT_THAT(logits_fp64(spec, inputs, 1), testing::ElementsAre(2 + 0x1p-9, 0.0));
  spec.gate.logits_dtype = FloatType::kBf16;
  spec.logits.temperature = 4.0;
  EXPECT_THAT(logits_fp64(spec, inputs, 1), testing::ElementsAre(0.5, 0.0));
  inputs.gate_weight_bf16.clear();
  inputs.gate_weight_fp32 = {3.0f, 0.1f, 0.0f, 0.0f};
  EXPECT_THAT(logits_fp64(RouterSpec{}, inputs, 1), testing::ElementsAre(3 + 0x1p-9 * static_cast<double>(0.1f), 0.0));
}

TEST(UlpDistance, RunsAlongTheNumberLine) {
  EXPECT_EQ(ulp_distance(1.0f, 1.0f), 0);
  EXPECT_EQ(ulp_distance(0.0f, -0.0f), 0);
  EXPECT_EQ(ulp_distance(1.0f, std::nextafterf(1.0f, 2.0f)), 1);
  EXPECT_EQ(ulp_distance(std::bit_cast<float>(1u), std::bit_cast<float>(0x80000001u)), 2);
  EXPECT_EQ(ulp_distance(FLT_MAX, -FLT_MAX), 2 * std::int64_t{0x7f7fffff});
}

}  // namespace
}  // namespace samebits::oracle
