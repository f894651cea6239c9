// The parts of the second oracle, each on its own: rounded operations against the processor, tensor-core steps against
// hand-made cases and the first oracle, bounds against values that must lie within.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "oracle/emulate/tc256.h"
#include "oracle/second/ball.h"
#include "oracle/second/exact_sum.h"
#include "oracle/second/functions.h"
#include "oracle/second/logits.h"
#include "oracle/second/step.h"
#include "oracle/second/test/compare/random.h"
#include "oracle/second/weigh.h"
#include "oracle/tensors/bf16.h"

namespace samebits::second {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

std::uint32_t bits(float value) {
  return std::isnan(value) ? 0x7fffffffu : std::bit_cast<std::uint32_t>(value);
}

float any_bits(Random& random) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(random.next()));
}

// A number whose exponent is near that of 1, or any bits.
float some_float(Random& random) {
  if (random.one_in(2)) return any_bits(random);
  return static_cast<float>(random.normal() * std::ldexp(1.0, static_cast<int>(random.between(-4, 4))));
}

TEST(Ball, ExactOperationsAreThoseOfTheProcessor) {
  Random random(1);
  for (int i = 0; i < 200000; ++i) {
    const float a = some_float(random);
    const float b = some_float(random);
    const Ball x = exact(a);
    const Ball y = exact(b);
    ASSERT_EQ(bits(to_float(add(x, y))), bits(a + b)) << a << " + " << b;
    ASSERT_EQ(bits(to_float(subtract(x, y))), bits(a - b)) << a << " - " << b;
    ASSERT_EQ(bits(to_float(multiply(x, y))), bits(a * b)) << a << " * " << b;
    ASSERT_EQ(bits(to_float(divide(x, y))), bits(a / b)) << a << " / " << b;
    ASSERT_EQ(bits(to_float(square_root(x))), bits(std::sqrt(a))) << "sqrt " << a;
    ASSERT_EQ(bits(to_float(rounded(x, kBf16))), bits(oracle::round_to_bf16(a))) << "bf16 " << a;
  }
}

// Operands that are off by up to their radius must give a result within the radius of the result.
TEST(Ball, BoundsHoldAtTheEdges) {
  Random random(2);
  const auto within = [](const Ball& ball, float value) {
    if (is_unknown(ball)) return true;
    return std::abs(mpfr_get_d(ball.center, MPFR_RNDN) - static_cast<double>(value)) <= ball.radius * (1 + 1e-12);
  };
  int inexact = 0;
  for (int i = 0; i < 100000; ++i) {
    const auto ball = [&](float& value) {
      const double center = random.normal() * std::ldexp(1.0, static_cast<int>(random.between(-3, 3)));
      const double radius = std::abs(center) * std::ldexp(1.0, static_cast<int>(random.between(-24, -2)));
      value = static_cast<float>(center + (radius * (random.one_in(2) ? 0.999 : -0.999)));
      Real real;
      mpfr_set_d(real, center, MPFR_RNDN);
      return with_error(real, radius + (std::abs(center) * 0x1p-24));
    };
    float a = 0;
    float b = 0;
    const Ball x = ball(a);
    const Ball y = ball(b);
    ASSERT_TRUE(within(add(x, y), a + b)) << a << " + " << b;
    ASSERT_TRUE(within(subtract(x, y), a - b)) << a << " - " << b;
    ASSERT_TRUE(within(multiply(x, y), a * b)) << a << " * " << b;
    ASSERT_TRUE(within(divide(x, y), a / b)) << a << " / " << b;
    ASSERT_TRUE(within(maximum(x, y), std::max(a, b))) << a << " max " << b;
    if (a > 0) {
      ASSERT_TRUE(within(square_root(x), std::sqrt(a))) << "sqrt " << a;
    }
    const Functions& functions = published_functions();
    ASSERT_TRUE(within(functions.exp(x), oracle::tc256::exp(a))) << "exp " << a;
    ASSERT_TRUE(within(functions.sigmoid(x), oracle::tc256::sigmoid(a))) << "sigmoid " << a;
    ASSERT_TRUE(within(functions.sqrt_softplus(x), oracle::tc256::sqrt_softplus(a))) << "sqrt_softplus " << a;
    ASSERT_TRUE(within(functions.tanh(x), oracle::tc256::tanh(a))) << "tanh " << a;
    if (a > 0) {
      ASSERT_TRUE(within(functions.log(x), oracle::tc256::log(a))) << "log " << a;
    }
    if (a > -1) {
      ASSERT_TRUE(within(functions.log1p(x), oracle::tc256::log1p(a))) << "log1p " << a;
    }
    inexact += is_unknown(divide(x, y)) ? 0 : 1;
  }
  EXPECT_GT(inexact, 90000);
}

TEST(Ball, ARoundingThatIsDecidedIsExact) {
  Real center;
  mpfr_set_d(center, 1.0 + 0x1p-30, MPFR_RNDN);
  EXPECT_EQ(to_float(rounded(with_error(center, 0x1p-31), kFp32)), 1.0f);
  EXPECT_TRUE(is_exact(rounded(with_error(center, 0x1p-31), kFp32)));
  mpfr_set_d(center, 1.0 + 0x1p-24, MPFR_RNDN);  // half way to the next number
  EXPECT_FALSE(is_exact(rounded(with_error(center, 0x1p-40), kFp32)));
}

// Radii so large that e^r overflows, at arguments where e^x underflows.
TEST(Ball, HugeRadiiStayBounds) {
  const auto at = [](double center, double radius) {
    Real real;
    mpfr_set_d(real, center, MPFR_RNDN);
    return with_error(real, radius);
  };
  const Functions& functions = published_functions();
  EXPECT_LT(functions.sigmoid(at(-8e21, 3e15)).radius, 0x1p-148);
  EXPECT_LT(functions.exp(at(-8e21, 3e15)).radius, 0x1p-148);
  EXPECT_LT(functions.sqrt_softplus(at(-8e21, 3e15)).radius, 0x1p-148);
  EXPECT_GE(functions.sigmoid(at(-1000, 2000)).radius, 1);
  EXPECT_GE(functions.sqrt_softplus(at(-1000, 2000)).radius, std::sqrt(1000.0));
  EXPECT_TRUE(is_unknown(functions.exp(at(-1000, 2000))));
}

// The largest errors of the contract's functions, on arguments of every size.
TEST(PublishedFunctions, HoldTheContractsFunctions) {
  const Functions& published = published_functions();
  const FedFunctions fed({oracle::tc256::exp, oracle::tc256::sigmoid, oracle::tc256::sqrt_softplus, oracle::tc256::tanh,
                          oracle::tc256::log, oracle::tc256::log1p});
  using Function = Ball (Functions::*)(const Ball&) const;
  constexpr std::array<Function, 6> kFunctions{&Functions::exp,  &Functions::sigmoid, &Functions::sqrt_softplus,
                                               &Functions::tanh, &Functions::log,     &Functions::log1p};
  Random random(3);
  for (int i = 0; i < 30000; ++i) {
    const Ball x = exact(random.one_in(3) ? any_bits(random) : static_cast<float>(random.uniform(-110, 95)));
    for (std::size_t f = 0; f < kFunctions.size(); ++f) {
      const Ball expected = (published.*kFunctions[f])(x);
      const Ball found = (fed.*kFunctions[f])(x);
      if (is_unknown(expected)) continue;
      ASSERT_EQ(is_nan(found), is_nan(expected)) << "function " << f << " at " << to_float(x);
      ASSERT_EQ(is_finite(found), is_finite(expected)) << "function " << f << " at " << to_float(x);
      if (!is_finite(expected)) continue;
      Real distance;
      mpfr_sub(distance, found.center, expected.center, MPFR_RNDA);
      ASSERT_LE(std::abs(mpfr_get_d(distance, MPFR_RNDA)), expected.radius)
          << "function " << f << " at " << to_float(x) << ": " << to_float(found);
    }
  }
}

// Where the contract's functions are furthest from the mathematical ones, which random arguments hardly meet.
TEST(PublishedFunctions, HoldTheLargestErrors) {
  const auto holds = [](const Ball& expected, float found) {
    Real distance;
    mpfr_sub(distance, exact(found).center, expected.center, MPFR_RNDA);
    return std::abs(mpfr_get_d(distance, MPFR_RNDA)) <= expected.radius;
  };
  const Functions& published = published_functions();
  for (const float x : {0x1.fe4e7p-2f, -0x1.fe4e7p-2f}) {
    EXPECT_TRUE(holds(published.tanh(exact(x)), oracle::tc256::tanh(x))) << x;
  }
  EXPECT_TRUE(holds(published.log(exact(0x1.67b59ap-1f)), oracle::tc256::log(0x1.67b59ap-1f)));
}

// A value that may have overflowed leaves it open whether +Inf takes the weight of all others.
TEST(Weigh, AValueThatIsUnknownDecidesNothing) {
  oracle::RouterSpec spec;
  spec.shape = {.hidden_size = 1, .num_experts = 2, .top_k = 2, .num_layers = {}, .num_moe_layers = {}};
  const std::vector<std::int32_t> slots{0, 1};
  const auto weights = [&](std::vector<Ball> values) {
    return weigh(spec, {}, published_functions(), slots, values, values, values).weights;
  };
  for (const auto mode : {oracle::Renormalize::kNone, oracle::Renormalize::kL1}) {
    spec.weights.renormalize = mode;
    EXPECT_TRUE(is_unknown(weights({exact(1), unknown()})[0]));
    EXPECT_EQ(to_float(weights({exact(1), exact(kInf)})[0]), 0);
    EXPECT_EQ(to_float(weights({exact(1), exact(1)})[0]), mode == oracle::Renormalize::kL1 ? 0.5f : 1.0f);
  }
}

TEST(ExactSum, LosesNothing) {
  ExactSum sum;
  sum.add(255 * 255, 240);
  sum.add(1, -266);
  sum.add(-255 * 255, 240);
  Real value;
  sum.get(value);
  EXPECT_EQ(mpfr_cmp_ui_2exp(value, 1, -266), 0);
  sum.add(-1, -266);
  sum.get(value);
  EXPECT_EQ(mpfr_zero_p(static_cast<mpfr_srcptr>(value)), 1);
}

std::uint16_t bf16(float value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16);
}

float one_step(float c, std::vector<float> a, std::vector<float> b) {
  std::vector<std::uint16_t> x;
  std::vector<std::uint16_t> y;
  for (const float value : a) x.push_back(bf16(value));
  for (const float value : b) y.push_back(bf16(value));
  return step(c, x, y);
}

// One value for each rule of the step.
TEST(Step, FollowsEachRule) {
  EXPECT_EQ(one_step(1, {2, 3}, {5, 7}), 32);
  // emax is 0, the unit 2^-25: of c = 2^-25 + 2^-26 the first part stays, and 24 bits of the sum cut it off.
  EXPECT_EQ(one_step(0x1.8p-25f, {1}, {1}), 1);
  EXPECT_EQ(one_step(0x1.8p-25f, {1, -1}, {1, 1}), 0x1p-25f);
  // Products are not normalised: 1.5 * 1.5 = 2.25 has exponent 0.
  EXPECT_EQ(one_step(0x1p-25f, {1.5, -1.5}, {1.5, 1.5}), 0x1p-25f);
  // The least exponent is -133, so a unit is 2^-158, but nothing below 2^-149 is returned.
  EXPECT_EQ(one_step(0, {0x1p-133f}, {0x1p-16f}), 0x1p-149f);
  EXPECT_EQ(one_step(0, {0x1p-133f}, {0x1p-17f}), 0);
  // Zero results are +0; overflow is infinite, not the largest number.
  EXPECT_EQ(bits(one_step(-0.0f, {-1, 1}, {1, 1})), 0u);
  EXPECT_EQ(bits(one_step(-0.0f, {-0x1p-133f}, {0x1p-17f})), 0u);
  EXPECT_EQ(one_step(0, {-0x1p127f, -0x1p127f}, {1, 1}), -kInf);
  EXPECT_EQ(one_step(0, {0x1p127f, -0x1p127f, 3}, {0x1p127f, 0x1p127f, 1}), 0);
  // Special values.
  EXPECT_EQ(one_step(1, {kInf}, {-2}), -kInf);
  EXPECT_EQ(bits(one_step(1, {kInf}, {0})), 0x7fffffffu);
  EXPECT_EQ(bits(one_step(kInf, {-kInf}, {1})), 0x7fffffffu);
  EXPECT_EQ(bits(one_step(std::bit_cast<float>(0xffc00001u), {1}, {1})), 0x7fffffffu);
}

// Rows of numbers so small that the accumulator is subnormal, or so mixed that alignment cuts most of them: the bound
// of the published logits must hold what steps return, and must be narrow: four steps cut at most 17 units of 2^-25
// (2^-151 where the accumulator is subnormal) and 2^-23 of the sum each, 84 * 2^-25 of the magnitudes or 84 * 2^-151.
TEST(PublishedLogits, HoldTheStepsOfHardRows) {
  Random random(5);
  oracle::RouterSpec spec;
  spec.shape = {.hidden_size = 64, .num_experts = 1, .top_k = 1, .num_layers = {}, .num_moe_layers = {}};
  for (int i = 0; i < 20000; ++i) {
    const int spread = static_cast<int>(random.between(0, 25));
    const int center = static_cast<int>(random.between(-75, -60)) * (random.one_in(2) ? 1 : 0);
    const auto operands = [&] {
      std::vector<std::uint16_t> values;
      for (int p = 0; p < 64; ++p) {
        values.push_back(bf16(static_cast<float>(
            random.normal() * std::ldexp(1.0, center + static_cast<int>(random.between(-spread, spread))))));
      }
      return values;
    };
    oracle::RouterInputs inputs;
    inputs.hidden_size = 64;
    inputs.gate_rows = 1;
    inputs.gate_weight_bf16 = operands();
    const std::vector<std::uint16_t> row = operands();
    const Ball ball = published_logits(spec, Gate(inputs), row).front();
    const float found = chain(row, inputs.gate_weight_bf16);
    Real distance;
    mpfr_sub(distance, ball.center, exact(found).center, MPFR_RNDA);
    ASSERT_LE(std::abs(mpfr_get_d(distance, MPFR_RNDA)), ball.radius) << "row " << i << ": " << found;
    double magnitudes = 0;
    for (std::size_t p = 0; p < row.size(); ++p) {
      magnitudes += std::abs(static_cast<double>(oracle::bf16_to_fp32(row[p])) *
                             static_cast<double>(oracle::bf16_to_fp32(inputs.gate_weight_bf16[p])));
    }
    ASSERT_LE(ball.radius, (magnitudes * 0x1p-18) + 0x1p-144) << "row " << i;
  }
}

TEST(Step, AgreesWithTheFirstOracle) {
  Random random(4);
  for (int i = 0; i < 100000; ++i) {
    const std::int64_t kind = random.below(4);
    const auto operand = [&]() -> std::uint16_t {
      const float wide =
          static_cast<float>(random.normal() * std::ldexp(1.0, static_cast<int>(random.between(-20, 20))));
      if (kind == 0) return bf16(static_cast<float>(random.normal()));
      if (kind == 1) return bf16(wide);
      if (kind == 2) return bf16(wide * 0x1p-66f);
      return static_cast<std::uint16_t>(random.next());
    };
    std::vector<std::uint16_t> a;
    std::vector<std::uint16_t> b;
    for (int p = 0; p < 16; ++p) {
      a.push_back(operand());
      b.push_back(operand());
    }
    const float c = random.one_in(4) ? any_bits(random) : static_cast<float>(random.normal());
    ASSERT_EQ(bits(step(c, a, b)), oracle::step(oracle::sm90(), std::bit_cast<std::uint32_t>(c), a, b))
        << "step " << i << " of kind " << kind;
  }
}

}  // namespace
}  // namespace samebits::second
