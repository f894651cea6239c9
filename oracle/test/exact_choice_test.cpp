#include "oracle/exact/exact_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "oracle/exact/exact_logits.h"
#include "oracle/reference/answer.h"
#include "oracle/tensors/bf16.h"

namespace samebits::oracle {
namespace {

using Rows = std::vector<std::vector<double>>;

RouterSpec spec_of(std::int64_t experts, std::int64_t k, ScoreFunc func = ScoreFunc::kSoftmax) {
  RouterSpec spec;
  spec.shape.num_experts = experts;
  spec.shape.top_k = k;
  spec.score.func = func;
  return spec;
}

// One row `x` and bf16 weights, all of them bf16 values.
RouterInputs inputs_of(const std::vector<double>& x, const Rows& weight) {
  RouterInputs inputs;
  inputs.num_tokens = 1;
  inputs.hidden_size = static_cast<std::int64_t>(x.size());
  inputs.gate_rows = static_cast<std::int64_t>(weight.size());
  for (const double value : x) inputs.hidden_states.push_back(fp32_to_bf16(static_cast<float>(value)));
  for (const auto& row : weight) {
    for (const double value : row) inputs.gate_weight_bf16.push_back(fp32_to_bf16(static_cast<float>(value)));
  }
  return inputs;
}

RouterInputs given(const std::vector<float>& logits) {
  RouterInputs inputs;
  inputs.num_tokens = 1;
  inputs.gate_rows = static_cast<std::int64_t>(logits.size());
  inputs.router_logits = logits;
  return inputs;
}

using Ids = std::vector<std::int32_t>;

TEST(ExactLogits, HoldTheExactLogitAndShrinkToIt) {
  std::mt19937 random(1);
  for (int trial = 0; trial < 50; ++trial) {
    std::vector<double> x(300), w(300);
    __int128 reference = 0;  // in units of 2^-40
    for (std::size_t k = 0; k < x.size(); ++k) {
      x[k] = static_cast<double>(static_cast<int>(random() % 255) - 127);
      const int exponent = static_cast<int>(random() % 60) - 40;
      const int integer = static_cast<int>(random() % 255) - 127;
      w[k] = std::ldexp(integer, exponent);
      reference += (static_cast<__int128>(static_cast<int>(x[k]) * integer) << (exponent + 40));
    }
    const RouterSpec spec = spec_of(1, 1);
    const RouterInputs inputs = inputs_of(x, {w});
    ExactLogits logits(spec, inputs, 0);
    const long double truth = std::ldexp(static_cast<long double>(reference), -40);  // 64 bits
    ASSERT_LE(logits.intervals()[0].lower, truth);
    ASSERT_GE(logits.intervals()[0].upper, truth);
    const double before = logits.radius(0);
    logits.refine(0);
    EXPECT_EQ(logits.value(0), static_cast<double>(truth));
    EXPECT_LT(logits.radius(0), before);
    EXPECT_LE(logits.radius(0), std::fabs(logits.value(0)) * 0x1p-52);
  }
}

TEST(ExactLogits, RoundOnceToBf16ThenDivideAndCap) {
  RouterSpec spec = spec_of(1, 1);
  spec.gate.logits_dtype = FloatType::kBf16;
  // 1 + 2^-8 + 2^-100: half-way for double, not for the sum.
  const RouterInputs inputs = inputs_of({1.0, 0x1p-8, 0x1p-100}, {{1.0, 1.0, 1.0}});
  ExactLogits logits(spec, inputs, 0);
  EXPECT_LT(logits.intervals()[0].lower, logits.intervals()[0].upper);
  logits.refine(0);
  EXPECT_TRUE(logits.intervals()[0].is_point());
  EXPECT_EQ(logits.value(0), 1.0 + 0x1p-7);
  spec.logits.temperature = 2.0;
  spec.logits.softcap = 30.0;
  ExactLogits capped(spec, inputs, 0);
  capped.refine(0);
  EXPECT_NEAR(capped.value(0), 30.0 * std::tanh((1.0 + 0x1p-7) / 60.0), 1e-15);
}

TEST(ExactChoice, IsThatOfTheFormulasOnClearRows) {
  std::mt19937 random(2);
  std::normal_distribution<double> normal;
  std::vector<double> x(64);
  Rows weight(32, std::vector<double>(64));
  for (int trial = 0; trial < 40; ++trial) {
    for (double& value : x) value = normal(random);
    for (auto& row : weight) {
      for (double& value : row) value = normal(random) / 8;
    }
    RouterSpec spec = spec_of(32, 4, trial % 2 == 0 ? ScoreFunc::kSoftmax : ScoreFunc::kSigmoid);
    if (trial % 4 == 1) {
      spec.selection.n_group = 4;
      spec.selection.topk_group = 2;
      spec.selection.group_score = GroupScore::kTop2Sum;
      spec.selection.group_mask = trial % 8 == 1 ? GroupMask::kNegInf : GroupMask::kZero;
    }
    if (trial % 4 == 3) {
      spec.selection.n_group = spec.selection.topk_group = 2;
      spec.selection.topk_scope = TopkScope::kPerGroup;
    }
    const RouterInputs inputs = inputs_of(x, weight);
    const ExactChoice choice = exact_choice(spec, inputs, 0);
    const std::vector<double> logits = logits_fp64(spec, inputs, 0);
    const auto reference = route_row(spec, std::span<const double>(logits), {});
    ASSERT_EQ(choice.decided_by, DecidedBy::kErrorBound) << trial;
    EXPECT_EQ(choice.ids, reference.ids) << trial;
    EXPECT_GT(choice.gap, choice.bound);
  }
}

// Pairs of +-2^24 around terms of 2^-40: double loses them, in this order and in any other that meets the pairs first.
TEST(ExactChoice, DecidesRightlyWhereDoubleIsWrong) {
  std::vector<double> x(64, 1.0);
  Rows weight(3, std::vector<double>(64, 0.0));
  weight[0][0] = 0x1p24;
  weight[0][8] = 0x1p-40;  // the same lane of any sum in eight lanes
  weight[0][16] = -0x1p24;
  weight[1][0] = 0x1p-41;
  weight[2][0] = -1.0;
  const RouterInputs inputs = inputs_of(x, weight);
  const RouterSpec spec = spec_of(3, 1);
  EXPECT_LT(logits_fp64(spec, inputs, 0)[0], logits_fp64(spec, inputs, 0)[1]) << "double is right: nothing to show";
  const ExactChoice choice = exact_choice(spec, inputs, 0);
  EXPECT_EQ(choice.ids, Ids{0});
  EXPECT_EQ(choice.decided_by, DecidedBy::kExactLogits);

  weight[1][0] = 0x1p-39;
  const ExactChoice other = exact_choice(spec, inputs_of(x, weight), 0);
  EXPECT_EQ(other.ids, Ids{1});
  EXPECT_EQ(other.decided_by, DecidedBy::kExactLogits);
}

TEST(ExactChoice, SeesTiesOfExactSums) {
  // The same sum in two ways; a third by another order of the first.
  std::vector<double> x(24, 1.0);
  Rows weight(4, std::vector<double>(24, 0.0));
  weight[1][0] = 0x1p24, weight[1][8] = 0x1p-40, weight[1][16] = -0x1p24;
  weight[2][3] = 0x1p-40;
  weight[3][0] = 0x1p-40, weight[3][1] = 0x1p60, weight[3][2] = -0x1p60;
  const RouterInputs inputs = inputs_of(x, weight);
  for (const ScoreFunc func :
       {ScoreFunc::kSoftmax, ScoreFunc::kSigmoid, ScoreFunc::kSqrtSoftplus, ScoreFunc::kIdentity}) {
    const ExactChoice choice = exact_choice(spec_of(4, 2, func), inputs, 0);
    EXPECT_EQ(choice.ids, (Ids{1, 2}));
    EXPECT_EQ(choice.decided_by, DecidedBy::kTie);
    const ExactChoice all_three = exact_choice(spec_of(4, 3, func), inputs, 0);
    EXPECT_EQ(all_three.ids, (Ids{1, 2, 3}));
    EXPECT_EQ(all_three.decided_by, DecidedBy::kExactLogits);
  }
}

TEST(ExactChoice, SaysWhereTheScoreFunctionsDecideNothing) {
  // sigmoid(0) = 1/2 and bias 1/2 against sigmoid(x) + bias by another way, 2^-56 apart: below what double knows.
  RouterSpec spec = spec_of(2, 1, ScoreFunc::kSigmoid);
  spec.selection.bias = BiasType::kFp32;
  RouterInputs inputs = given({0.0f, 0x1p-54f});
  inputs.selection_bias = {0.5f, 0.5f};
  const ExactChoice equal_biases = exact_choice(spec, inputs, 0);
  EXPECT_EQ(equal_biases.decided_by, DecidedBy::kExactLogits) << "under equal biases the logits decide";
  EXPECT_EQ(equal_biases.ids, Ids{1});
  inputs.selection_bias = {0x1p-60f, 0.0f};
  EXPECT_EQ(exact_choice(spec, inputs, 0).decided_by, DecidedBy::kNothing);
  EXPECT_FALSE(exact_choice(spec, inputs, 0).decided());
}

TEST(ExactChoice, RoundedScoresTieAndBiasesDecide) {
  RouterSpec spec = spec_of(3, 1, ScoreFunc::kSigmoid);
  spec.score.dtype = FloatType::kBf16;
  EXPECT_EQ(exact_choice(spec, given({0.5f, 0.501f, -1.0f}), 0).ids, Ids{0});
  EXPECT_EQ(exact_choice(spec, given({0.5f, 0.501f, -1.0f}), 0).decided_by, DecidedBy::kTie);
  spec.selection.bias = BiasType::kBf16;
  RouterInputs inputs = given({0.0f, 0.0f, 0.0f});
  inputs.selection_bias = {1.0f, 1.0f + 0x1p-9f, 1.0f + 0x1p-6f};
  EXPECT_EQ(exact_choice(spec, inputs, 0).ids, Ids{2});
  inputs.selection_bias = {1.0f, 1.0f + 0x1p-9f, 0.5f};
  EXPECT_EQ(exact_choice(spec, inputs, 0).ids, Ids{0});
  EXPECT_EQ(exact_choice(spec, inputs, 0).decided_by, DecidedBy::kTie);
}

TEST(ExactChoice, GroupsThatTieGoToTheLower) {
  RouterSpec spec = spec_of(8, 2, ScoreFunc::kSigmoid);
  spec.selection.n_group = 4;
  spec.selection.topk_group = 1;
  spec.selection.group_score = GroupScore::kTop2Sum;
  spec.selection.group_mask = GroupMask::kNegInf;
  const ExactChoice tie = exact_choice(spec, given({0.0f, 0.1f, 0.3f, 0.2f, 0.2f, 0.3f, -1.0f, 0.4f}), 0);
  EXPECT_EQ(tie.ids, (Ids{2, 3}));
  EXPECT_EQ(tie.decided_by, DecidedBy::kTie);
  const ExactChoice clear = exact_choice(spec, given({0.0f, 0.1f, 0.3f, 0.2f, 0.2f, 0.31f, -1.0f, 0.4f}), 0);
  EXPECT_EQ(clear.ids, (Ids{5, 4}));
  EXPECT_EQ(clear.decided_by, DecidedBy::kErrorBound);
}

TEST(ExactChoice, SubnormalAndHugeOperands) {
  // Products of 2^-266 and of 2^250 in one row; the sums are 2^-266 apart.
  const std::vector<double> x = {0x1p-133, 0x1p125, 0x1p125, 1.0};
  Rows weight = {{0.0, 0x1p120, -0x1p120, 1.0}, {0x1p-133, 0x1p120, -0x1p120, 1.0}, {0.0, 0.0, 0.0, -1.0}};
  const ExactChoice choice = exact_choice(spec_of(3, 1), inputs_of(x, weight), 0);
  EXPECT_EQ(choice.ids, Ids{1});
  EXPECT_EQ(choice.decided_by, DecidedBy::kExactLogits);
}

TEST(ExactChoice, RowsWithoutNumbersOrAnswerAreNotJudged) {
  EXPECT_EQ(exact_choice(spec_of(2, 1), given({0.0f, INFINITY}), 0).decided_by, DecidedBy::kNotJudged);
  const RouterInputs inputs = inputs_of({1.0, INFINITY}, {{1.0, 0.0}, {0.0, 1.0}});
  EXPECT_EQ(exact_choice(spec_of(2, 1), inputs, 0).decided_by, DecidedBy::kNotJudged);
  RouterSpec spec = spec_of(2, 1);
  spec.selection.bias = BiasType::kFp32;
  RouterInputs classes = given({0.0f, 1.0f});
  classes.selection_bias = {0.0f, 0.0f};
  classes.row_class = {1};
  EXPECT_EQ(exact_choice(spec, classes, 0).decided_by, DecidedBy::kNotJudged);
  classes.row_class = {0};
  EXPECT_EQ(exact_choice(spec, classes, 0).decided_by, DecidedBy::kErrorBound);
}

TEST(ExactChoice, FollowsTablesAndPreparedInputs) {
  RouterSpec spec = spec_of(4, 2);
  spec.selection.method = SelectionMethod::kHashTable;
  RouterInputs inputs = given({0.0f, 1.0f, 2.0f, 3.0f});
  inputs.hash_table = {0, 1, 3, 2};
  inputs.token_ids = {1};
  EXPECT_EQ(exact_choice(spec, inputs, 0).ids, (Ids{3, 2}));

  // Divided by the norm, 5: 0.2 * 131 / 128 is below 1.4 * 150 / 1024; in bf16 0.2 is more and 1.4 is less.
  RouterSpec norm = spec_of(2, 1);
  norm.gate.input_norm = InputNorm::kRmsnormUnweighted;
  norm.gate.input_norm_eps = 0x1p-100;
  const RouterInputs hidden = inputs_of({1.0, 7.0}, {{131.0 / 128, 0.0}, {0.0, 150.0 / 1024}});
  const ExactChoice choice = exact_choice(norm, hidden, 0);
  EXPECT_EQ(choice.ids, Ids{0});
  EXPECT_TRUE(choice.decided());
}

}  // namespace
}  // namespace samebits::oracle
