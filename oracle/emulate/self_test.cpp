// Can this build, in this thread's floating-point mode, emulate the contract? Every check computes with values that the
// compiler cannot see, in this library's own flags.

#include <array>
#include <bit>
#include <cfloat>
#include <cstdio>

#include "oracle/emulate/fast_chain.h"
#include "oracle/emulate/fp32.h"
#include "oracle/emulate/gate_weight.h"
#include "oracle/emulate/tc256.h"
#include "oracle/tensors/bf16.h"

namespace samebits::oracle {
namespace {

float hidden_from_compiler(float x) {
  volatile float v = x;
  return v;
}

std::string check_arithmetic() {
  const float x = hidden_from_compiler(0x1.001p+0f);  // x * x = 1 + 2^-11 + 2^-24, the last bit is lost in fp32
  if (x * x - 0x1.002p+0f != 0.0f) {
    return "a * b + c is contracted to one rounding; build with -ffp-contract=off and without -ffast-math";
  }
  const float largest = hidden_from_compiler(FLT_MAX);
  const float back = hidden_from_compiler(largest * 2.0f) * 0.5f;
  if (back == largest || FLT_EVAL_METHOD != 0) {
    return "fp32 is evaluated in a wider type; on 32-bit x86 build with -msse2 -mfpmath=sse";
  }
  const float one = hidden_from_compiler(1.0f);
  if (one + 0x1p-24f != 1.0f || one + 0x1.8p-24f != 0x1.000002p+0f || -one - 0x1.8p-24f != -0x1.000002p+0f ||
      one + 0x1.000002p-24f == one) {
    return "fp32 does not round to nearest even; restore the mode with fesetround(FE_TONEAREST)";
  }
  return {};
}

std::string check_subnormals() {
  const float least_normal = hidden_from_compiler(FLT_MIN);
  if (std::bit_cast<std::uint32_t>(hidden_from_compiler(least_normal * 0.5f)) != 0x00400000u) {
    return "subnormal results are flushed to zero (FTZ); some library set it, often one linked with -ffast-math";
  }
  const float subnormal = hidden_from_compiler(std::bit_cast<float>(0x00000001u));
  if (subnormal * 0x1p+30f != 0x1p-119f) {
    return "subnormal operands are read as zero (DAZ); some library set it, often one linked with -ffast-math";
  }
#if defined(__SSE__)
  constexpr unsigned kFlushToZero = 1u << 15, kDenormalsAreZero = 1u << 6, kRounding = 3u << 13;
  const unsigned mxcsr = __builtin_ia32_stmxcsr();
  if ((mxcsr & (kFlushToZero | kDenormalsAreZero | kRounding)) != 0) {
    char text[96];
    std::snprintf(text, sizeof text, "MXCSR is 0x%04x; FTZ (0x8000), DAZ (0x0040) and rounding (0x6000) must be clear",
                  mxcsr);
    return text;
  }
#endif
  return {};
}

// Known bits of a step: floor of emax, a zero beside a huge partner, NaN, truncation toward zero.
std::string check_step() {
  struct Vector {
    std::uint32_t c;
    std::uint16_t a, b;
    std::uint32_t expected;
  };
  constexpr Vector kVectors[] = {
      {0x00000000u, 0x3f80u, 0x3f80u, 0x3f800000u},  // 1 * 1
      {0x00000001u, 0x0000u, 0x7f7fu, 0x00000001u},  // a zero product has no exponent
      {0x80000000u, 0x0000u, 0x3f80u, 0x00000000u},  // -0 + 0 is +0
      {0x00000000u, 0x7f80u, 0x0000u, 0x7fffffffu},  // Inf * 0
      {0x3f800000u, 0xb300u, 0x3f80u, 0x3f7fffffu},  // 1 - 2^-25 toward zero
      {0x3f800000u, 0x3300u, 0x3f80u, 0x3f800000u},  // 1 + 2^-25 toward zero
      {0x7f7fffffu, 0x7f00u, 0x3f80u, 0x7f800000u},  // overflow is Inf
  };
  for (const Vector& v : kVectors) {
    const std::array a{v.a}, b{v.b};
    if (step(sm90(), v.c, a, b) != v.expected) return "the emulated tensor-core step gives wrong bits";
  }
  return {};
}

std::string check_fast_chain() {
  constexpr int kSteps = 16, kProducts = 16 * kSteps;
  std::vector<std::uint16_t> bits(kProducts * (fast_chain::kColumns + 1));
  std::uint32_t state = 1;
  for (std::uint16_t& b : bits) {
    state = state * 1664525u + 1013904223u;  // exponents within 2^-8 .. 2^7, any sign and significand
    b = static_cast<std::uint16_t>(((state >> 16) & 0x87ffu) + (119u << 7));
  }
  std::vector<float> values;
  std::vector<std::int16_t> exponents;
  for (const std::uint16_t b : bits) {
    values.push_back(bf16_to_fp32(b));
    exponents.push_back(chain_exponent(b));
  }
  float result[fast_chain::kColumns];
  const std::uint32_t invalid = fast_chain::selected()(
      {values.data(), exponents.data(), values.data() + kProducts, exponents.data() + kProducts, kSteps}, result);
  for (int n = 0; n < fast_chain::kColumns; ++n) {
    std::vector<std::uint16_t> column;
    for (int k = 0; k < kProducts; ++k) column.push_back(bits[static_cast<std::size_t>(kProducts + k * 32 + n)]);
    const std::uint32_t expected = chain(sm90(), 0, std::span(bits).first(kProducts), column);
    if ((invalid >> n & 1u) == 0 && std::bit_cast<std::uint32_t>(result[n]) != expected) {
      return "the vector form of the chain differs from its definition";
    }
  }
  return {};
}

std::string check_functions() {
  const auto differs = [](float value, std::uint32_t bits) { return std::bit_cast<std::uint32_t>(value) != bits; };
  if (differs(tc256::exp(hidden_from_compiler(1.0f)), 0x402df854u) ||
      differs(tc256::exp(hidden_from_compiler(-100.0f)), 0x0000001bu) ||
      differs(tc256::sigmoid(hidden_from_compiler(0.0f)), 0x3f000000u) ||
      differs(tc256::softplus(hidden_from_compiler(0.0f)), 0x3f317218u) ||
      differs(tc256::tanh(hidden_from_compiler(-1.0f)), 0xbf42f7d6u) ||
      differs(tc256::log(hidden_from_compiler(0x1p-149f)), 0xc2ce8ed0u) ||
      differs(tc256::log1p(hidden_from_compiler(-0x1.fffffep-1f)), 0xc1851592u) ||
      differs(tc256::rsqrt(hidden_from_compiler(0x1p-148f)), 0x64800000u)) {
    return "an elementwise function gives wrong bits";
  }
  return {};
}

}  // namespace

std::string self_test() {
  for (const auto check : {check_arithmetic, check_subnormals, check_step, check_fast_chain, check_functions}) {
    if (std::string problem = check(); !problem.empty()) return "this build cannot emulate tc256: " + problem;
  }
  return {};
}

}  // namespace samebits::oracle
