// Elementwise functions: recorded hashes of their bits, on every SIMD target.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <vector>

#include "kernels/common/bits.h"
#include "kernels/cpu/simd.h"
#include "kernels/test/random_bits.h"
#include "kernels/test/simd_target.h"

namespace samebits::cpu::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr std::uint64_t kStride = 4099;  // prime: every exponent and many fractions

// Sums over inputs of a hash of (input bits, output bits). `all`: over the 2^32 inputs, for the first four equal to the
// total measured on an H200, for the others recorded with this code; `strided`: over every 4099th of them, recorded
// with this code when `all` was met.
struct Recorded {
  Elementwise function;
  const char* name;
  std::uint64_t all, strided;
};
constexpr Recorded kRecorded[] = {
    {Elementwise::kExp, "exp", 0xd93c1df4b1c04372u, 0x212bec72f2891882u},
    {Elementwise::kSigmoid, "sigmoid", 0xba4b8da61b443969u, 0xf98f58b4edb17ad2u},
    {Elementwise::kSoftplus, "softplus", 0x7603eb5ffd76a2d4u, 0x99ed874dbf5e2cf4u},
    {Elementwise::kSqrtSoftplus, "sqrt_softplus", 0x3ab95435024e0534u, 0x37d1257d88bdc6a4u},
    {Elementwise::kTanh, "tanh", 0xa24a1493d568d3e4u, 0x2ff34223fc8a1a47u},
    {Elementwise::kLog, "log", 0x7c195c434f30c997u, 0x0b3b6e6ba5583b27u},
    {Elementwise::kLog1p, "log1p", 0xcd97ac654beed014u, 0x2c1da9b0a9dad3b8u},
    {Elementwise::kRsqrt, "rsqrt", 0x3a9b07632dcdc910u, 0x23dba56c0768bed0u},
};

std::uint64_t hash_of(Elementwise function, std::uint64_t stride) {
  constexpr std::size_t kBatch = 1 << 14;
  std::uint64_t sum = 0;
  std::vector<float> x, y(kBatch);
  const auto flush = [&] {
    apply_elementwise(function, x.data(), static_cast<std::int64_t>(x.size()), y.data());
    for (std::size_t i = 0; i < x.size(); ++i) sum += mix(std::uint64_t{to_bits(x[i])} << 32 | to_bits(y[i]));
    x.clear();
  };
  for (std::uint64_t bits = 0; bits < std::uint64_t{1} << 32; bits += stride) {
    x.push_back(from_bits(static_cast<std::uint32_t>(bits)));
    if (x.size() == kBatch) flush();
  }
  flush();
  return sum;
}

TEST(Elementwise, RecordedBitsOfEvery4099thInputOnEveryTarget) {
  for (const std::int64_t target : simd_targets()) {
    const ForcedTarget forced(target);
    for (const Recorded& r : kRecorded) {
      EXPECT_EQ(hash_of(r.function, kStride), r.strided) << r.name << " on " << hwy::TargetName(target);
    }
  }
}

TEST(Elementwise, RecordedBitsOfAllInputs) {
  if (std::getenv("SAMEBITS_EXHAUSTIVE") == nullptr) GTEST_SKIP() << "minutes; set SAMEBITS_EXHAUSTIVE=1 to run it";
  for (const Recorded& r : kRecorded) EXPECT_EQ(hash_of(r.function, 1), r.all) << r.name;
}

std::uint32_t bits_of(Elementwise function, float x) {
  return to_bits(apply_elementwise(function, x));
}

TEST(Elementwise, Limits) {
  const float one = 1.0f, half = 0.5f;
  EXPECT_EQ(bits_of(Elementwise::kExp, 0.0f), to_bits(one));
  EXPECT_EQ(bits_of(Elementwise::kExp, -kInf), 0u);
  EXPECT_EQ(bits_of(Elementwise::kExp, kInf), kInfBits);
  EXPECT_EQ(bits_of(Elementwise::kSigmoid, -0.0f), to_bits(half));
  EXPECT_EQ(bits_of(Elementwise::kSigmoid, kInf), to_bits(one));
  EXPECT_EQ(bits_of(Elementwise::kSigmoid, -kInf), 0u);
  EXPECT_EQ(bits_of(Elementwise::kSqrtSoftplus, kInf), kInfBits);
  EXPECT_EQ(bits_of(Elementwise::kSqrtSoftplus, -kInf), 0u);
  for (const Recorded& r : kRecorded) EXPECT_EQ(bits_of(r.function, from_bits(0xff800001u)), kNaNBits) << r.name;
}

std::vector<float> softmax_of(const std::vector<float>& x) {
  std::vector<float> y(x.size());
  softmax(x.data(), static_cast<std::int64_t>(x.size()), y.data());
  return y;
}

TEST(Softmax, SpecialRows) {
  const float nan = from_bits(kNaNBits);
  EXPECT_EQ(softmax_of({1.0f, 1.0f}), (std::vector<float>{0.5f, 0.5f}));
  EXPECT_EQ(softmax_of({kInf, 0.0f, kInf}), (std::vector<float>{0.5f, 0.0f, 0.5f}));
  EXPECT_EQ(softmax_of({-kInf, -kInf}), (std::vector<float>{0.0f, 0.0f}));
  const std::vector<float> with_nan = softmax_of({2.0f, nan, 2.0f});
  EXPECT_EQ(with_nan[0], 0.5f);
  EXPECT_EQ(to_bits(with_nan[1]), kNaNBits);
  EXPECT_EQ(with_nan[2], 0.5f);
}

TEST(Softmax, SumIsThatOfAWarp) {
  std::vector<float> x = normal_fp32(7, 300, 3.0f), e(x.size()), expected(x.size());
  const float largest = *std::max_element(x.begin(), x.end());
  for (float& v : x) v -= largest;  // the largest is 0 now, so that exponentials follow from x itself
  apply_elementwise(Elementwise::kExp, x.data(), 300, e.data());
  std::vector<float> lanes(32);
  for (std::size_t i = 0; i < 300; ++i) lanes[i % 32] = i < 32 ? e[i] : lanes[i % 32] + e[i];
  for (const std::size_t distance : {16, 8, 4, 2, 1}) {
    std::vector<float> next(32);
    for (std::size_t l = 0; l < 32; ++l) next[l] = lanes[l] + lanes[l ^ distance];
    lanes = next;
  }
  const std::vector<float> y = softmax_of(x);
  float sequential = 0;
  for (std::size_t i = 0; i < 300; ++i) {
    EXPECT_EQ(to_bits(y[i]), to_bits(e[i] / lanes[31])) << i;
    sequential += e[i];
  }
  EXPECT_NE(sequential, lanes[0]) << "the data do not tell the orders apart";
}

TEST(Arithmetic, IsNeitherContractedNorSplit) {
  for (const std::int64_t target : simd_targets()) {
    const ForcedTarget forced(target);
    EXPECT_TRUE(arithmetic_is_right()) << hwy::TargetName(target);
  }
}

}  // namespace
}  // namespace samebits::cpu::test
