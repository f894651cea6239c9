#include "oracle/second/ball.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace samebits::second {
namespace {

// A bound is computed in double with a few roundings; this factor covers them.
constexpr double kSlack = 1 + 0x1p-40;
// Relative error of a few operations at the working precision.
constexpr double kWorkingError = 0x1p-116;

// Runs one MPFR operation in the exponent range of a format, and rounds subnormal results there.
template <class Operation>
void in_format(const Format& format, mpfr_ptr out, const Operation& operation) {
  const mpfr_exp_t least = mpfr_get_emin();
  const mpfr_exp_t greatest = mpfr_get_emax();
  mpfr_set_emin(format.least_exponent);
  mpfr_set_emax(128);
  const int inexact = operation(out);
  mpfr_subnormalize(out, inexact, MPFR_RNDN);
  mpfr_set_emin(least);
  mpfr_set_emax(greatest);
}

// `value` may lie outside of the exponent range of the format.
Real round_number(const Format& format, mpfr_srcptr value) {
  Real out(format.digits);
  const int inexact = mpfr_set(out, value, MPFR_RNDN);
  in_format(format, out, [&](mpfr_ptr x) { return mpfr_check_range(x, inexact, MPFR_RNDN); });
  return out;
}

template <class Operation>
Ball exact_operation(const Operation& operation) {
  Ball result{Real(kFp32.digits)};
  in_format(kFp32, result.center, operation);
  return result;
}

bool may_be_zero(const Ball& a) {
  return mpfr_number_p(a.center) != 0 && magnitude(Ball{a.center}) <= a.radius;
}

// The result of an operation with at least one inexact operand: special values are exact, the rest is rounded.
Ball finish(const Real& center, double radius) {
  if (mpfr_number_p(center) == 0) return Ball{center};
  return rounded(with_error(center, radius), kFp32);
}

Ball sum_of(const Ball& a, const Ball& b, int (*operation)(mpfr_ptr, mpfr_srcptr, mpfr_srcptr, mpfr_rnd_t)) {
  if (is_exact(a) && is_exact(b)) {
    return exact_operation([&](mpfr_ptr out) { return operation(out, a.center, b.center, MPFR_RNDN); });
  }
  if (is_unknown(a) || is_unknown(b)) return unknown();
  Real center;
  operation(center, a.center, b.center, MPFR_RNDN);
  return finish(center, (a.radius + b.radius) * kSlack);
}

// Sum in which no term passes more than `additions` roundings. Each is at most half an ulp of a partial sum, and a sum
// that is subnormal is exact, so the error is at most ((1 + u)^additions - 1) * sum |terms| in any order of the terms.
Ball bounded_sum(const std::vector<Ball>& terms, double additions) {
  Real center;
  double radius = 0;
  double magnitudes = 0;
  for (const Ball& term : terms) {
    if (is_unknown(term)) return unknown();
    mpfr_add(center, center, term.center, MPFR_RNDN);
    radius += term.radius;
    if (is_finite(term)) magnitudes += magnitude(term);
  }
  const double error = radius + (magnitudes * std::expm1(additions * kUnit));
  if (magnitudes + error >= 0x1p127) return unknown();  // a partial sum might overflow
  if (mpfr_number_p(static_cast<mpfr_srcptr>(center)) == 0) return Ball{center};
  return with_error(center, error * (1 + 0x1p-30));
}

bool all_exact(const std::vector<Ball>& terms) {
  return std::all_of(terms.begin(), terms.end(), is_exact);
}

}  // namespace

Ball exact(float value) {
  Ball ball{Real(kFp32.digits)};
  mpfr_set_flt(ball.center, value, MPFR_RNDN);
  return ball;
}

Ball exact_bf16(std::uint16_t bits) {
  return exact(std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16));
}

Ball unknown() {
  return Ball{Real(MPFR_PREC_MIN), kUnknown};
}

bool is_exact(const Ball& a) {
  return a.radius == 0;
}

bool is_unknown(const Ball& a) {
  return a.radius == kUnknown;
}

bool is_nan(const Ball& a) {
  return mpfr_nan_p(static_cast<mpfr_srcptr>(a.center)) != 0;
}

bool is_positive_infinity(const Ball& a) {
  return mpfr_inf_p(static_cast<mpfr_srcptr>(a.center)) != 0 && mpfr_signbit(a.center) == 0;
}

bool is_negative_infinity(const Ball& a) {
  return mpfr_inf_p(static_cast<mpfr_srcptr>(a.center)) != 0 && mpfr_signbit(a.center) != 0;
}

bool is_finite(const Ball& a) {
  return mpfr_number_p(static_cast<mpfr_srcptr>(a.center)) != 0;
}

float to_float(const Ball& a) {
  if (is_nan(a)) return std::bit_cast<float>(0x7fffffffu);
  return mpfr_get_flt(a.center, MPFR_RNDN);
}

double magnitude(const Ball& a) {
  return (std::abs(mpfr_get_d(a.center, MPFR_RNDA)) + a.radius) * kSlack;
}

Ball with_error(const Real& center, double radius) {
  const double size = std::abs(mpfr_get_d(center, MPFR_RNDA));
  // The least double keeps an inexact ball from becoming exact.
  const double error = ((radius + (size * kWorkingError)) * kSlack) + std::numeric_limits<double>::denorm_min();
  if (!(error < kUnknown)) return unknown();
  return Ball{center, error};
}

Ball rounded(Ball value, const Format& format) {
  if (is_unknown(value) || !is_finite(value)) return value;
  if (is_exact(value)) return Ball{round_number(format, value.center)};
  const double size = magnitude(value);
  // From here on a number may round to infinity: 2^128 less half an ulp.
  if (size >= std::ldexp(1 - std::ldexp(1.0, -format.digits - 1), 128)) return unknown();
  // Half an ulp: 2^(e - digits) in [2^e, 2^(e + 1)), and half of the least number below the normal ones.
  const double half = std::max(size > 0 ? std::ldexp(1.0, std::ilogb(size) - format.digits) : 0.0,
                               std::ldexp(1.0, format.least_exponent - 2));
  if (value.radius < half / 8) {
    Real low;
    Real high;
    mpfr_sub_d(low, value.center, value.radius, MPFR_RNDD);
    mpfr_add_d(high, value.center, value.radius, MPFR_RNDU);
    low = round_number(format, low);
    high = round_number(format, high);
    if (mpfr_equal_p(low, high) != 0) return Ball{low};
  }
  value.radius = (value.radius + half) * kSlack;
  return value;
}

Ball add(const Ball& a, const Ball& b) {
  return sum_of(a, b, mpfr_add);
}

Ball subtract(const Ball& a, const Ball& b) {
  return sum_of(a, b, mpfr_sub);
}

// |a'b' - ab| <= |a| r_b + |b| r_a + r_a r_b.
Ball multiply(const Ball& a, const Ball& b) {
  if (is_exact(a) && is_exact(b)) {
    return exact_operation([&](mpfr_ptr out) { return mpfr_mul(out, a.center, b.center, MPFR_RNDN); });
  }
  if (is_unknown(a) || is_unknown(b)) return unknown();
  // Infinity times a number of unknown sign, or that may be 0.
  if ((!is_finite(a) && !is_nan(a) && may_be_zero(b)) || (!is_finite(b) && !is_nan(b) && may_be_zero(a))) {
    return unknown();
  }
  Real center;
  mpfr_mul(center, a.center, b.center, MPFR_RNDN);
  const double size_a = is_finite(a) ? magnitude(a) : 0;
  const double size_b = is_finite(b) ? magnitude(b) : 0;
  return finish(center, ((size_a * b.radius) + (size_b * a.radius)) * kSlack);
}

// |a'/b' - a/b| = |a' - (a/b) b'| / |b'| <= (r_a + |a/b| r_b) / (|b| - r_b).
Ball divide(const Ball& a, const Ball& b) {
  if (is_exact(a) && is_exact(b)) {
    return exact_operation([&](mpfr_ptr out) { return mpfr_div(out, a.center, b.center, MPFR_RNDN); });
  }
  if (is_unknown(a) || is_unknown(b)) return unknown();
  if (is_nan(a) || is_nan(b)) return exact(std::numeric_limits<float>::quiet_NaN());
  if (mpfr_zero_p(static_cast<mpfr_srcptr>(b.center)) != 0 || may_be_zero(b)) return unknown();
  Real center;
  mpfr_div(center, a.center, b.center, MPFR_RNDN);
  if (!is_finite(a) || !is_finite(b)) return finish(center, 0);
  const double quotient = std::abs(mpfr_get_d(center, MPFR_RNDA)) * kSlack;
  const double least = (std::abs(mpfr_get_d(b.center, MPFR_RNDZ)) - b.radius) / kSlack;
  if (least <= 0) return unknown();
  return finish(center, ((a.radius + (quotient * b.radius)) / least) * kSlack);
}

// |sqrt(x') - sqrt(x)| = |x' - x| / (sqrt(x') + sqrt(x)) <= r / sqrt(x).
Ball square_root(const Ball& a) {
  if (is_exact(a)) {
    return exact_operation([&](mpfr_ptr out) { return mpfr_sqrt(out, a.center, MPFR_RNDN); });
  }
  if (is_unknown(a) || mpfr_get_d(a.center, MPFR_RNDZ) <= a.radius) return unknown();
  Real center;
  mpfr_sqrt(center, a.center, MPFR_RNDN);
  const double root = mpfr_get_d(center, MPFR_RNDZ);
  return finish(center, (a.radius / root) * kSlack);
}

Ball negated(Ball a) {
  mpfr_neg(a.center, a.center, MPFR_RNDN);
  return a;
}

Ball absolute(Ball a) {
  mpfr_abs(a.center, a.center, MPFR_RNDN);
  return a;
}

// max and min move by no more than the largest of the errors.
Ball maximum(const Ball& a, const Ball& b) {
  const bool take_b = mpfr_less_p(a.center, b.center) != 0;
  Ball result = take_b ? b : a;
  if (!is_exact(a) || !is_exact(b)) result.radius = std::max(a.radius, b.radius);
  return result;
}

Ball minimum(const Ball& a, const Ball& b) {
  return negated(maximum(negated(a), negated(b)));
}

Ball left_fold(const std::vector<Ball>& terms) {
  if (terms.empty()) return exact(0);
  if (!all_exact(terms)) return bounded_sum(terms, static_cast<double>(terms.size()) - 1);
  Ball sum = terms[0];
  for (std::size_t i = 1; i < terms.size(); ++i) sum = add(sum, terms[i]);
  return sum;
}

Ball sum32(const std::vector<Ball>& terms) {
  constexpr std::size_t kLanes = 32;
  if (!all_exact(terms)) {
    return bounded_sum(terms, std::ceil(static_cast<double>(terms.size()) / kLanes) - 1 + 5);
  }
  std::vector<Ball> lanes(kLanes, exact(0));
  for (std::size_t lane = 0; lane < kLanes && lane < terms.size(); ++lane) {
    lanes[lane] = terms[lane];
    for (std::size_t i = lane + kLanes; i < terms.size(); i += kLanes) lanes[lane] = add(lanes[lane], terms[i]);
  }
  for (std::size_t distance = kLanes / 2; distance > 0; distance /= 2) {
    for (std::size_t lane = 0; lane < distance; ++lane) lanes[lane] = add(lanes[lane], lanes[lane + distance]);
  }
  return lanes[0];
}

}  // namespace samebits::second
