#include "oracle/exact/logit_bounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "oracle/emulate/tc256.h"
#include "oracle/tensors/bf16.h"
#include "oracle/test/emulate_categories.h"

namespace samebits::oracle {
namespace {

using test::Category;

struct Problem {
  Category category;
  std::int64_t hidden;
  bool fp32;
  bool bias;
};

std::vector<Problem> problems() {
  std::vector<Problem> list;
  for (const Category category :
       {Category::kNormal, Category::kWideExponents, Category::kCancellation, Category::kSubnormal,
        Category::kAlignmentLimit, Category::kZerosOnly, Category::kSameSignMaximal, Category::kFloorRegion}) {
    for (const std::int64_t hidden : {1, 16, 300, 1024}) {
      for (const bool fp32 : {false, true}) list.push_back({category, hidden, fp32, hidden == 300});
    }
  }
  return list;
}

constexpr std::int64_t kExperts = 24;

RouterInputs make_inputs(const Problem& p) {
  test::Operands operands(static_cast<std::uint64_t>(p.hidden) + 100);
  RouterInputs inputs;
  inputs.num_tokens = 1;
  inputs.hidden_size = p.hidden;
  inputs.gate_rows = kExperts;
  test::Bits16 row, column;
  for (std::int64_t e = 0; e < kExperts; ++e) {
    operands.fill(p.category, static_cast<std::size_t>(p.hidden), row, column);
    for (const std::uint16_t w : column) {
      if (p.fp32) {
        inputs.gate_weight_fp32.push_back(std::bit_cast<float>((std::uint32_t{w} << 16) | operands.below(65536)));
      } else {
        inputs.gate_weight_bf16.push_back(w);
      }
    }
    if (p.bias) inputs.linear_bias.push_back(std::bit_cast<float>(operands.accumulator(p.category)));
  }
  inputs.hidden_states = row;
  return inputs;
}

RouterSpec make_spec(const Problem& p) {
  RouterSpec spec;
  if (p.bias) spec.gate.linear_bias = BiasType::kFp32;
  return spec;
}

float weight(const RouterInputs& inputs, std::size_t i) {
  return inputs.gate_weight_fp32.empty() ? bf16_to_fp32(inputs.gate_weight_bf16[i]) : inputs.gate_weight_fp32[i];
}

// fp32 logits in several orders, with and without fused products, the bias first or last.
std::vector<float> fp32_logits(const RouterInputs& inputs, std::int64_t expert, std::mt19937& random) {
  const std::size_t hidden = static_cast<std::size_t>(inputs.hidden_size);
  const std::size_t first = static_cast<std::size_t>(expert) * hidden;
  const float bias = inputs.linear_bias.empty() ? 0.0f : inputs.linear_bias[static_cast<std::size_t>(expert)];
  std::vector<std::size_t> order(hidden);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<float> logits;
  for (int trial = 0; trial < 4; ++trial) {
    float rounded = 0, fused = bias;
    std::vector<float> tree;
    for (const std::size_t k : order) {
      const float x = bf16_to_fp32(inputs.hidden_states[k]), w = weight(inputs, first + k);
      rounded += x * w;
      fused = std::fma(x, w, fused);
      tree.push_back(x * w);
    }
    while (tree.size() > 1) {
      std::vector<float> next;
      for (std::size_t i = 0; i < tree.size(); i += 2)
        next.push_back(i + 1 < tree.size() ? tree[i] + tree[i + 1] : tree[i]);
      tree = next;
    }
    logits.insert(logits.end(), {rounded + bias, fused, tree[0] + bias});
    std::shuffle(order.begin(), order.end(), random);
    if (trial == 2) {  // large terms last
      std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
        return std::fabs(bf16_to_fp32(inputs.hidden_states[a]) * weight(inputs, first + a)) <
               std::fabs(bf16_to_fp32(inputs.hidden_states[b]) * weight(inputs, first + b));
      });
    }
  }
  return logits;
}

void expect_inside(const LogitBounds& bounds, std::size_t e, float logit, const Problem& p) {
  ASSERT_LE(bounds.lower[e], bounds.upper[e]);
  ASSERT_GE(static_cast<double>(logit), bounds.lower[e])
      << "category " << static_cast<int>(p.category) << " H " << p.hidden << " fp32 " << p.fp32;
  ASSERT_LE(static_cast<double>(logit), bounds.upper[e])
      << "category " << static_cast<int>(p.category) << " H " << p.hidden << " fp32 " << p.fp32;
}

TEST(LogitBounds, HoldTheContract) {
  for (const Problem& p : problems()) {
    const RouterInputs inputs = make_inputs(p);
    const LogitBounds bounds = logit_bounds(make_spec(p), inputs, 0, Arithmetic::kTc256);
    const std::vector<std::int64_t> rows = {0};
    const std::vector<float> logits = tc256_logits(make_spec(p), inputs, rows);
    for (std::size_t e = 0; e < logits.size(); ++e) expect_inside(bounds, e, logits[e], p);
  }
}

// The contract is a sum on tensor cores, so it lies in the bounds of such sums too.
TEST(LogitBounds, OfAnyOrderHoldTheContract) {
  std::vector<Problem> all = problems();
  for (const std::int64_t hidden : {2, 3, 33}) {
    for (const Category category : {Category::kNormal, Category::kSubnormal, Category::kFloorRegion}) {
      for (const bool bias : {false, true}) all.push_back({category, hidden, true, bias});
    }
  }
  for (const Problem& p : all) {
    const RouterInputs inputs = make_inputs(p);
    const LogitBounds bounds = logit_bounds(make_spec(p), inputs, 0, Arithmetic::kFp32AnyOrder);
    const std::vector<std::int64_t> rows = {0};
    const std::vector<float> logits = tc256_logits(make_spec(p), inputs, rows);
    for (std::size_t e = 0; e < logits.size(); ++e) expect_inside(bounds, e, logits[e], p);
  }
}

// The logit of one expert, and whether it lies in the bounds of an arithmetic.
bool contains_contract(const RouterInputs& inputs, const Arithmetic& arithmetic) {
  const LogitBounds bounds = logit_bounds(RouterSpec{}, inputs, 0, arithmetic);
  const std::vector<std::int64_t> rows = {0};
  const auto logit = static_cast<double>(tc256_logits(RouterSpec{}, inputs, rows)[0]);
  return bounds.lower[0] <= logit && logit <= bounds.upper[0];
}

RouterInputs one_expert(std::int64_t hidden) {
  RouterInputs inputs;
  inputs.num_tokens = 1;
  inputs.hidden_size = hidden;
  inputs.gate_rows = 1;
  inputs.hidden_states.assign(static_cast<std::size_t>(hidden), 0);
  return inputs;
}

// Rows on which sums that round to nearest, of terms x w, do not go as far as the contract: a bound made for them alone
// (which fp32-depth has) refuses it.
TEST(LogitBounds, OfAnyOrderHoldWhatRoundingToNearestDoesNotReach) {
  // 1, and in each later step one product just below 2^-23, which is cut off: nearly 2^-23 a term, not 2^-24.
  RouterInputs sparse = one_expert(256);
  sparse.gate_weight_bf16.assign(256, 0x3f80);
  for (std::size_t k = 0; k < 256; k += 16) sparse.hidden_states[k] = k == 0 ? 0x3f80 : 0x33ff;
  EXPECT_TRUE(contains_contract(sparse, Arithmetic::kFp32AnyOrder));
  EXPECT_FALSE(contains_contract(sparse, {Arithmetic::kFp32Depth, 1000}));

  // One term with an fp32 weight: its three parts are added with two roundings.
  int outside = 0;
  for (std::uint32_t low = 1; low < 65536; low += 2) {
    RouterInputs parts = one_expert(1);
    parts.hidden_states = {0x3fff};
    parts.gate_weight_fp32 = {std::bit_cast<float>(0x3fff0000u + low)};
    EXPECT_TRUE(contains_contract(parts, Arithmetic::kFp32AnyOrder)) << low;
    outside += contains_contract(parts, {Arithmetic::kFp32Depth, 1000}) ? 0 : 1;
  }
  EXPECT_GT(outside, 0);

  // A subnormal operand has the exponent of the least normal one, so that what is beside it is cut higher up.
  RouterInputs subnormal = one_expert(2);
  subnormal.hidden_states = {0x0001, 0x3981};
  subnormal.gate_weight_bf16 = {0x7e80, 0x3f81};
  EXPECT_TRUE(contains_contract(subnormal, Arithmetic::kFp32AnyOrder));
  EXPECT_FALSE(contains_contract(subnormal, {Arithmetic::kFp32Depth, 1000}));

  // The last bits of a small fp32 weight are below the smallest bf16 number.
  RouterInputs small = one_expert(1);
  small.hidden_states = {0x7e80};
  small.gate_weight_fp32 = {std::bit_cast<float>(0x017fffffu)};
  EXPECT_TRUE(contains_contract(small, Arithmetic::kFp32AnyOrder));
  EXPECT_FALSE(contains_contract(small, {Arithmetic::kFp32Depth, 1000}));
}

TEST(LogitBounds, HoldFp32SumsInAnyOrder) {
  std::mt19937 random(2);
  for (const Problem& p : problems()) {
    const RouterInputs inputs = make_inputs(p);
    const LogitBounds bounds = logit_bounds(make_spec(p), inputs, 0, Arithmetic::kFp32AnyOrder);
    const LogitBounds rounded = logit_bounds(make_spec(p), inputs, 0, {Arithmetic::kFp32Depth, p.hidden + 1});
    for (std::int64_t e = 0; e < kExperts; ++e) {
      for (const float logit : fp32_logits(inputs, e, random)) {
        expect_inside(bounds, static_cast<std::size_t>(e), logit, p);
        expect_inside(rounded, static_cast<std::size_t>(e), logit, p);
      }
    }
  }
}

TEST(LogitBounds, HoldLogitsRoundedToBf16) {
  std::mt19937 random(3);
  for (const Problem& p : problems()) {
    const RouterInputs inputs = make_inputs(p);
    const LogitBounds bounds = logit_bounds(make_spec(p), inputs, 0, Arithmetic::kBf16Logits);
    RouterSpec bf16_spec = make_spec(p);
    bf16_spec.gate.logits_dtype = FloatType::kBf16;
    const LogitBounds by_spec = logit_bounds(bf16_spec, inputs, 0, Arithmetic::kFp32AnyOrder);
    EXPECT_EQ(bounds.lower, by_spec.lower);
    for (std::int64_t e = 0; e < kExperts; ++e) {
      for (const float logit : fp32_logits(inputs, e, random)) {
        expect_inside(bounds, static_cast<std::size_t>(e), round_to_bf16(logit), p);
      }
    }
  }
}

// A bound that anything satisfies would be useless: typical rows leave a radius far below the spread of logits, and a
// wrong arithmetic falls outside.
TEST(LogitBounds, AreTightEnoughToTellArithmeticsApart) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  RouterInputs inputs;
  inputs.num_tokens = 1;
  inputs.hidden_size = 4096;
  inputs.gate_rows = 8;
  for (int k = 0; k < 4096; ++k) inputs.hidden_states.push_back(fp32_to_bf16(normal(random)));
  for (int i = 0; i < 8 * 4096; ++i) inputs.gate_weight_bf16.push_back(fp32_to_bf16(normal(random) / 64));
  const LogitBounds tc256 = logit_bounds(RouterSpec{}, inputs, 0, Arithmetic::kTc256);
  const LogitBounds fp32 = logit_bounds(RouterSpec{}, inputs, 0, Arithmetic::kFp32AnyOrder);
  const LogitBounds bf16 = logit_bounds(RouterSpec{}, inputs, 0, Arithmetic::kBf16Logits);
  int outside = 0;
  for (std::size_t e = 0; e < 8; ++e) {
    EXPECT_LT(tc256.upper[e] - tc256.lower[e], 4e-4);
    // gamma(4096, 2^-23) * sum |x w| = 4.9e-4 * 41, twice
    EXPECT_LT(fp32.upper[e] - fp32.lower[e], 0.05);
    EXPECT_LT(bf16.upper[e] - bf16.lower[e], 0.08);
    const double rounded =
        static_cast<double>(round_to_bf16(static_cast<float>((tc256.lower[e] + tc256.upper[e]) / 2)));
    outside += rounded < tc256.lower[e] || rounded > tc256.upper[e] ? 1 : 0;
  }
  EXPECT_GT(outside, 4);
}

TEST(LogitBounds, AttainTheFirstRoundings) {
  // 1 + 2^-24 in fp32 is 1: the error is exactly the radius of one addition, so a bound without it would fail.
  RouterInputs inputs;
  inputs.num_tokens = 1;
  inputs.hidden_size = 2;
  inputs.gate_rows = 1;
  inputs.hidden_states = {0x3f80, 0x3380};
  inputs.gate_weight_bf16 = {0x3f80, 0x3f80};
  const LogitBounds bounds = logit_bounds(RouterSpec{}, inputs, 0, Arithmetic::kFp32AnyOrder);
  EXPECT_LE(bounds.lower[0], 1.0);
  EXPECT_GE(bounds.upper[0], 1 + 0x1p-24);
  EXPECT_LT(bounds.upper[0] - bounds.lower[0], 0x1p-20);
}

TEST(LogitBounds, CountEveryCutOfAStep) {
  // 1, and fifteen products of 1.99 * 2^-25: each loses 0.99 of that unit, and the sum 1 + 15 * 2^-25 loses three more
  // to 24 bits. 17.9 units in all; 16 units are what the alignment alone may lose.
  RouterInputs inputs;
  inputs.num_tokens = 1;
  inputs.hidden_size = 16;
  inputs.gate_rows = 1;
  inputs.hidden_states.assign(16, 0x3fff);
  inputs.gate_weight_bf16.assign(16, 0x3300);
  inputs.hidden_states[0] = inputs.gate_weight_bf16[0] = 0x3f80;
  const std::vector<std::int64_t> rows = {0};
  const float logit = tc256_logits(RouterSpec{}, inputs, rows)[0];
  EXPECT_EQ(logit, 1 + 3 * 0x1p-23f);
  const LogitBounds bounds = logit_bounds(RouterSpec{}, inputs, 0, Arithmetic::kTc256);
  EXPECT_LE(bounds.lower[0], static_cast<double>(logit));
}

TEST(LogitBounds, ClaimNothingAboutNonFiniteOperandsOrOverflow) {
  RouterInputs inputs;
  inputs.num_tokens = 1;
  inputs.hidden_size = 2;
  inputs.gate_rows = 3;
  inputs.hidden_states = {0x3f80, 0x7f00};
  inputs.gate_weight_bf16 = {0x7f80, 0, 0x3f80, 0x7f00, 0x3f80, 0};
  for (const Arithmetic arithmetic : {Arithmetic::kTc256, Arithmetic::kFp32AnyOrder, Arithmetic::kBf16Logits}) {
    const LogitBounds bounds = logit_bounds(RouterSpec{}, inputs, 0, arithmetic);
    EXPECT_GT(bounds.lower[0], bounds.upper[0]);  // Inf
    EXPECT_GT(bounds.lower[1], bounds.upper[1]);  // 2^254
    EXPECT_LE(bounds.lower[2], bounds.upper[2]);
  }
}

TEST(LogitBounds, TemperatureAndGivenLogits) {
  RouterInputs inputs;
  inputs.num_tokens = 1;
  inputs.hidden_size = 1;
  inputs.gate_rows = 1;
  inputs.hidden_states = {0x3f80};
  inputs.gate_weight_bf16 = {0x3f80};
  RouterSpec spec;
  spec.logits.temperature = 3.0;
  const LogitBounds bounds = logit_bounds(spec, inputs, 0, Arithmetic::kTc256);
  EXPECT_LE(bounds.lower[0], static_cast<double>(1.0f / 3.0f));
  EXPECT_GE(bounds.upper[0], static_cast<double>(1.0f / 3.0f));
  EXPECT_LT(bounds.upper[0] - bounds.lower[0], 1e-6);

  RouterInputs given;
  given.num_tokens = 1;
  given.gate_rows = 2;
  given.router_logits = {0.1f, INFINITY};
  const LogitBounds exact = logit_bounds(spec, given, 0, Arithmetic::kBf16Logits);
  EXPECT_EQ(exact.lower[0], static_cast<double>(0.1f));
  EXPECT_EQ(exact.upper[0], static_cast<double>(0.1f));
  EXPECT_GT(exact.lower[1], exact.upper[1]);
}

}  // namespace
}  // namespace samebits::oracle
