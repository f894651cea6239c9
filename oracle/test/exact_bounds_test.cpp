// Intervals of what comes before and after the sum of a logit: they hold every honest way to compute a value, and are
// narrow enough to refuse another one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <vector>

#include "oracle/emulate/prepared_input.h"
#include "oracle/emulate/tc256.h"
#include "oracle/exact/declared_arithmetic.h"
#include "oracle/exact/input_bounds.h"
#include "oracle/exact/key_bounds.h"
#include "oracle/exact/logit_bounds.h"
#include "oracle/exact/score_bounds.h"
#include "oracle/exact/sparsemixer_bounds.h"
#include "oracle/exact/weight_bounds.h"
#include "oracle/reference/answer.h"
#include "oracle/tensors/bf16.h"

namespace samebits::oracle {
namespace {

constexpr std::size_t kHidden = 512;

RouterInputs normal_inputs(std::mt19937& random, float scale) {
  std::normal_distribution<float> normal;
  RouterInputs inputs;
  inputs.num_tokens = 1;
  inputs.hidden_size = kHidden;
  inputs.gate_rows = 4;
  for (std::size_t k = 0; k < kHidden; ++k) {
    inputs.hidden_states.push_back(fp32_to_bf16(scale * normal(random)));
    inputs.input_scale_vector.push_back(1 + normal(random) / 4);
  }
  for (std::size_t i = 0; i < 4 * kHidden; ++i) inputs.gate_weight_bf16.push_back(fp32_to_bf16(normal(random) / 16));
  return inputs;
}

RouterSpec norm_spec() {
  RouterSpec spec;
  spec.gate.input_norm = InputNorm::kRmsnormUnweighted;
  spec.gate.input_norm_eps = 1e-6;
  spec.gate.input_scale_vector = true;
  spec.gate.input_scale_kind = InputScale::kRsqrtHiddenSize;
  return spec;
}

// The prepared row by other orders than the contract's: the sum of squares one by one in a shuffled order, vector times
// scale first, and 1 / sqrt in two operations or in double.
std::vector<float> prepared_otherwise(const RouterInputs& inputs, double eps, bool by_double, std::mt19937& random) {
  std::vector<std::size_t> order(kHidden);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::shuffle(order.begin(), order.end(), random);
  float squares = 0;
  for (const std::size_t k : order) {
    const float x = bf16_to_fp32(inputs.hidden_states[k]);
    squares = std::fma(x, x, squares);
  }
  const float mean = squares / kHidden + static_cast<float>(eps);
  const float r = by_double ? static_cast<float>(1 / std::sqrt(static_cast<double>(mean))) : 1 / std::sqrt(mean);
  const float s = std::pow(static_cast<float>(kHidden), -0.5f);
  std::vector<float> row;
  for (std::size_t k = 0; k < kHidden; ++k) {
    const float vector = inputs.input_scale_vector[k] * s;
    row.push_back(round_to_bf16(bf16_to_fp32(inputs.hidden_states[k]) * (r * vector)));
  }
  return row;
}

TEST(InputBounds, HoldOtherOrdersOfTheNorm) {
  std::mt19937 random(1);
  std::size_t uncertain = 0, moved = 0;
  for (int example = 0; example < 200; ++example) {
    const float scale = std::vector<float>{1.0f, 30.0f, 1e-4f, 1e-38f}[static_cast<std::size_t>(example % 4)];
    const RouterInputs inputs = normal_inputs(random, scale);
    const RouterSpec spec = norm_spec();
    const auto contract = prepared_input(spec, inputs, 0);
    for (const Arithmetic& arithmetic : {Arithmetic(Arithmetic::kFp32AnyOrder), Arithmetic(Arithmetic::kBf16Logits)}) {
      const auto bounds = input_bounds(spec, inputs, 0, arithmetic);
      ASSERT_TRUE(bounds);
      std::vector<double> radius(kHidden, 0.0);
      for (const auto& u : bounds->uncertain) radius[u.k] = u.radius;
      uncertain += bounds->uncertain.size();
      for (int trial = 0; trial < 4; ++trial) {
        const auto row = prepared_otherwise(inputs, 1e-6, trial % 2 == 0, random);
        for (std::size_t k = 0; k < kHidden; ++k) {
          ASSERT_LE(std::fabs(static_cast<double>(row[k]) - bounds->middle[k]), radius[k]) << "scale " << scale;
          ASSERT_LE(std::fabs(static_cast<double>(bf16_to_fp32(contract[k])) - bounds->middle[k]), radius[k]);
          moved += row[k] != bf16_to_fp32(contract[k]) ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GT(moved, 0u) << "another order moves some values to a bf16 neighbour: the bound is needed";
  EXPECT_LT(uncertain, 200 * 2 * kHidden / 16) << "but few";
}

TEST(InputBounds, AreTheBitsOfTheContractForTc256AndTheFormulaNearlyAlways) {
  std::mt19937 random(2);
  const RouterInputs inputs = normal_inputs(random, 1.0f);
  const auto contract = prepared_input(norm_spec(), inputs, 0);
  const auto bits = input_bounds(norm_spec(), inputs, 0, Arithmetic::kTc256);
  const auto formula = exact_input(norm_spec(), inputs, 0);
  ASSERT_TRUE(bits && formula);
  EXPECT_TRUE(bits->uncertain.empty());
  EXPECT_TRUE(formula->uncertain.empty());
  for (std::size_t k = 0; k < kHidden; ++k) {
    const auto value = static_cast<double>(bf16_to_fp32(contract[k]));
    EXPECT_EQ(bits->middle[k], value);
    EXPECT_NEAR(formula->middle[k], value, std::fabs(value) * 0x1p-7) << "a neighbour at most";
  }
}

TEST(InputBounds, ClaimNothingWhereAStepMayOverflow) {
  std::mt19937 random(3);
  RouterInputs inputs = normal_inputs(random, 1.0f);
  for (const float value : {INFINITY, std::nanf(""), 3e38f}) {
    RouterInputs bad = inputs;
    bad.input_scale_vector[7] = value;
    EXPECT_FALSE(input_bounds(norm_spec(), bad, 0, Arithmetic::kFp32AnyOrder)) << value;
    bad.hidden_states[7] = 0;
    EXPECT_FALSE(input_bounds(norm_spec(), bad, 0, Arithmetic::kFp32AnyOrder)) << value << " times 0";
    bad = inputs;
    bad.hidden_states[7] = fp32_to_bf16(value);
    EXPECT_FALSE(input_bounds(norm_spec(), bad, 0, Arithmetic::kFp32AnyOrder)) << value;
    const LogitBounds logits = logit_bounds(norm_spec(), bad, 0, Arithmetic::kFp32AnyOrder);
    EXPECT_GT(logits.lower[0], logits.upper[0]);
  }
  const RouterInputs zeros = [&] {
    RouterInputs z = inputs;
    std::fill(z.hidden_states.begin(), z.hidden_states.end(), std::uint16_t{0});
    return z;
  }();
  const auto bounds = input_bounds(norm_spec(), zeros, 0, Arithmetic::kFp32AnyOrder);
  ASSERT_TRUE(bounds) << "eps keeps the norm finite";
  EXPECT_TRUE(bounds->uncertain.empty());
}

TEST(LogitBounds, HoldTheContractWithNormTemperatureAndSoftcap) {
  std::mt19937 random(4);
  for (int trial = 0; trial < 20; ++trial) {
    const RouterInputs inputs = normal_inputs(random, 4.0f);
    RouterSpec spec = norm_spec();
    spec.gate.input_scale_kind = trial % 2 == 0 ? InputScale::kFactor : InputScale::kRsqrtHiddenSizeBf16;
    if (trial % 3 == 1) spec.logits.temperature = 0.7;
    if (trial % 3 == 2) spec.logits.softcap = 2.0;
    const std::vector<std::int64_t> rows = {0};
    const std::vector<float> logits = tc256_logits(spec, inputs, rows);
    for (const Arithmetic& arithmetic : {Arithmetic(Arithmetic::kTc256), Arithmetic(Arithmetic::kFp32AnyOrder)}) {
      const LogitBounds bounds = logit_bounds(spec, inputs, 0, arithmetic);
      for (std::size_t e = 0; e < 4; ++e) {
        EXPECT_LE(bounds.lower[e], static_cast<double>(logits[e]));
        EXPECT_GE(bounds.upper[e], static_cast<double>(logits[e]));
        EXPECT_LT(bounds.upper[e] - bounds.lower[e], 0.01 * (1 + std::fabs(bounds.lower[e])));
      }
    }
  }
}

TEST(LogitBounds, BoundedDepthIsTighterAndHoldsTrees) {
  std::mt19937 random(5);
  const RouterInputs inputs = normal_inputs(random, 1.0f);
  const RouterSpec spec;
  const LogitBounds any = logit_bounds(spec, inputs, 0, Arithmetic::kFp32AnyOrder);
  const LogitBounds shallow = logit_bounds(spec, inputs, 0, {Arithmetic::kFp32Depth, 10});
  const LogitBounds whole = logit_bounds(spec, inputs, 0, {Arithmetic::kFp32Depth, kHidden});
  const LogitBounds deep = logit_bounds(spec, inputs, 0, {Arithmetic::kFp32Depth, 100000});
  for (std::size_t e = 0; e < 4; ++e) {
    std::vector<float> tree;  // a rounding each for the product and nine levels
    for (std::size_t k = 0; k < kHidden; ++k) {
      tree.push_back(bf16_to_fp32(inputs.hidden_states[k]) * bf16_to_fp32(inputs.gate_weight_bf16[e * kHidden + k]));
    }
    for (std::size_t n = kHidden / 2; n > 0; n /= 2) {
      for (std::size_t i = 0; i < n; ++i) tree[i] += tree[i + n];
    }
    EXPECT_LE(shallow.lower[e], static_cast<double>(tree[0]));
    EXPECT_GE(shallow.upper[e], static_cast<double>(tree[0]));
    EXPECT_LT((shallow.upper[e] - shallow.lower[e]) * 40, any.upper[e] - any.lower[e]);
    EXPECT_EQ(deep.lower[e], whole.lower[e]) << "no more roundings than terms";
    EXPECT_GT(deep.lower[e], any.lower[e]) << "rounded to nearest, not cut";
  }
}

TEST(DeclaredArithmetic, NamesReadBackAndOthersAreRefused) {
  for (const Arithmetic& arithmetic :
       {Arithmetic(Arithmetic::kTc256), Arithmetic(Arithmetic::kFp32AnyOrder), Arithmetic(Arithmetic::kBf16Logits),
        Arithmetic(Arithmetic::kFp32Depth, 1), Arithmetic(Arithmetic::kFp32Depth, 1048576)}) {
    EXPECT_EQ(parse_arithmetic(arithmetic_name(arithmetic)), arithmetic) << arithmetic_name(arithmetic);
  }
  EXPECT_EQ(arithmetic_name({Arithmetic::kFp32Depth, 24}), "fp32-depth:24");
  for (const char* name : {"", "fp32", "fp32-depth", "fp32-depth:", "fp32-depth:0", "fp32-depth:-1", "fp32-depth:+1",
                           "fp32-depth:01", "fp32-depth:1.5", "fp32-depth:1048577", "fp32-depth:99999999999999999999",
                           "fp32-depth: 3", "tc256 ", "TC256"}) {
    EXPECT_FALSE(parse_arithmetic(name)) << name;
  }
}

std::vector<Interval> points(const std::vector<float>& values) {
  std::vector<Interval> intervals;
  for (const float v : values) intervals.push_back({v, v});
  return intervals;
}

// The widths are those of the budgets: for logits within 24 of each other, 256 units on each side for a softmax of 64,
// fewer for the others, and as many again for what sums in double lose.
TEST(ScoreBounds, OfTheFormulaAreFarNarrowerAndHoldTheReference) {
  std::mt19937 random(6);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> logits(64);
  for (float& x : logits) x = normal(random);
  const std::vector<double> doubles(logits.begin(), logits.end());
  for (const ScoreFunc func :
       {ScoreFunc::kSoftmax, ScoreFunc::kSigmoid, ScoreFunc::kSqrtSoftplus, ScoreFunc::kIdentity}) {
    RouterSpec spec;
    spec.shape.num_experts = 64;
    spec.shape.top_k = 1;
    spec.score.func = func;
    const auto reference = route_row(spec, std::span<const double>(doubles), {});
    const auto contract = route_row(spec, std::span<const float>(logits), {});
    const auto formula = score_bounds(spec.score, points(logits), kFormula);
    const auto fp32 = score_bounds(spec.score, points(logits), kFp32Steps);
    for (std::size_t e = 0; e < 64; ++e) {
      EXPECT_TRUE(formula[e].contains(reference.scores[e]));
      EXPECT_TRUE(fp32[e].contains(static_cast<double>(contract.scores[e])));
      EXPECT_LE(formula[e].upper - formula[e].lower, 1024 * 0x1p-53 * std::fabs(reference.scores[e]));
      EXPECT_LE(fp32[e].upper - fp32[e].lower, 1024 * 0x1p-24 * std::fabs(reference.scores[e]));
    }
  }
}

TEST(ScoreBounds, SoftmaxOfWideIntervalsStaysAnInterval) {
  for (const double radius : {1.0, 30.0, 800.0, 1e30}) {
    const std::vector<Interval> logits = {{-radius, radius}, {-radius, radius}, {0.0, 0.0}};
    RouterSpec::Score spec;
    for (const Interval& score : score_bounds(spec, logits, kFp32Steps)) {
      EXPECT_TRUE(score.contains(1.0 / 3.0)) << radius;
      EXPECT_GE(score.lower, 0.0);
      EXPECT_LE(score.upper, 1.001);
    }
  }
}

// e^-103.75 is 2^-149.7, which rounds to 2^-149; divided by 1.47 that is still 2^-149, although the exact quotient is
// below 2^-150.
TEST(ScoreBounds, NearHalfTheSmallestSubnormalAreOpenAndFarBelowAreZero) {
  constexpr double kSmallest = 0x1p-149;
  RouterSpec::Score softmax;
  const std::vector<float> logits = {-128.0f, 16.75f, 16.0f, -87.0f};
  const float last = std::exp(logits[3] - logits[1]);
  ASSERT_EQ(last / (1.0f + std::exp(logits[2] - logits[1])), static_cast<float>(kSmallest));
  const auto scores = score_bounds(softmax, points(logits), kFp32Steps);
  EXPECT_TRUE(scores[3].contains(0.0));
  EXPECT_TRUE(scores[3].contains(kSmallest));
  EXPECT_EQ(scores[0].upper, 0.0) << "e^-144.75 is 2^-208";

  const auto alone = [](ScoreFunc func, double x) {
    RouterSpec::Score spec;
    spec.func = func;
    return score_bounds(spec, std::vector<Interval>{{x, x}}, kFp32Steps)[0];
  };
  for (const double x : {-103.5, -104.0, -105.0}) {  // 2^-149.3, 2^-150.04, 2^-151.5
    EXPECT_TRUE(alone(ScoreFunc::kSigmoid, x).contains(0.0)) << x;
    EXPECT_TRUE(alone(ScoreFunc::kSigmoid, x).contains(kSmallest)) << x;
    EXPECT_TRUE(alone(ScoreFunc::kSqrtSoftplus, 2.0 * x).contains(0.0)) << x;
    EXPECT_TRUE(alone(ScoreFunc::kSqrtSoftplus, 2.0 * x).contains(kSmallest)) << x;
  }
  EXPECT_EQ(alone(ScoreFunc::kSigmoid, -106.0).upper, 0.0);
  EXPECT_EQ(alone(ScoreFunc::kSqrtSoftplus, -212.0).upper, 0.0);
}

// A router whose exponential is not 0 may round the quotient either way.
TEST(ScoreBounds, ASmallQuotientOfAnExponentialThatIsNotIsNoZero) {
  std::vector<Interval> logits(65536, Interval{0.0, 0.0});
  logits[0] = {-100.0, -100.0};  // 2^-144.3, after the division 2^-160.3
  EXPECT_GT(score_bounds({}, logits, kFp32Steps)[0].upper, 0x1p-149);
  logits[0] = {-107.0, -107.0};
  EXPECT_EQ(score_bounds({}, logits, kFp32Steps)[0].upper, 0.0);
}

// Sparsemixer by its definition, for logits inside the intervals.
TEST(SparsemixerBounds, HoldTheContractAndItsNeighbours) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0f, 2.0f);
  RouterSpec spec;
  spec.shape.num_experts = 16;
  spec.shape.top_k = 3;
  spec.selection.method = SelectionMethod::kSparsemixer;
  spec.selection.rank_by = RankBy::kLogit;
  spec.sparsemixer_jitter_eps = 0.1;
  int narrow = 0;
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<float> logits(16);
    for (float& x : logits) x = normal(random) + (trial % 3 == 0 ? -5.0f : 0.0f);
    if (trial % 5 == 0) logits[3] = logits[9];
    if (trial % 7 == 0) std::fill(logits.begin(), logits.end(), 0.0f);
    const double radius = trial % 2 == 0 ? 0.0 : 1e-3;
    std::vector<Interval> intervals;
    for (const float x : logits) intervals.push_back({x - radius, x + radius});
    for (int neighbour = 0; neighbour < 5; ++neighbour) {
      std::vector<float> near = logits;
      for (float& x : near) x += static_cast<float>(radius * 0.99) * (static_cast<float>(random() % 2001) / 1000 - 1);
      const auto answer = route_row(spec, std::span<const float>(near), {});
      const std::vector<std::int64_t> ids(answer.ids.begin(), answer.ids.end());
      const auto before = [&](std::int64_t a, std::int64_t b) {
        return intervals[static_cast<std::size_t>(a)].lower > intervals[static_cast<std::size_t>(b)].upper;
      };
      const auto bounds = sparsemixer_bounds(0.1, intervals, ids, before, kFp32Steps);
      for (std::size_t i = 0; i < ids.size(); ++i) {
        const double score = answer.scores[static_cast<std::size_t>(ids[i])];
        ASSERT_TRUE(bounds[i].contains(score))
            << trial << ": " << score << " in " << bounds[i].lower << " " << bounds[i].upper;
        narrow += bounds[i].upper - bounds[i].lower < 1e-5 ? 1 : 0;
      }
    }
  }
  EXPECT_GT(narrow, 300 * 5 * 3 / 3) << "exact logits leave little but the rounding";
}

TEST(SparsemixerBounds, AnExpertAtTheThresholdMayTakePartOrNot) {
  // (1 - 0.8) / 1 = 0.2 = 2 eps up to the rounding of 0.8 and 0.1.
  const std::vector<std::int64_t> ids = {0};
  const auto never = [](std::int64_t, std::int64_t) { return false; };
  const auto edge = sparsemixer_bounds(0.1, points({1.0f, 0.8f}), ids, never, kFp32Steps)[0];
  EXPECT_TRUE(edge.contains(1.0));
  EXPECT_TRUE(edge.contains(1.0 / (1.0 + std::exp(-0.2))));
  const auto inside = sparsemixer_bounds(0.1, points({1.0f, 0.81f}), ids, never, kFp32Steps)[0];
  EXPECT_FALSE(inside.contains(1.0));
  const auto outside = sparsemixer_bounds(0.1, points({1.0f, 0.79f}), ids, never, kFp32Steps)[0];
  EXPECT_TRUE(outside.contains(1.0));
  EXPECT_FALSE(outside.contains(0.99));
}

TEST(WeightBounds, LogSpaceHoldsTheContractWhereSigmoidsUnderflow) {
  RouterSpec::Weights weights;
  weights.renormalize = Renormalize::kLogSpaceL1;
  weights.routed_scaling_factor = 8.0;
  for (const float offset : {0.0f, 5.0f, -30.0f, -200.0f, -3000.0f}) {
    const std::vector<float> logits = {offset, offset - 1.0f, offset + 0.5f, offset - 20.0f};
    RouterSpec spec;
    spec.shape.num_experts = 4;
    spec.shape.top_k = 4;
    spec.score.func = ScoreFunc::kSigmoid;
    spec.weights = weights;
    spec.weights.per_expert_scale = spec.weights.global_scale = true;
    const std::vector<float> per_expert = {1.5f, -2.0f, 1.0f, 3.0f};
    const auto answer =
        route_row(spec, std::span<const float>(logits), {.per_expert_scale = per_expert, .global_scale = 0.75f});
    const auto bounds = log_space_weight_bounds(weights, points(logits), {.per_slot = per_expert, .global = 0.75f});
    for (std::size_t i = 0; i < 4; ++i) {
      const auto slot = static_cast<std::size_t>(
          std::find(answer.ids.begin(), answer.ids.end(), static_cast<std::int32_t>(i)) - answer.ids.begin());
      const auto weight = static_cast<double>(answer.weights[slot]);
      EXPECT_TRUE(bounds[i].contains(weight)) << offset << ": " << weight << " in " << bounds[i].lower;
      EXPECT_LT(bounds[i].upper - bounds[i].lower, 0.02 * std::fabs(weight) + 1e-30) << offset;
    }
    EXPECT_TRUE(log_space_weight_sum_bounds(weights, points(logits), 0.75f).contains(6.0));
  }
}

TEST(WeightBounds, LearnedFactorsMultiplyAndMayOverflow) {
  RouterSpec::Weights weights;
  weights.renormalize = Renormalize::kL1;
  const std::vector<Interval> values = points({0.5f, 0.25f, 0.25f});
  const auto bounds = weight_bounds(weights, values, {}, {.per_slot = {2.0f, -1.0f, 3e38f}, .global = 3.0f});
  EXPECT_TRUE(bounds[0].contains(3.0));
  EXPECT_LT(bounds[0].upper - bounds[0].lower, 1e-5);
  EXPECT_TRUE(bounds[1].contains(-0.75));
  EXPECT_FALSE(bounds[1].contains(0.75));
  EXPECT_EQ(bounds[2].upper, std::numeric_limits<double>::infinity()) << "9e38 * 0.25 may have passed through Inf";
  EXPECT_TRUE(weight_sum_bounds(weights, values, 3e38f).contains(0.0));
  EXPECT_TRUE(weight_sum_bounds(weights, values, 3e38f).contains(-1e38));
  EXPECT_TRUE(log_space_weight_sum_bounds(weights, values, 3e38f).contains(0.0));
  EXPECT_FALSE(log_space_weight_sum_bounds(weights, values, 3e37f).contains(0.0));
  // The unseen half of the sum halves every weight.
  const auto halved = weight_bounds(weights, values, {1.0, 1.0}, {});
  EXPECT_TRUE(halved[0].contains(0.25));
  EXPECT_FALSE(halved[0].contains(0.5));
}

TEST(WeightBounds, AProductBeforeTheDivisionMayBeSubnormalOrOverflow) {
  RouterSpec spec;
  spec.shape.num_experts = 2;
  spec.shape.top_k = 2;
  spec.score.func = ScoreFunc::kIdentity;
  spec.weights.renormalize = Renormalize::kL1;
  spec.weights.routed_scaling_factor = 2.5;
  RouterSpec before = spec;
  before.weights.scale_stage = ScaleStage::kBeforeDivide;
  const std::vector<float> tiny = {625 * 0x1p-149f, 0.0f};  // 1562.5 units round to 1562
  const std::vector<float> large = {1e30f, 1e30f};
  const auto bounds = [](const RouterSpec& s, const std::vector<float>& values) {
    return weight_bounds(s.weights, points(values), {}, {})[0];
  };
  const auto sums = [](const RouterSpec& s, const std::vector<float>& values) {
    return weight_sum_bounds(s.weights, points(values), std::nullopt);
  };
  const float lossy = route_row(before, std::span<const float>(tiny), {}).weights[0];
  ASSERT_EQ(lossy, 2.4992f);
  EXPECT_TRUE(bounds(before, tiny).contains(lossy));
  EXPECT_TRUE(sums(before, tiny).contains(lossy));
  EXPECT_FALSE(bounds(spec, tiny).contains(lossy)) << "the quotient first loses nothing";
  EXPECT_FALSE(sums(spec, tiny).contains(lossy));
  EXPECT_EQ(weight_bounds(before.weights, points(tiny), {}, {})[1].upper, bounds(before, {0.0f, 0.0f}).upper)
      << "a value of 0 loses nothing";
  EXPECT_LT(bounds(before, {0.5f, 0.5f}).upper, 1.2501) << "nor do values of usual size";

  before.weights.routed_scaling_factor = spec.weights.routed_scaling_factor = 1e20;
  const auto overflowed = route_row(before, std::span<const float>(large), {});
  ASSERT_EQ(overflowed.weights[0], 0.0f);
  EXPECT_TRUE(bounds(before, large).contains(0.0));
  EXPECT_TRUE(sums(before, large).contains(0.0));
  EXPECT_FALSE(bounds(spec, large).contains(0.0));
  EXPECT_FALSE(sums(spec, large).contains(0.0));
  // So does a sum that overflows, at either stage.
  EXPECT_TRUE(bounds(spec, {3e38f, 3e38f}).contains(0.0));
  EXPECT_TRUE(sums(spec, {3e38f, 3e38f}).contains(0.0));
}

}  // namespace
}  // namespace samebits::oracle
