#include "oracle/emulate/elementwise.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <thread>

#include "oracle/emulate/tc256.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

namespace samebits::oracle {
namespace {

using Function = float (*)(float);

std::uint32_t bits_of(float x) {
  return std::bit_cast<std::uint32_t>(x);
}

// Mixes one input and its result; the sum over inputs does not depend on their order.
std::uint64_t mix(std::uint32_t x, std::uint32_t y) {
  std::uint64_t z = ((std::uint64_t{x} << 32) | y) + 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

std::uint64_t total(Function f, std::uint64_t first, std::uint64_t last, std::uint64_t stride) {
  std::uint64_t sum = 0;
  for (std::uint64_t x = first; x < last; x += stride) {
    const std::uint32_t bits = static_cast<std::uint32_t>(x);
    sum += mix(bits, bits_of(f(std::bit_cast<float>(bits))));
  }
  return sum;
}

struct Golden {
  const char* name;
  Function function;
  std::uint64_t exhaustive;  // over all 2^32 inputs, equal on an H200
  std::uint64_t strided;     // over every 1023rd input
};
constexpr std::uint64_t kStride = 1023;
const Golden kGolden[] = {
    {"exp", tc256::exp, 0xd93c1df4b1c04372u, 0xe6309b86c5be6ee7u},
    {"sigmoid", tc256::sigmoid, 0xba4b8da61b443969u, 0xe8d05790d1eea859u},
    {"softplus", tc256::softplus, 0x7603eb5ffd76a2d4u, 0xbd95fc85d5d622d6u},
    {"sqrt_softplus", tc256::sqrt_softplus, 0x3ab95435024e0534u, 0xcb377dafa507e95bu},
};

TEST(Elementwise, StridedInputsHaveTheRecordedBits) {
  for (const Golden& g : kGolden) {
    EXPECT_EQ(total(g.function, 0, std::uint64_t{1} << 32, kStride), g.strided) << g.name;
  }
}

TEST(Elementwise, AllInputsHaveTheRecordedBits) {
  if (std::getenv("SAMEBITS_EXHAUSTIVE") == nullptr) GTEST_SKIP() << "set SAMEBITS_EXHAUSTIVE=1 (about 4 minutes)";
  for (const Golden& g : kGolden) {
    std::uint64_t halves[2];
    std::jthread lower([&] { halves[0] = total(g.function, 0, std::uint64_t{1} << 31, 1); });
    halves[1] = total(g.function, std::uint64_t{1} << 31, std::uint64_t{1} << 32, 1);
    lower.join();
    EXPECT_EQ(halves[0] + halves[1], g.exhaustive) << g.name;
  }
}

TEST(Elementwise, LibraryAndHardwareFmaGiveTheSameBits) {
#if defined(__x86_64__)
  if (!__builtin_cpu_supports("fma")) GTEST_SKIP() << "this CPU has no FMA";
  for (std::uint64_t x = 0; x < std::uint64_t{1} << 32; x += 65521) {
    const float v = std::bit_cast<float>(static_cast<std::uint32_t>(x));
    ASSERT_EQ(bits_of(elementwise::portable.exp(v)), bits_of(elementwise::hardware_fma.exp(v)));
    ASSERT_EQ(bits_of(elementwise::portable.sigmoid(v)), bits_of(elementwise::hardware_fma.sigmoid(v)));
    ASSERT_EQ(bits_of(elementwise::portable.softplus(v)), bits_of(elementwise::hardware_fma.softplus(v)));
    ASSERT_EQ(bits_of(elementwise::portable.sqrt_softplus(v)), bits_of(elementwise::hardware_fma.sqrt_softplus(v)));
  }
#endif
}

TEST(Elementwise, EdgesOfEachFunction) {
  const float inf = INFINITY;
  for (const std::uint32_t nan : {0x7f800001u, 0x7fc00000u, 0xffffffffu}) {
    for (const Golden& g : kGolden) EXPECT_EQ(bits_of(g.function(std::bit_cast<float>(nan))), 0x7fffffffu) << g.name;
  }
  EXPECT_EQ(tc256::exp(0.0f), 1.0f);
  EXPECT_EQ(tc256::exp(-0.0f), 1.0f);
  EXPECT_EQ(tc256::exp(inf), inf);
  EXPECT_EQ(bits_of(tc256::exp(-inf)), 0u);
  EXPECT_EQ(tc256::exp(89.0f), inf);
  EXPECT_EQ(bits_of(tc256::exp(-103.0f)), 1u);
  EXPECT_EQ(tc256::sigmoid(0.0f), 0.5f);
  EXPECT_EQ(tc256::sigmoid(inf), 1.0f);
  EXPECT_EQ(bits_of(tc256::sigmoid(-inf)), 0u);
  EXPECT_EQ(tc256::sigmoid(17.5f), 1.0f);    // saturated: keys tie there
  EXPECT_GT(tc256::sigmoid(-100.0f), 0.0f);  // subnormal, not flushed
  EXPECT_EQ(tc256::softplus(inf), inf);
  EXPECT_EQ(tc256::softplus(30.0f), 30.0f);
  EXPECT_EQ(bits_of(tc256::softplus(-inf)), 0u);
  EXPECT_EQ(tc256::sqrt_softplus(inf), inf);
  EXPECT_EQ(bits_of(tc256::sqrt_softplus(-inf)), 0u);
  EXPECT_GT(tc256::sqrt_softplus(-150.0f), 0.0f);  // e^-75, although e^-150 underflows
}

// Largest errors found over all 2^32 inputs, in ulp of the result.
TEST(Elementwise, AreCloseToTheRealFunctions) {
  const auto softplus = [](double x) { return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))); };
  for (double x = -80; x < 80; x += 0.0137) {
    const float v = static_cast<float>(x);
    const double d = v;
    const auto ulp_error = [](float got, double want) {
      return std::fabs(static_cast<double>(got) - want) / std::ldexp(1.0, std::ilogb(want) - 23);
    };
    EXPECT_LE(ulp_error(tc256::exp(v), std::exp(d)), 0.6528);
    EXPECT_LE(ulp_error(tc256::sigmoid(v), d >= 0 ? 1 / (1 + std::exp(-d)) : std::exp(d) / (1 + std::exp(d))), 0.659);
    EXPECT_LE(ulp_error(tc256::softplus(v), softplus(d)), 0.7085);
    EXPECT_LE(ulp_error(tc256::sqrt_softplus(v), std::sqrt(softplus(d))), 0.9067);
  }
}

TEST(Sum32, LanesAreFoldedThenExchanged) {
  EXPECT_EQ(bits_of(tc256::sum32({})), 0u);
  EXPECT_EQ(tc256::sum32(std::vector<float>{2, 3, 5}), 10.0f);
  // Lane 0 adds 2^24, 1, 1 left to right and stays at 2^24; were the ones added first, 2^24 + 2 would come out.
  std::vector<float> values(65, 0.0f);
  values[0] = 0x1p24f;
  values[32] = values[64] = 1.0f;
  EXPECT_EQ(tc256::sum32(values), 0x1p24f);
  // Lanes 1 and 17 meet first (distance 16), so that 1 + 1 is kept.
  values.assign(32, 0.0f);
  values[0] = 0x1p24f;
  values[1] = values[17] = 1.0f;
  EXPECT_EQ(tc256::sum32(values), 0x1p24f + 2);
  // Lanes 0 and 16 meet first: 2^24 + 1 is cut, then + 1 of lane 1 again.
  values[17] = 0;
  values[16] = 1.0f;
  EXPECT_EQ(tc256::sum32(values), 0x1p24f);
  values[3] = std::bit_cast<float>(0xffc00000u);
  EXPECT_EQ(bits_of(tc256::sum32(values)), 0x7fffffffu);
}

TEST(SelfTest, PassesInThisBuild) {
  EXPECT_EQ(self_test(), "");
}

#if defined(__SSE__)
TEST(SelfTest, NamesAModeThatChangesBits) {
  const unsigned mode = _mm_getcsr();
  const struct {
    unsigned bit;
    const char* word;
  } modes[] = {{0x8000u, "FTZ"}, {0x0040u, "DAZ"}, {0x2000u, "nearest"}};
  for (const auto& m : modes) {
    _mm_setcsr(mode | m.bit);
    const std::string problem = self_test();
    _mm_setcsr(mode);
    EXPECT_NE(problem.find(m.word), std::string::npos) << problem;
  }
  EXPECT_EQ(self_test(), "");
}
#endif

}  // namespace
}  // namespace samebits::oracle
