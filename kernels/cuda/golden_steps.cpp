#include <initializer_list>

#include "kernels/cuda/self_test.h"

namespace samebits::cuda {
namespace {

// bf16 bits of (significand / 128) * 2^exponent, significand in 128 .. 255, with its sign.
constexpr std::uint16_t bf16(int significand, int exponent) {
  const int magnitude = significand < 0 ? -significand : significand;
  return static_cast<std::uint16_t>((significand < 0 ? 0x8000 : 0) | ((exponent + 127) << 7) | (magnitude - 128));
}
constexpr std::uint16_t power(int exponent) {
  return bf16(128, exponent);
}
constexpr std::uint16_t minus(std::uint16_t x) {
  return static_cast<std::uint16_t>(x ^ 0x8000);
}
constexpr std::uint16_t kZero = 0, kInf = 0x7f80, kNaN = 0x7fc1, kSubnormal = 0x0001;  // 2^-133
constexpr std::uint32_t kNaNBits = 0x7fffffff, kInfBits = 0x7f800000;
constexpr std::uint32_t k2To24 = 0x4b800000, k2To25 = 0x4c000000, kOne = 0x3f800000;

struct Product {
  std::uint16_t a, b;
};

// The products stand in the first places, or are repeated over all 16 where there is only one.
GoldenStep step(const char* name, std::uint16_t accumulator, std::initializer_list<Product> products,
                std::uint32_t expected) {
  GoldenStep golden{name, {}, {}, accumulator, expected};
  for (std::size_t i = 0; i < 16; ++i) {
    const std::size_t from = products.size() == 1 ? 0 : i;
    if (from >= products.size()) continue;
    golden.a[i] = products.begin()[from].a;
    golden.b[i] = products.begin()[from].b;
  }
  return golden;
}

}  // namespace

const std::vector<GoldenStep>& golden_steps() {
  static const std::vector<GoldenStep> kSteps = {
      step("sixteen ones", kZero, {{power(0), power(0)}}, 0x41800000),
      // 1.5 beside 2^25 is cut to 1.
      step("terms are cut", power(25), {{bf16(192, 0), power(0)}}, k2To25 + 4),
      step("terms are cut toward zero", power(25), {{bf16(-192, 0), power(0)}}, k2To25 - 8),
      step("the sum is cut", power(24), {{bf16(192, 1), power(0)}, {kZero, kZero}}, k2To24 + 1),
      step("the sum is cut toward zero", minus(power(24)), {{bf16(-192, 1), power(0)}, {kZero, kZero}},
           (k2To24 | 0x80000000u) + 1),
      step("25 bits below the largest", kZero,
           {{power(0), power(0)}, {minus(power(0)), power(0)}, {power(-12), power(-13)}}, 0x33000000),
      step("26 bits below the largest", kZero,
           {{power(0), power(0)}, {minus(power(0)), power(0)}, {power(-13), power(-13)}}, 0),
      step("a lost one", kZero, {{power(15), power(15)}, {minus(power(15)), power(15)}, {power(0), power(0)}}, 0),
      // 1.5 * 1.5 has exponent 0.
      step("products are not normalised", kZero,
           {{bf16(192, 12), bf16(192, 12)}, {bf16(-192, 12), bf16(192, 12)}, {power(-1), power(0)}}, 0x3f000000),
      step("a zero beside a huge value", power(0), {{kZero, power(127)}, {power(-10), power(-10)}}, kOne + 8),
      step("the floor of the exponent", kZero, {{bf16(216, -80), bf16(152, -71)}, {bf16(224, -80), bf16(146, -71)}}, 0),
      step("a subnormal result", kZero, {{power(-75), power(-75)}}, 8),
      step("exponent of a subnormal", kZero,
           {{kSubnormal, power(120)}, {minus(kSubnormal), power(120)}, {power(-16), power(-16)}}, 0),
      step("negative zeros", minus(kZero), {{minus(kZero), power(0)}}, 0),
      step("overflow", kZero, {{power(127), power(0)}, {power(127), power(0)}}, kInfBits),
      step("one infinity", power(0), {{kInf, power(0)}, {power(0), power(0)}}, kInfBits),
      step("both infinities", kInf, {{minus(kInf), power(0)}, {power(0), power(0)}}, kNaNBits),
      step("infinity times zero", power(0), {{kInf, kZero}, {power(0), power(0)}}, kNaNBits),
      step("a NaN operand", power(0), {{kNaN, power(0)}, {power(0), power(0)}}, kNaNBits),
      step("a NaN accumulator", kNaN, {{power(0), power(0)}}, kNaNBits),
  };
  return kSteps;
}

}  // namespace samebits::cuda
