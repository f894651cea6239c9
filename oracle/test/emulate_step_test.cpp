#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>

#include "oracle/emulate/tc256.h"
#include "oracle/test/emulate_categories.h"

namespace samebits::oracle {
namespace {

using test::Bits16;
using test::Category;

const StepParameters& parameters_of(std::string_view architecture) {
  for (const StepParameters& p : step_parameter_table()) {
    if (p.architecture == architecture) return p;
  }
  throw std::invalid_argument("no such architecture");
}

// The step of sm_90 on the given products, the rest zero.
std::uint32_t step90(std::uint32_t c, Bits16 a, Bits16 b) {
  a.resize(16, 0);
  b.resize(16, 0);
  return step(sm90(), c, a, b);
}

constexpr std::uint16_t kOne = 0x3f80, kTwo = 0x4000;

TEST(StepParameters, TableNamesMeasuredAndLiteratureValues) {
  EXPECT_TRUE(sm90().measured);
  EXPECT_EQ(sm90().products, 16);
  EXPECT_EQ(sm90().fraction_bits, 25);
  EXPECT_EQ(sm90().exponent_floor, -133);
  for (const StepParameters& p : step_parameter_table()) EXPECT_EQ(p.measured, &p == &sm90()) << p.architecture;
  EXPECT_EQ(parameters_of("sm_80").products, 8);
  EXPECT_EQ(parameters_of("sm_89").fraction_bits, 24);
  EXPECT_EQ(parameters_of("sm_70").products, 4);
  EXPECT_EQ(parameters_of("sm_120").fraction_bits, 25);
}

TEST(Step, SpecialOperandsDecideTheResult) {
  EXPECT_EQ(step90(0, {0x7fc1}, {kOne}), 0x7fffffffu);                       // NaN
  EXPECT_EQ(step90(0, {0xff81}, {0}), 0x7fffffffu);                          // payload and sign are lost
  EXPECT_EQ(step90(0xffc00000u, {kOne}, {kOne}), 0x7fffffffu);               // NaN accumulator
  EXPECT_EQ(step90(0, {0x7f80}, {0x8000}), 0x7fffffffu);                     // Inf * 0
  EXPECT_EQ(step90(0, {0x7f80, 0xff80}, {kOne, kOne}), 0x7fffffffu);         // Inf - Inf
  EXPECT_EQ(step90(0xff800000u, {0x7f80}, {kOne}), 0x7fffffffu);             // -Inf + Inf
  EXPECT_EQ(step90(0, {0x7f80}, {0xc000}), 0xff800000u);                     // Inf * -2
  EXPECT_EQ(step90(0x7f800000u, {kOne}, {kOne}), 0x7f800000u);               // Inf stays
  EXPECT_EQ(step90(0x7f7fffffu, {0x7f00}, {kOne}), 0x7f800000u);             // overflow is Inf, not FLT_MAX
  EXPECT_EQ(step90(0, {0x7f00, 0xff00, kOne}, {0x7f00, 0x7f00, kOne}), 0u);  // beyond range cancels; 1 is cut
}

TEST(Step, ZeroResultsArePositive) {
  EXPECT_EQ(step90(0x80000000u, {0x8000}, {kOne}), 0u);
  EXPECT_EQ(step90(0xbf800000u, {kOne}, {kOne}), 0u);
  EXPECT_EQ(step90(0, {0x8001}, {0x0001}), 0u);  // total underflow of a negative product
}

TEST(Step, AddendsAndResultAreCutTowardZero) {
  // 1 - 2^-25: the small term fits the aligned sum, and the result is cut to the fp32 below 1.
  EXPECT_EQ(step90(0x3f800000u, {0xb300}, {kOne}), 0x3f7fffffu);
  // 1 - 2^-26: the small term is one bit below the last kept bit and vanishes.
  EXPECT_EQ(step90(0x3f800000u, {0xb280}, {kOne}), 0x3f800000u);
  // Sixteen times 2^-26 vanish one by one, although together they are 2^-22.
  EXPECT_EQ(step90(0x3f800000u, Bits16(16, 0x3280), Bits16(16, kOne)), 0x3f800000u);
  // Sixteen times 2^-25 are kept: 1 + 2^-21.
  EXPECT_EQ(step90(0x3f800000u, Bits16(16, 0x3300), Bits16(16, kOne)), 0x3f800004u);
}

TEST(Step, ZeroProductsNeverRaiseTheExponent) {
  EXPECT_EQ(step90(1, {0}, {0x7f7f}), 1u);
  EXPECT_EQ(step90(0, {0x8000, 0x0001}, {0x7f7f, kTwo}), 0x00020000u);
}

TEST(Step, ExponentFloorIsMinus133) {
  // 2^-149 * 2^-9 scaled: products of exponent -158 are exactly the last unit of the floor, below they vanish.
  const std::uint16_t two_pow_minus_79 = (127 - 79) << 7;
  EXPECT_EQ(step90(0, Bits16(16, two_pow_minus_79), Bits16(16, (127 - 74) << 7)), 1u);  // 16 * 2^-153 = 2^-149
  EXPECT_EQ(step90(0, Bits16(16, two_pow_minus_79), Bits16(16, (127 - 75) << 7)), 0u);  // 16 * 2^-154
  // 15 * 2^-158 and the rest of 2^-149: kept bits sum to one unit. With 2^-159 all are cut.
  const Bits16 many(16, two_pow_minus_79);
  Bits16 with_rest(16, two_pow_minus_79);  // 2^-158 each
  with_rest[0] = (127 - 70) << 7;          // 2^-149
  EXPECT_EQ(step90(0, many, with_rest), 1u);
}

TEST(Step, SumOfSeventeenMaximalTermsHasRoom) {
  // 16 * (255/128)^2 = 63.50097656, and c = 4 - 2^-22: cut to 2^-17 below their sum.
  const Bits16 maximal(16, 0x3fff);
  EXPECT_EQ(step90(0x407fffffu, maximal, maximal), 0x4287007fu);
}

TEST(Step, ShortOperandsEqualZeroPadding) {
  EXPECT_EQ(step(sm90(), 0x3f800000u, Bits16{kOne}, Bits16{kTwo}), step90(0x3f800000u, {kOne}, {kTwo}));
  EXPECT_THROW(step(sm90(), 0, Bits16(17), Bits16(17)), std::invalid_argument);
  EXPECT_THROW(step(sm90(), 0, Bits16(3), Bits16(4)), std::invalid_argument);
}

TEST(Step, ArchitecturesDifferWhereTheirParametersDo) {
  // 1 + 2^-24 - 2^-24 style probes: one extra bit on sm_80, none on sm_70.
  const Bits16 a = {0xb300}, b = {kOne};  // -2^-25
  EXPECT_EQ(step(parameters_of("sm_90"), 0x3f800000u, a, b), 0x3f7fffffu);
  EXPECT_EQ(step(parameters_of("sm_80"), 0x3f800000u, a, b), 0x3f800000u);
  const Bits16 twice = {0xb380};  // -2^-24
  EXPECT_EQ(step(parameters_of("sm_80"), 0x3f800000u, twice, b), 0x3f7fffffu);
  EXPECT_EQ(step(parameters_of("sm_70"), 0x3f800000u, twice, b), 0x3f800000u);
}

class StepByCategory : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(All, StepByCategory, testing::Range(0, test::kNumCategories));

TEST_P(StepByCategory, OrderInsideABlockAndSwappedOperandsDoNotMatter) {
  const auto category = static_cast<Category>(GetParam());
  test::Operands operands(17);
  std::mt19937 shuffle(3);
  Bits16 a, b;
  for (int i = 0; i < 2000; ++i) {
    operands.fill(category, 16, a, b);
    const std::uint32_t c = operands.accumulator(category);
    const std::uint32_t expected = step(sm90(), c, a, b);
    EXPECT_EQ(step(sm90(), c, b, a), expected);
    std::vector<std::size_t> order = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    std::shuffle(order.begin(), order.end(), shuffle);
    Bits16 permuted_a, permuted_b;
    for (const std::size_t k : order) {
      permuted_a.push_back(a[k]);
      permuted_b.push_back(b[k]);
    }
    ASSERT_EQ(step(sm90(), c, permuted_a, permuted_b), expected);
  }
}

TEST_P(StepByCategory, ZeroBlocksAreNeutral) {
  const auto category = static_cast<Category>(GetParam());
  test::Operands operands(18);
  const Bits16 zeros(16, 0);
  for (int i = 0; i < 2000; ++i) {
    const std::uint32_t c = operands.accumulator(category);
    const bool nan = (c & 0x7fffffffu) > 0x7f800000u;
    ASSERT_EQ(step(sm90(), c, zeros, zeros), nan ? 0x7fffffffu : c == 0x80000000u ? 0u : c);
  }
}

TEST(Chain, IsAFoldOfSteps) {
  test::Operands operands(5);
  Bits16 a, b;
  operands.fill(Category::kNormal, 40, a, b);
  const std::span<const std::uint16_t> row(a), column(b);
  std::uint32_t c = 0;
  for (const std::size_t k : {0, 16}) c = step(sm90(), c, row.subspan(k, 16), column.subspan(k, 16));
  c = step(sm90(), c, row.subspan(32), column.subspan(32));
  EXPECT_EQ(chain(sm90(), 0, a, b), c);
  EXPECT_EQ(chain(sm90(), 0x3f800000u, {}, {}), 0x3f800000u);
}

}  // namespace
}  // namespace samebits::oracle
