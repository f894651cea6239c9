// tanh, log, log1p and rsqrt against the text of the contract and against double, on every SIMD target.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kernels/common/bits.h"
#include "kernels/cpu/simd.h"
#include "kernels/test/contract_functions.h"
#include "kernels/test/random_bits.h"
#include "kernels/test/simd_target.h"

namespace samebits::cpu::test {
namespace {

struct Function {
  const char* name;
  Elementwise function;
  float (*contract)(float);
  double (*real)(double);
  double units;  // largest error that the form allows
};
const Function kFunctions[] = {
    {"tanh", Elementwise::kTanh, contract_tanh, std::tanh, 1.0},
    {"log", Elementwise::kLog, contract_log, std::log, 1.0},
    {"log1p", Elementwise::kLog1p, contract_log1p, std::log1p, 1.0},
    {"rsqrt", Elementwise::kRsqrt, contract_rsqrt, [](double x) { return 1 / std::sqrt(x); }, 1.5},
};

// 2^19 numbers of every exponent and sign, and 2^19 around the places where the functions change their form.
std::vector<float> inputs() {
  constexpr std::uint64_t kEach = 1 << 19;
  std::vector<float> x;
  for (std::uint64_t i = 0; i < kEach; ++i) x.push_back(from_bits(static_cast<std::uint32_t>(i * 8191)));
  const float places[] = {0.0f,      0.5f,     1.0f,        1.5f,        2.0f,  52.5f,   0x1p-25f,
                          0x1p-126f, 0x1p-24f, 0.70710677f, 1.41421354f, 44.0f, 0x1p24f, kContractInf};
  for (std::uint64_t i = 0; i < kEach; ++i) {
    const std::uint32_t sign = i % 2 == 0 ? 0 : kSignBit;
    const auto step = static_cast<std::uint32_t>(i / 2 / std::size(places));
    x.push_back(from_bits((to_bits(places[i / 2 % std::size(places)]) + step - 9000) ^ sign));
  }
  return x;
}

TEST(ElementwiseText, EveryTargetHasTheBitsOfTheContract) {
  const std::vector<float> x = inputs();
  std::vector<float> y(x.size());
  for (const Function& f : kFunctions) {
    std::vector<float> expected(x.size());
    for (std::size_t i = 0; i < x.size(); ++i) expected[i] = f.contract(x[i]);
    for (const std::int64_t target : simd_targets()) {
      const ForcedTarget forced(target);
      apply_elementwise(f.function, x.data(), static_cast<std::int64_t>(x.size()), y.data());
      for (std::size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(to_bits(y[i]), to_bits(expected[i]))
            << f.name << " of 0x" << std::hex << to_bits(x[i]) << " on " << hwy::TargetName(target);
      }
    }
  }
}

// In units of the last place. tanh, log and log1p carry their result in two parts and round their sum once: half a
// unit, and for the polynomials and the remainders less than another half. rsqrt rounds a root to half a unit, which is
// at most one unit of the quotient, and the quotient to another half. Double adds less than 2^-28 of a unit.
TEST(ElementwiseText, IsNearTheExactValue) {
  const std::vector<float> x = inputs();
  for (const Function& f : kFunctions) {
    for (const float v : x) {
      const double exact = f.real(v);
      const float found = f.contract(v);
      if (std::isnan(exact) || std::isinf(exact)) {
        ASSERT_TRUE(std::isnan(exact) ? std::isnan(found) : static_cast<double>(found) == exact)
            << f.name << " of " << v;
        continue;
      }
      const auto nearest = static_cast<float>(exact);
      const float unit = std::max(std::nextafterf(std::fabs(nearest), kContractInf) - std::fabs(nearest), 0x1p-149f);
      ASSERT_LE(std::fabs(static_cast<double>(found) - exact), f.units * static_cast<double>(unit))
          << f.name << " of " << v;
    }
  }
}

std::uint32_t bits_of(Elementwise function, float x) {
  return to_bits(apply_elementwise(function, x));
}

TEST(ElementwiseText, Limits) {
  const std::uint32_t minus_inf = kInfBits | kSignBit;
  EXPECT_EQ(bits_of(Elementwise::kTanh, -0.0f), kSignBit);
  EXPECT_EQ(bits_of(Elementwise::kTanh, kContractInf), to_bits(1.0f));
  EXPECT_EQ(bits_of(Elementwise::kTanh, -kContractInf), to_bits(-1.0f));
  EXPECT_EQ(bits_of(Elementwise::kLog, -0.0f), minus_inf);
  EXPECT_EQ(bits_of(Elementwise::kLog, 1.0f), 0u);
  EXPECT_EQ(bits_of(Elementwise::kLog, -0x1p-149f), kNaNBits);
  EXPECT_EQ(bits_of(Elementwise::kLog, kContractInf), kInfBits);
  EXPECT_EQ(bits_of(Elementwise::kLog1p, -1.0f), minus_inf);
  EXPECT_EQ(bits_of(Elementwise::kLog1p, -0.0f), kSignBit);
  EXPECT_EQ(bits_of(Elementwise::kLog1p, -1.5f), kNaNBits);
  EXPECT_EQ(bits_of(Elementwise::kLog1p, kContractInf), kInfBits);
  EXPECT_EQ(bits_of(Elementwise::kRsqrt, 0.0f), kInfBits);
  EXPECT_EQ(bits_of(Elementwise::kRsqrt, -0.0f), minus_inf);
  EXPECT_EQ(bits_of(Elementwise::kRsqrt, 4.0f), to_bits(0.5f));
  EXPECT_EQ(bits_of(Elementwise::kRsqrt, -4.0f), kNaNBits);
  EXPECT_EQ(bits_of(Elementwise::kRsqrt, kContractInf), 0u);
}

}  // namespace
}  // namespace samebits::cpu::test
