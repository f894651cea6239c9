#include "oracle/emulate/exact_sum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "oracle/reference/arithmetic.h"
#include "oracle/tensors/bf16.h"
#include "oracle/test/emulate_inputs.h"

namespace samebits::oracle {
namespace {

using test::bits_of;
using Int128 = __int128;

ExactSum sum_of(const std::vector<double>& values) {
  ExactSum sum;
  for (const double value : values) sum.add(value);
  return sum;
}

double to_bf16(const ExactSum& sum) {
  return ArithmeticOf<double>::round_to_bf16(sum.rounded_to_odd());
}

// Nearest integer of `bits` significant bits, ties to even.
Int128 round_to(Int128 value, int bits) {
  const bool negative = value < 0;
  Int128 magnitude = negative ? -value : value;
  int drop = 0;
  while ((magnitude >> drop) >> bits != 0) ++drop;
  if (drop > 0) {
    const Int128 half = Int128{1} << (drop - 1), low = magnitude & ((Int128{1} << drop) - 1);
    magnitude >>= drop;
    if (low > half || (low == half && (magnitude & 1) != 0)) ++magnitude;
    magnitude <<= drop;
  }
  return negative ? -magnitude : magnitude;
}

TEST(ExactSum, AgreesWithIntegersOf128Bits) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 20000; ++trial) {
    // Integers of 32 bits at places 0 .. 80 of a number that is scaled by 2^-60.
    ExactSum sum;
    Int128 reference = 0;
    const int terms = 1 + static_cast<int>(random() % 12);
    const int places = 1 + static_cast<int>(random() % 80);
    for (int i = 0; i < terms; ++i) {
      const auto integer = static_cast<std::int32_t>(random());
      const int place = static_cast<int>(random() % static_cast<unsigned>(places));
      sum.add(std::ldexp(static_cast<double>(integer), place - 60));
      reference += Int128{integer} << place;
    }
    ASSERT_EQ(std::ldexp(sum.rounded(), 60), static_cast<double>(round_to(reference, 53)));
    ASSERT_EQ(std::ldexp(to_bf16(sum), 60), static_cast<double>(round_to(reference, 8)));
    const Int128 rest = reference - round_to(reference, 53);
    ASSERT_EQ(sum.rest(), rest > 0 ? 1 : rest < 0 ? -1 : 0);
  }
}

TEST(ExactSum, ComparesAsIntegersDo) {
  std::mt19937_64 random(2);
  for (int trial = 0; trial < 20000; ++trial) {
    const auto a = static_cast<std::int32_t>(random() % 9) - 4, b = static_cast<std::int32_t>(random() % 9) - 4;
    ExactSum x = sum_of({std::ldexp(a, -130), 1.0, -1.0}), y = sum_of({std::ldexp(b, -130)});
    EXPECT_EQ(x <=> y, a <=> b);
    EXPECT_EQ(x == y, a == b);
  }
}

TEST(ExactSum, LosesNothingToCancellation) {
  // In double 2^53 + 1 is 2^53.
  EXPECT_EQ(sum_of({0x1p53, 1.0, -0x1p53}).rounded(), 1.0);
  EXPECT_EQ(sum_of({0x1p255, 0x1p-282, -0x1p255}).rounded(), 0x1p-282);
  EXPECT_EQ(sum_of({0x1p255, -0x1p255}).rounded(), 0.0);
  EXPECT_EQ(sum_of({-0x1p255, 0x1p255, -0x1p-282}).rest(), 0);
  std::vector<double> values;
  for (int i = 0; i < 1000; ++i) values.insert(values.end(), {0x1p24, std::ldexp(1.0, -i % 200), -0x1p24});
  const double forward = sum_of(values).rounded();
  std::reverse(values.begin(), values.end());
  EXPECT_EQ(sum_of(values).rounded(), forward);
  EXPECT_EQ(forward, sum_of({10.0, -5 * 0x1p-199}).rounded());
}

TEST(ExactSum, HoldsTheLeastAndTheLargestProducts) {
  // Largest bf16 times largest fp32, as often as no machine adds them, and the least subnormals.
  const double largest = 0x1.fep127 * static_cast<double>(std::numeric_limits<float>::max());
  ExactSum sum;
  for (int i = 0; i < 1 << 16; ++i) sum.add(largest);
  sum.add(-0x1p-133 * 0x1p-149);
  EXPECT_EQ(sum.rounded(), largest * 65536.0);
  EXPECT_EQ(sum.rest(), -1);
  for (int i = 0; i < 1 << 16; ++i) sum.add(-largest);
  EXPECT_EQ(sum.rounded(), -0x1p-282);
  EXPECT_EQ(sum.rest(), 0);
}

TEST(ExactSum, RoundsTiesToEven) {
  EXPECT_EQ(sum_of({0x1p53, 1.0}).rounded(), 0x1p53);
  EXPECT_EQ(sum_of({0x1p53, 1.0}).rest(), 1);
  EXPECT_EQ(sum_of({0x1p53, 2.0, 1.0}).rounded(), 0x1p53 + 4.0);
  EXPECT_EQ(sum_of({0x1p53, 2.0, 1.0}).rest(), -1);
  EXPECT_EQ(sum_of({0x1p53, 1.0, 0x1p-100}).rounded(), 0x1p53 + 2.0);
  // To bf16 once: 1 + 2^-8 is half-way, and what follows it is lost in double.
  EXPECT_EQ(to_bf16(sum_of({1.0, 0x1p-8})), 1.0);
  EXPECT_EQ(to_bf16(sum_of({1.0, 0x1p-8, 0x1p-100})), 1.0 + 0x1p-7);
  EXPECT_EQ(to_bf16(sum_of({1.0, 0x1p-8, -0x1p-100})), 1.0);
  EXPECT_EQ(to_bf16(sum_of({-1.0, -0x1p-8, -0x1p-100})), -1.0 - 0x1p-7);
  EXPECT_EQ(ArithmeticOf<double>::round_to_bf16(sum_of({1.0, 0x1p-8, 0x1p-100}).rounded()), 1.0)
      << "two roundings differ: the row above can fail";
  EXPECT_EQ(to_bf16(sum_of({0x1p-134, 0x1p-282})), 0x1p-133) << "above half of the least subnormal";
  EXPECT_EQ(to_bf16(sum_of({0x1p-134})), 0.0);
}

TEST(ExactSum, SumsProductsAndBias) {
  const std::vector<double> x = {3.0, 0x1p-133, -0x1p127}, w = {0.5, 0x1p-149, 0x1p100};
  EXPECT_EQ(exact_sum(x, w, 0x1p-149), sum_of({1.5, 0x1p-282, -0x1p227, 0x1p-149}));
}

TEST(ExactDot, RoundsOnce) {
  const auto dot = [](std::vector<float> x, std::vector<float> w) { return exact_dot(x, w); };
  EXPECT_EQ(bits_of({dot({}, {}), dot({-1.0f}, {0.0f}), dot({1, -1}, {1, 1})}), (std::vector{0u, 0u, 0u}));
  EXPECT_EQ(dot({0x1p100f, 1, -0x1p100f}, {0x1p100f, 3, 0x1p100f}), 3.0f);
  // Ties go to even, and a term far below decides them.
  EXPECT_EQ(dot({1, 1}, {1, 0x1p-24f}), 1.0f);
  EXPECT_EQ(dot({1, 1, 0x1p-100f}, {1, 0x1p-24f, 0x1p-100f}), 0x1.000002p+0f);
  EXPECT_EQ(dot({1, 1, -0x1p-100f}, {1, 0x1.8p-23f, 0x1p-100f}), 0x1.000002p+0f);
  EXPECT_EQ(dot({-1, -1, -0x1p-100f}, {1, 0x1p-24f, 0x1p-100f}), -0x1.000002p+0f);
  for (const float below : {0x1p-30f, 0x1p-60f, 0x1p-140f}) {  // 2^31 + 2^7 is a tie
    EXPECT_EQ(dot({0x1p31f, 0x1p7f, below}, {1, 1, 1}), 0x1.000002p+31f);
    EXPECT_EQ(dot({0x1p31f, 0x1p7f, below}, {1, 1, -1}), 0x1p31f);
  }
  // The ends of the range.
  EXPECT_EQ(dot({0x1p-133f, 0x1p-133f}, {0x1p-16f, 0x1p-16f}), 0x1p-148f);
  EXPECT_EQ(dot({0x1p-133f}, {0x1p-17f}), 0.0f);                             // half of the least: to even
  EXPECT_EQ(dot({0x1p-133f, 0x1p-133f}, {0x1p-17f, 0x1p-149f}), 0x1p-149f);  // and above the half
  EXPECT_EQ(dot({0x1p127f, 0x1p127f}, {1, 1}), INFINITY);
  EXPECT_EQ(dot({0x1p127f, 0x1p127f, -1}, {1, 1, 0x1p103f}), INFINITY);  // the largest tie: to even, and below it
  EXPECT_EQ(dot({0x1p127f, 0x1p127f, -1, -1}, {1, 1, 0x1p103f, 0x1p-149f}), 0x1.fffffep+127f);
  EXPECT_EQ(dot({INFINITY, 1}, {-1, 1}), -INFINITY);
}

TEST(ExactDot, EqualsDoubleWhereThatIsExact) {
  std::mt19937 random(9);
  for (int i = 0; i < 20000; ++i) {  // 16 products of 16 bits within 2^-16 of each other: 36 bits
    std::vector<float> x, w;
    double sum = 0;
    for (int k = 0; k < 16; ++k) {
      x.push_back(
          bf16_to_fp32(static_cast<std::uint16_t>(random() % 2 << 15 | (120 + random() % 8) << 7 | random() % 128)));
      w.push_back(
          bf16_to_fp32(static_cast<std::uint16_t>(random() % 2 << 15 | (120 + random() % 8) << 7 | random() % 128)));
      sum += static_cast<double>(x.back()) * static_cast<double>(w.back());
    }
    ASSERT_EQ(exact_dot(x, w), static_cast<float>(sum));
  }
}

}  // namespace
}  // namespace samebits::oracle
