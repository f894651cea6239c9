// Tensor-core steps and logits against a second implementation, on every SIMD target.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/common/bits.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/tensor_core_step.h"
#include "kernels/test/data_categories.h"
#include "kernels/test/simd_target.h"
#include "kernels/test/slow_step.h"

namespace samebits::cpu::test {
namespace {

std::vector<std::uint16_t> operands(Category category, int side, std::uint64_t first, std::int64_t rows,
                                    std::int64_t width) {
  std::vector<std::uint16_t> values;
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t k = 0; k < width; ++k)
      values.push_back(operand(category, side, first + static_cast<std::uint64_t>(r), k));
  }
  return values;
}

samebits_tensor tensor_of(void* data, std::int64_t rows, std::int64_t cols, std::int32_t dtype) {
  return {data, rows, cols, cols, dtype, 0};
}

std::vector<float> multiply(const GateWeight& weight, const std::vector<std::uint16_t>& rows) {
  const std::int64_t num_rows = static_cast<std::int64_t>(rows.size()) / weight.hidden_size();
  std::vector<float> out(static_cast<std::size_t>(num_rows * weight.gate_rows()));
  multiply_rows(weight, rows.data(), weight.hidden_size(), num_rows, 0, weight.hidden_size(), out.data(),
                weight.gate_rows());
  return out;
}

TEST(TensorCoreStep, EqualsTheSlowStepOnAllCategories) {
  for (int c = 0; c < kNumCategories; ++c) {
    const auto category = static_cast<Category>(c);
    for (std::uint64_t i = 0; i < 4000; ++i) {
      const auto a = operands(category, 0, i, 1, 16), b = operands(category, 1, i, 1, 16);
      const std::uint32_t start = accumulator(category, i);
      ASSERT_EQ(tensor_core_step(start, a.data(), 1, b.data(), 1), slow_step(start, a.data(), b.data()))
          << "category " << c << ", dot product " << i << ", accumulator " << std::hex << start;
    }
  }
}

TEST(TensorCoreStep, EveryCategoryReachesItsHazard) {
  int non_finite = 0, subnormal_results = 0, infinities = 0, cancelled = 0;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const auto result = [&](Category category) {
      const auto a = operands(category, 0, i, 1, 16), b = operands(category, 1, i, 1, 16);
      return from_bits(slow_step(accumulator(category, i), a.data(), b.data()));
    };
    non_finite += std::isnan(result(Category::kNonFinite));
    infinities += std::isinf(result(Category::kOverflow));
    subnormal_results += std::fpclassify(result(Category::kSubnormal)) == FP_SUBNORMAL;
    cancelled += result(Category::kUnderflow) == 0.0f;
  }
  EXPECT_GT(non_finite, 50);
  EXPECT_GT(infinities, 50);
  EXPECT_GT(subnormal_results, 50);
  EXPECT_GT(cancelled, 50);
}

struct KnownStep {
  const char* what;
  std::uint32_t c;
  std::vector<std::uint16_t> a, b;
  std::uint32_t result;
};

// Each by hand from one clause of the model.
const KnownStep kKnownSteps[] = {
    {"1 * 1", 0, {0x3f80}, {0x3f80}, 0x3f800000},
    {"negative zeros give +0", 0x80000000u, {0x8000}, {0x3f80}, 0},
    {"1 - 1 is +0", 0xbf800000u, {0x3f80}, {0x3f80}, 0},
    {"the last fraction bit of the adder, 2^-25, is kept",
     0,
     {0x3f80, 0xbf80, 0x3300},
     {0x3f80, 0x3f80, 0x3f80},
     0x33000000},
    {"2^-26 beside 1 is cut", 0, {0x3f80, 0xbf80, 0x3280}, {0x3f80, 0x3f80, 0x3f80}, 0},
    {"truncation, not rounding: 1 + 1.5 * 2^-24", 0x3f800000u, {0x33c0}, {0x3f80}, 0x3f800000},
    {"truncation toward zero: -1 - 1.5 * 2^-24", 0xbf800000u, {0xb3c0}, {0x3f80}, 0xbf800000},
    {"a zero with a huge partner does not hide 2^-30", 0, {0x0000, 0x3080}, {0x7f00, 0x3f80}, 0x30800000},
    {"NaN loses sign and payload", 0xffc12345u, {0}, {0}, 0x7fffffff},
    {"Inf * 0", 0, {0x7f80}, {0x0000}, 0x7fffffff},
    {"Inf - Inf", 0x7f800000u, {0xff80}, {0x3f80}, 0x7fffffff},
    {"-Inf", 0, {0xff80}, {0x3f80}, 0xff800000},
    {"2^127 * 2^127 - 2^127 * 2^127 + 0", 0, {0x7f00, 0xff00}, {0x7f00, 0x7f00}, 0},
    {"2^128 is Inf", 0, {0x7f00, 0x7f00}, {0x3f80, 0x3f80}, 0x7f800000},
    {"2^-149 is a result", 0, {0x0001, 0x0040}, {0x3f80, 0x0000}, 0x00010000},
    {"-2^-150 underflows to +0", 0, {0x9a00}, {0x1a00}, 0},
    {"2^-150 + ... + 2^-158 + 2^-158: the floor of emax keeps 2^-158",
     0,
     {0x1a00, 0x1980, 0x1900, 0x1880, 0x1800, 0x1780, 0x1700, 0x1680, 0x1600, 0x1600},
     std::vector<std::uint16_t>(16, 0x1a00),
     1},
    {"2^-150 + ... + 2^-158 + 2^-159 + 2^-159: it cuts 2^-159",
     0,
     {0x1a00, 0x1980, 0x1900, 0x1880, 0x1800, 0x1780, 0x1700, 0x1680, 0x1600, 0x1580, 0x1580},
     std::vector<std::uint16_t>(16, 0x1a00),
     0},
};

TEST(TensorCoreStep, KnownAnswers) {
  for (const KnownStep& known : kKnownSteps) {
    std::vector<std::uint16_t> a = known.a, b = known.b;
    a.resize(16), b.resize(16);
    EXPECT_EQ(tensor_core_step(known.c, a.data(), 1, b.data(), 1), known.result) << known.what;
    EXPECT_EQ(slow_step(known.c, a.data(), b.data()), known.result) << known.what;
  }
}

TEST(Logits, EqualTheSlowFormOnAllCategoriesAndTargets) {
  constexpr std::int64_t kRows = 3, kExperts = 37;  // a full tile and a partial one
  for (const std::int64_t hidden_size : {1, 15, 16, 50, 256, 300, 600}) {
    for (int c = 0; c < kNumCategories; ++c) {
      const auto category = static_cast<Category>(c);
      const auto rows = operands(category, 0, static_cast<std::uint64_t>(hidden_size), kRows, hidden_size);
      auto experts = operands(category, 1, static_cast<std::uint64_t>(hidden_size) + 99, kExperts, hidden_size);
      const GateWeight weight(tensor_of(experts.data(), kExperts, hidden_size, SAMEBITS_BF16));
      std::vector<float> expected;
      for (std::int64_t r = 0; r < kRows; ++r) {
        for (std::int64_t e = 0; e < kExperts; ++e) {
          expected.push_back(slow_logit(rows.data() + r * hidden_size, experts.data() + e * hidden_size, hidden_size));
        }
      }
      for (const std::int64_t target : simd_targets()) {
        const ForcedTarget forced(target);
        const std::vector<float> found = multiply(weight, rows);
        for (std::size_t i = 0; i < found.size(); ++i) {
          ASSERT_EQ(to_bits(found[i]), to_bits(expected[i]))
              << hwy::TargetName(target) << ", category " << c << ", H " << hidden_size << ", logit " << i;
        }
      }
    }
  }
}

// Sums at the end of int32, which the SIMD step uses: 16 largest products are 2130739200 units, c adds some more.
TEST(Logits, SumsAroundTwoToThe31Units) {
  struct Ending {
    std::vector<std::uint16_t> first_step;  // makes c, with weights of 1
    std::uint32_t logit;
  };
  const Ending endings[] = {
      {{0x3e80, 0x3e7f, 0xb300}, 0x427fffffu},  // c = 1/4 + 255/1024 - 2^-25: 2^31 - 1 units in all
      {{0x3e80, 0x3e7f}, 0x42800000u},          // 2^31
      {{0x3fff}, 0x4282fc80u},                  // more than 2^31
  };
  for (const Ending& ending : endings) {
    for (const std::uint16_t sign : {std::uint16_t{0}, std::uint16_t{0x8000}}) {
      std::vector<std::uint16_t> row(32, 0), expert(32, 0x3f80);
      std::copy(ending.first_step.begin(), ending.first_step.end(), row.begin());
      for (std::size_t k = 16; k < 32; ++k) row[k] = expert[k] = 0x3fff;
      for (std::uint16_t& x : row) x = static_cast<std::uint16_t>(x ^ sign);
      const GateWeight weight(tensor_of(expert.data(), 1, 32, SAMEBITS_BF16));
      const std::uint32_t expected = ending.logit | std::uint32_t{sign} << 16;
      EXPECT_EQ(to_bits(slow_logit(row.data(), expert.data(), 32)), expected);
      for (const std::int64_t target : simd_targets()) {
        const ForcedTarget forced(target);
        EXPECT_EQ(to_bits(multiply(weight, row)[0]), expected) << hwy::TargetName(target);
      }
    }
  }
}

TEST(Logits, AllTargetsOfThisCpuAreTested) {
  for (const std::int64_t target : simd_targets()) {
    const ForcedTarget forced(target);
    EXPECT_STREQ(simd_target_name(), hwy::TargetName(target));
  }
#if defined(__x86_64__)
  EXPECT_EQ(__builtin_cpu_supports("avx2") != 0, simd_targets().size() >= 2);
  EXPECT_EQ(__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"), simd_targets().size() >= 3);
#endif
}

// Three exact parts: a logit of one product and no rounding is the product.
TEST(Fp32Weight, PartsAddUpToTheWeight) {
  std::vector<float> experts = {1.0f + 0x1p-23f, -0x1.fffffep-3f, 0x1.234566p60f, 0x1.fffffep-90f, 0.1f};
  const GateWeight weight(tensor_of(experts.data(), 5, 1, SAMEBITS_FP32));
  const std::vector<float> found = multiply(weight, {0x3f80});
  for (std::size_t e = 0; e < experts.size(); ++e) EXPECT_EQ(to_bits(found[e]), to_bits(experts[e])) << e;
}

TEST(Fp32Weight, EqualsThreeSlowChainsPerChunk) {
  constexpr std::int64_t kRows = 2, kExperts = 5, kHidden = 700;
  const auto rows = normal_bf16(1, kRows * kHidden);
  std::vector<float> experts = normal_fp32(2, kExperts * kHidden, 0.05f);
  const GateWeight weight(tensor_of(experts.data(), kExperts, kHidden, SAMEBITS_FP32));
  for (const std::int64_t target : simd_targets()) {
    const ForcedTarget forced(target);
    const std::vector<float> found = multiply(weight, rows);
    for (std::int64_t r = 0; r < kRows; ++r) {
      for (std::int64_t e = 0; e < kExperts; ++e) {
        float sum = 0;
        for (std::int64_t k = 0; k < kHidden; k += 256) {
          const std::int64_t width = std::min<std::int64_t>(256, kHidden - k);
          std::vector<std::uint16_t> parts[3];
          for (std::int64_t i = 0; i < width; ++i) {
            float rest = experts[static_cast<std::size_t>(e * kHidden + k + i)];
            for (auto& part : parts) {
              part.push_back(upper_half(rest));
              rest -= from_bits(std::uint32_t{part.back()} << 16);
            }
          }
          float p[3];
          for (int i = 0; i < 3; ++i) p[i] = slow_logit(rows.data() + r * kHidden + k, parts[i].data(), width);
          const float chunk = (p[0] + p[1]) + p[2];
          sum = k == 0 ? chunk : sum + chunk;
        }
        EXPECT_EQ(to_bits(found[static_cast<std::size_t>(r * kExperts + e)]), to_bits(sum)) << r << ", " << e;
      }
    }
  }
}

// Every part runs, also where it is zero: Inf * 0 in the second chain.
TEST(Fp32Weight, InfiniteHiddenStateGivesNaN) {
  std::vector<float> fp32 = {1.0f};
  std::vector<std::uint16_t> bf16 = {0x3f80};
  EXPECT_EQ(to_bits(multiply(GateWeight(tensor_of(fp32.data(), 1, 1, SAMEBITS_FP32)), {0x7f80})[0]), kNaNBits);
  EXPECT_EQ(to_bits(multiply(GateWeight(tensor_of(bf16.data(), 1, 1, SAMEBITS_BF16)), {0x7f80})[0]), kInfBits);
}

TEST(Fp32Weight, NaNWithAPayloadInTheLowBitsStaysNaN) {
  std::vector<float> experts = {from_bits(0x7f800001u), from_bits(0xff800000u)};
  const std::vector<float> found = multiply(GateWeight(tensor_of(experts.data(), 2, 1, SAMEBITS_FP32)), {0x3f80});
  EXPECT_EQ(to_bits(found[0]), kNaNBits);
  EXPECT_EQ(to_bits(found[1]), kInfBits | kSignBit);
}

// Padding is +0 on both sides: it meets no Inf of a neighbour.
TEST(Logits, PaddingOfTheLastStepIsNeutral) {
  std::vector<std::uint16_t> experts = {0x3f80, 0x7f80};
  const std::vector<float> found = multiply(GateWeight(tensor_of(experts.data(), 2, 1, SAMEBITS_BF16)), {0x7f80});
  EXPECT_EQ(to_bits(found[0]), kInfBits);
  EXPECT_EQ(to_bits(found[1]), kInfBits);
}

}  // namespace
}  // namespace samebits::cpu::test
