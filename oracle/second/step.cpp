#include "oracle/second/step.h"

#include <gmp.h>

#include <algorithm>
#include <array>
#include <bit>
#include <limits>

#include "oracle/second/real.h"

namespace samebits::second {
namespace {

constexpr long kFractionBits = 25;
constexpr long kLeastExponent = -133;

// (-1)^negative * significand * 2^(exponent - fraction)
struct Operand {
  bool negative;
  bool infinite;
  bool nan;
  unsigned long significand;
  long exponent;  // that of a normal number's leading bit; -126 for a subnormal one
};

// A bf16 or fp32 number: `fraction` bits below the leading one, and an exponent of 8 bits.
Operand decode(std::uint32_t bits, int fraction) {
  const std::uint32_t field = (bits >> fraction) & 0xffu;
  const std::uint32_t tail = bits & ((1u << fraction) - 1);
  Operand operand{};
  operand.negative = ((bits >> (fraction + 8)) & 1u) != 0;
  operand.nan = field == 0xffu && tail != 0;
  operand.infinite = field == 0xffu && tail == 0;
  operand.significand = field == 0 ? tail : tail | (1u << fraction);
  operand.exponent = field == 0 ? -126 : static_cast<long>(field) - 127;
  return operand;
}

// A term of the sum: (-1)^negative * significand * 2^last_bit, with the exponent that alignment looks at.
struct Term {
  bool negative;
  unsigned long significand;
  long exponent;
  long last_bit;
};

struct Integers {
  mpz_t sum, term;
  Integers() { mpz_inits(sum, term, nullptr); }
  Integers(const Integers&) = delete;
  Integers& operator=(const Integers&) = delete;
  ~Integers() { mpz_clears(sum, term, nullptr); }
};

// sum * 2^last_bit, cut toward zero to 24 bits and to a multiple of 2^-149; from 2^128 on infinite.
float cut_to_fp32(mpz_srcptr sum, long last_bit) {
  if (mpz_sgn(sum) == 0) return 0.0f;
  thread_local Real result(24);
  mpfr_ptr value = result;
  mpfr_set_z_2exp(value, sum, last_bit, MPFR_RNDZ);
  if (mpfr_get_exp(value) > 128) {
    return mpz_sgn(sum) < 0 ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity();
  }
  const mpfr_exp_t least = mpfr_get_emin();
  mpfr_set_emin(-148);
  // Cutting twice toward zero is cutting once.
  const int inexact = mpfr_check_range(value, 0, MPFR_RNDZ);
  mpfr_subnormalize(value, inexact, MPFR_RNDZ);
  mpfr_set_emin(least);
  const float cut = mpfr_get_flt(value, MPFR_RNDZ);
  return cut == 0 ? 0.0f : cut;
}

}  // namespace

float step(float c, std::span<const std::uint16_t> a, std::span<const std::uint16_t> b) {
  const float nan = std::bit_cast<float>(0x7fffffffu);
  std::array<Term, kStepProducts + 1> terms{};
  std::size_t count = 0;
  bool positive_infinity = false;
  bool negative_infinity = false;
  const auto take_infinity = [&](bool negative) { (negative ? negative_infinity : positive_infinity) = true; };

  for (std::size_t i = 0; i < a.size(); ++i) {
    const Operand x = decode(a[i], 7);
    const Operand y = decode(b[i], 7);
    if (x.nan || y.nan) return nan;
    if (x.infinite || y.infinite) {
      if ((!x.infinite && x.significand == 0) || (!y.infinite && y.significand == 0)) return nan;
      take_infinity(x.negative != y.negative);
      continue;
    }
    if (x.significand == 0 || y.significand == 0) continue;
    const long exponent = x.exponent + y.exponent;
    terms[count++] = {x.negative != y.negative, x.significand * y.significand, exponent, exponent - 14};
  }
  const Operand accumulator = decode(std::bit_cast<std::uint32_t>(c), 23);
  if (accumulator.nan) return nan;
  if (accumulator.infinite) take_infinity(accumulator.negative);
  if (positive_infinity && negative_infinity) return nan;
  if (positive_infinity) return std::numeric_limits<float>::infinity();
  if (negative_infinity) return -std::numeric_limits<float>::infinity();
  if (accumulator.significand != 0) {
    terms[count++] = {accumulator.negative, accumulator.significand, accumulator.exponent, accumulator.exponent - 23};
  }

  long greatest = kLeastExponent;
  for (std::size_t i = 0; i < count; ++i) greatest = std::max(greatest, terms[i].exponent);
  const long unit = greatest - kFractionBits;
  thread_local Integers integers;
  mpz_set_ui(integers.sum, 0);
  for (std::size_t i = 0; i < count; ++i) {
    mpz_set_ui(integers.term, terms[i].significand);
    const long shift = terms[i].last_bit - unit;
    if (shift >= 0) {
      mpz_mul_2exp(integers.term, integers.term, static_cast<mp_bitcnt_t>(shift));
    } else {
      mpz_tdiv_q_2exp(integers.term, integers.term, static_cast<mp_bitcnt_t>(-shift));
    }
    (terms[i].negative ? mpz_sub : mpz_add)(integers.sum, integers.sum, integers.term);
  }
  return cut_to_fp32(integers.sum, unit);
}

float chain(std::span<const std::uint16_t> a, std::span<const std::uint16_t> b) {
  float c = 0;
  for (std::size_t i = 0; i < a.size(); i += kStepProducts) {
    const std::size_t n = std::min(kStepProducts, a.size() - i);
    c = step(c, a.subspan(i, n), b.subspan(i, n));
  }
  return c;
}

}  // namespace samebits::second
