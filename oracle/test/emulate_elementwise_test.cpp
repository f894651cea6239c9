#include "oracle/emulate/elementwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <random>
#include <stdexcept>
#include <string_view>
#include <thread>
#include <vector>

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
  std::uint64_t exhaustive;  // over all 2^32 inputs
  std::uint64_t strided;     // over every 255th input, 2^24 of them
};
constexpr std::uint64_t kStride = 255;
const Golden kGolden[] = {
    // Equal on an H200.
    {"exp", tc256::exp, 0xd93c1df4b1c04372u, 0x3d2a17424e13738du},
    {"sigmoid", tc256::sigmoid, 0xba4b8da61b443969u, 0x463e8c96d3a9ec9du},
    {"softplus", tc256::softplus, 0x7603eb5ffd76a2d4u, 0x79db0f0e0cf7ef61u},
    {"sqrt_softplus", tc256::sqrt_softplus, 0x3ab95435024e0534u, 0xb9215d45fb134b34u},
    // Host only.
    {"tanh", tc256::tanh, 0xa24a1493d568d3e4u, 0x38d5e6d116191900u},
    {"log", tc256::log, 0x7c195c434f30c997u, 0x9b4a9a9818273921u},
    {"log1p", tc256::log1p, 0xcd97ac654beed014u, 0x522a84d050ceaf3au},
    {"rsqrt", tc256::rsqrt, 0x3a9b07632dcdc910u, 0xc5053e0161af2aa2u},
};

TEST(Elementwise, StridedInputsHaveTheRecordedBits) {
  for (const Golden& g : kGolden) {
    EXPECT_EQ(total(g.function, 0, std::uint64_t{1} << 32, kStride), g.strided) << g.name;
  }
}

TEST(Elementwise, AllInputsHaveTheRecordedBits) {
  if (std::getenv("SAMEBITS_EXHAUSTIVE") == nullptr) GTEST_SKIP() << "set SAMEBITS_EXHAUSTIVE=1 (about 8 minutes)";
  for (const Golden& g : kGolden) {
    std::uint64_t halves[2];
    std::jthread lower([&] { halves[0] = total(g.function, 0, std::uint64_t{1} << 31, 1); });
    halves[1] = total(g.function, std::uint64_t{1} << 31, std::uint64_t{1} << 32, 1);
    lower.join();
    EXPECT_EQ(halves[0] + halves[1], g.exhaustive) << g.name;
  }
}

TEST(Elementwise, EveryInstructionSetGivesTheSameBits) {
  using elementwise::Functions;
  constexpr float (*Functions::*kMembers[])(float) = {
      &Functions::exp,  &Functions::sigmoid, &Functions::softplus, &Functions::sqrt_softplus,
      &Functions::tanh, &Functions::log,     &Functions::log1p,    &Functions::rsqrt};
  for (std::uint64_t x = 0; x < std::uint64_t{1} << 32; x += 65521) {
    const float v = std::bit_cast<float>(static_cast<std::uint32_t>(x));
    for (const auto member : kMembers) {
      for (const elementwise::Isa& isa : elementwise::available_isas()) {
        ASSERT_EQ(bits_of((isa.functions->*member)(v)), bits_of((elementwise::portable.*member)(v))) << isa.name;
      }
    }
  }
}

struct OfMany {
  const char* name;
  Function of_one;
  void (*elementwise::Functions::*member)(const float*, std::size_t, float*);
};
const OfMany kOfMany[] = {{"exp", tc256::exp, &elementwise::Functions::exp_all},
                          {"sigmoid", tc256::sigmoid, &elementwise::Functions::sigmoid_all},
                          {"sqrt_softplus", tc256::sqrt_softplus, &elementwise::Functions::sqrt_softplus_all}};

// total() of the same inputs, in rows of `width` values.
std::uint64_t total_in_rows(const elementwise::Functions& functions, const OfMany& f, std::size_t width,
                            std::uint64_t first, std::uint64_t last, std::uint64_t stride) {
  std::uint64_t sum = 0;
  std::vector<float> x(width), y(width);
  for (std::uint64_t next = first; next < last;) {
    std::size_t n = 0;
    for (; n < width && next < last; ++n, next += stride) x[n] = std::bit_cast<float>(static_cast<std::uint32_t>(next));
    (functions.*f.member)(x.data(), n, y.data());
    for (std::size_t i = 0; i < n; ++i) sum += mix(bits_of(x[i]), bits_of(y[i]));
  }
  return sum;
}

const Golden& golden(const char* name) {
  return *std::find_if(std::begin(kGolden), std::end(kGolden),
                       [&](const Golden& g) { return std::string_view(g.name) == name; });
}

// 67 is no multiple of a vector; its rows also end in every kind of remainder of one.
TEST(Elementwise, ARowOfInputsHasTheRecordedBits) {
  for (const elementwise::Isa& isa : elementwise::available_isas()) {
    for (const OfMany& f : kOfMany) {
      EXPECT_EQ(total_in_rows(*isa.functions, f, 67, 0, std::uint64_t{1} << 32, kStride), golden(f.name).strided)
          << f.name << " on " << isa.name;
    }
  }
}

TEST(Elementwise, ARowOfAllInputsHasTheRecordedBits) {
  if (std::getenv("SAMEBITS_EXHAUSTIVE") == nullptr) GTEST_SKIP() << "set SAMEBITS_EXHAUSTIVE=1 (about a minute)";
  const elementwise::Functions& fastest = *elementwise::available_isas().front().functions;
  for (const OfMany& f : kOfMany) {
    EXPECT_EQ(total_in_rows(fastest, f, 4096, 0, std::uint64_t{1} << 32, 1), golden(f.name).exhaustive) << f.name;
  }
}

TEST(Elementwise, ARowOfAnyLengthIsWrittenToItsEndAndNoFurther) {
  for (const elementwise::Isa& isa : elementwise::available_isas()) {
    for (const OfMany& f : kOfMany) {
      for (std::size_t n = 0; n <= 67; ++n) {
        std::vector<float> x(n + 1), y(n + 1, 1234.0f);
        for (std::size_t i = 0; i <= n; ++i) x[i] = 0.37f * static_cast<float>(i) - 11.0f;
        (isa.functions->*f.member)(x.data(), n, y.data());
        for (std::size_t i = 0; i < n; ++i) ASSERT_EQ(bits_of(y[i]), bits_of(f.of_one(x[i]))) << isa.name;
        ASSERT_EQ(y[n], 1234.0f) << f.name << " on " << isa.name;
      }
    }
  }
}

TEST(Elementwise, ARowNeedsRoomForItsResults) {
  const std::vector<float> x(3);
  std::vector<float> y(2);
  EXPECT_THROW(tc256::sigmoid(x, y), std::invalid_argument);
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

TEST(Elementwise, EdgesOfTanh) {
  EXPECT_EQ(tc256::tanh(INFINITY), 1.0f);
  EXPECT_EQ(tc256::tanh(-INFINITY), -1.0f);
  EXPECT_EQ(tc256::tanh(53.0f), 1.0f);
  EXPECT_EQ(tc256::tanh(-0x1.fffffep127f), -1.0f);
  for (const std::uint32_t unchanged : {0x00000000u, 0x80000000u, 0x00000001u, 0x807fffffu, 0x00800000u, 0xb9000000u}) {
    EXPECT_EQ(bits_of(tc256::tanh(std::bit_cast<float>(unchanged))), unchanged);  // to 2^-13: x - x^3 / 3 rounds to x
  }
  EXPECT_EQ(tc256::tanh(0.5f), 0x1.d9353ep-2f);  // 0.46211715726...
  EXPECT_EQ(tc256::tanh(-1.0f), -0x1.85efacp-1f);
}

TEST(Elementwise, EdgesOfLogarithms) {
  const float inf = INFINITY;
  for (const float zero : {0.0f, -0.0f}) EXPECT_EQ(tc256::log(zero), -inf);
  EXPECT_EQ(tc256::log(inf), inf);
  EXPECT_EQ(bits_of(tc256::log(1.0f)), 0u);
  EXPECT_EQ(tc256::log(2.0f), 0x1.62e430p-1f);
  EXPECT_EQ(tc256::log(std::bit_cast<float>(1u)), -0x1.9d1da0p+6f);           // -149 ln 2
  EXPECT_EQ(tc256::log(std::bit_cast<float>(0x007fffffu)), -0x1.5d58a0p+6f);  // the largest subnormal: -126 ln 2
  EXPECT_EQ(tc256::log(0x1.fffffep127f), 0x1.62e430p+6f);
  for (const float below : {-std::bit_cast<float>(1u), -1.0f, -inf}) {
    EXPECT_EQ(bits_of(tc256::log(below)), 0x7fffffffu);
  }
  EXPECT_EQ(tc256::log1p(-1.0f), -inf);
  EXPECT_EQ(tc256::log1p(inf), inf);
  EXPECT_EQ(tc256::log1p(1.0f), 0x1.62e430p-1f);
  EXPECT_EQ(tc256::log1p(-0x1.fffffep-1f), -0x1.0a2b24p+4f);  // log(2^-24)
  for (const float below : {-0x1.000002p+0f, -inf}) EXPECT_EQ(bits_of(tc256::log1p(below)), 0x7fffffffu);
  for (const std::uint32_t unchanged : {0x00000000u, 0x80000000u, 0x00000001u, 0x807fffffu, 0x32fffffeu, 0xb2fffffeu}) {
    EXPECT_EQ(bits_of(tc256::log1p(std::bit_cast<float>(unchanged))), unchanged);
  }
}

TEST(Elementwise, EdgesOfRsqrt) {
  EXPECT_EQ(tc256::rsqrt(0.0f), INFINITY);
  EXPECT_EQ(tc256::rsqrt(-0.0f), -INFINITY);
  EXPECT_EQ(bits_of(tc256::rsqrt(INFINITY)), 0u);
  EXPECT_EQ(tc256::rsqrt(4.0f), 0.5f);
  EXPECT_EQ(tc256::rsqrt(0x1p-148f), 0x1p74f);  // subnormal
  for (const float below : {-std::bit_cast<float>(1u), -4.0f, -INFINITY}) {
    EXPECT_EQ(bits_of(tc256::rsqrt(below)), 0x7fffffffu);
  }
}

// The bounds are the largest errors over all 2^32 inputs.
TEST(Elementwise, RandomInputsStayWithinTheLargestErrors) {
  struct Bound {
    Function function;
    double (*real)(double);
    double ulp;
  };
  const Bound bounds[] = {
      {tc256::tanh, [](double x) { return std::tanh(x); }, 0.6827},
      {tc256::log, [](double x) { return std::log(x); }, 0.5406},
      {tc256::log1p, [](double x) { return std::log1p(x); }, 0.8751},
      {tc256::rsqrt, [](double x) { return 1 / std::sqrt(x); }, 1.4904},
  };
  std::mt19937 random(20);
  for (int i = 0; i < 1 << 20; ++i) {
    const float x = std::bit_cast<float>(static_cast<std::uint32_t>(random()));
    for (const Bound& b : bounds) {
      const float got = b.function(x);
      const double want = b.real(static_cast<double>(x));
      if (std::isnan(want)) {
        ASSERT_EQ(bits_of(got), 0x7fffffffu) << x;
      } else if (std::isinf(want) || want == 0) {
        ASSERT_EQ(static_cast<double>(got), want) << x;
      } else {
        const double ulp = std::ldexp(1.0, std::max(std::ilogb(want), -126) - 23);
        ASSERT_LE(std::fabs(static_cast<double>(got) - want) / ulp, b.ulp) << x;
      }
    }
  }
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
