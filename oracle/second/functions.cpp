#include "oracle/second/functions.h"

#include <algorithm>
#include <cmath>
#include <stdexcept>

namespace samebits::second {
namespace {

// Largest errors over all 2^32 inputs in ulp of the result, subnormal results included.
constexpr double kExpUlp = 0.7645;
constexpr double kSigmoidUlp = 0.7645;
constexpr double kSqrtSoftplusUlp = 0.907;
constexpr double kTanhUlp = 0.683;
constexpr double kLogUlp = 0.541;
constexpr double kLog1pUlp = 0.876;

// At infinity the result is a limit, which fp32 has exactly.
Ball limit(const Real& center) {
  return Ball{center};
}

// `center` is f(x.center), `moved` bounds |f(x') - f(x)| within the ball of x; an error of `ulps` is added. An ulp is
// taken in the binade of the largest value possible; the factor keeps a value just below a power of two in the upper
// one, where the error of the function may be counted.
Ball evaluated(const Real& center, double moved, double ulps) {
  if (mpfr_number_p(static_cast<mpfr_srcptr>(center)) == 0) return Ball{center};
  const double size = (std::abs(mpfr_get_d(center, MPFR_RNDA)) + moved) * (1 + 0x1p-20);
  if (size >= 0x1.fffffep127) return unknown();
  const double ulp = std::max(size > 0 ? std::ldexp(1.0, std::ilogb(size) - 23) : 0.0, 0x1p-149);
  return with_error(center, moved + (ulps * ulp));
}

// Bound of value * (e^r - 1) where value <= e^exponent; for large r, e^(exponent + r).
double grown(double value, double exponent, double r) {
  return r < 50 ? value * std::expm1(r) * (1 + 0x1p-50) : std::exp(exponent + r) * (1 + 0x1p-40);
}

struct Published final : Functions {
  // |e^x' - e^x| <= e^x (e^r - 1) <= e^(x + r).
  Ball exp(const Ball& x) const override {
    if (is_unknown(x)) return unknown();
    Real y;
    mpfr_exp(y, x.center, MPFR_RNDN);
    if (!is_finite(x)) return limit(y);
    const double value = mpfr_get_d(y, MPFR_RNDU);
    // Overflow of fp32 is at 88.72; a value beyond is infinite, near it nothing is known.
    if (value > 0x1p128 * (1 + 0x1p-10) && x.radius < 0x1p-12) {
      return exact(std::numeric_limits<float>::infinity());
    }
    const double moved = grown(value, mpfr_get_d(x.center, MPFR_RNDU), x.radius);
    return evaluated(y, moved, kExpUlp);
  }

  // The logarithm of s' = s (1 - s) has the slope 1 - 2s, in [-1, 1]; so |s(x') - s(x)| <= s (1 - s) (e^r - 1), and
  // s (1 - s) <= e^-|x|. It is never more than 1.
  Ball sigmoid(const Ball& x) const override {
    if (is_unknown(x)) return unknown();
    if (is_nan(x)) return x;
    Real t;  // e^-|x|, at most 1
    mpfr_abs(t, x.center, MPFR_RNDN);
    mpfr_neg(t, t, MPFR_RNDN);
    mpfr_exp(t, t, MPFR_RNDN);
    Real d;
    mpfr_add_ui(d, t, 1, MPFR_RNDN);
    const double moved =
        std::min(1.0, grown(mpfr_get_d(t, MPFR_RNDU), -std::abs(mpfr_get_d(x.center, MPFR_RNDZ)), x.radius));
    Real y;
    if (mpfr_signbit(x.center) == 0) {
      mpfr_ui_div(y, 1, d, MPFR_RNDN);
    } else {
      mpfr_div(y, t, d, MPFR_RNDN);
    }
    if (!is_finite(x)) return limit(y);
    return evaluated(y, moved, kSigmoidUlp);
  }

  // f = sqrt(p), p = log(1 + e^x). The slope of log f is sigmoid(x) / 2p <= 1/2, as p = -log(1 - sigmoid) >= sigmoid;
  // so |f(x') - f(x)| <= f (e^(r/2) - 1), where f <= e^(x/2). The slope of f is sigmoid(x) / 2f <= 1/2.
  Ball sqrt_softplus(const Ball& x) const override {
    if (is_unknown(x)) return unknown();
    if (is_nan(x)) return x;
    Real p;
    mpfr_abs(p, x.center, MPFR_RNDN);
    mpfr_neg(p, p, MPFR_RNDN);
    mpfr_exp(p, p, MPFR_RNDN);
    mpfr_log1p(p, p, MPFR_RNDN);
    if (mpfr_signbit(x.center) == 0) mpfr_add(p, p, x.center, MPFR_RNDN);
    mpfr_sqrt(p, p, MPFR_RNDN);
    if (!is_finite(x)) return limit(p);
    const double value = mpfr_get_d(p, MPFR_RNDU);
    const double moved = std::min(x.radius / 2, grown(value, mpfr_get_d(x.center, MPFR_RNDU) / 2, x.radius / 2));
    return evaluated(p, moved, kSqrtSoftplusUlp);
  }

  // The slope is at most 1.
  Ball tanh(const Ball& x) const override {
    if (is_unknown(x)) return unknown();
    Real y;
    mpfr_tanh(y, x.center, MPFR_RNDN);
    if (!is_finite(x)) return limit(y);
    return evaluated(y, x.radius, kTanhUlp);
  }

  // |log x' - log x| <= -log(1 - r/x).
  Ball log(const Ball& x) const override { return logarithm(x, mpfr_log, 0, kLogUlp); }
  Ball log1p(const Ball& x) const override { return logarithm(x, mpfr_log1p, 1, kLog1pUlp); }

 private:
  static Ball logarithm(const Ball& x, int (*function)(mpfr_ptr, mpfr_srcptr, mpfr_rnd_t), double shift, double ulps) {
    if (is_unknown(x)) return unknown();
    double moved = 0;
    if (!is_exact(x)) {
      const double argument = mpfr_get_d(x.center, MPFR_RNDD) + shift;
      const double least = argument * (1 - 0x1p-50);
      if (!(least > x.radius)) return unknown();
      moved = -std::log1p(-x.radius / least) * (1 + 0x1p-30);
    }
    Real y;
    function(y, x.center, MPFR_RNDN);
    return evaluated(y, moved, ulps);
  }
};

Ball fed(Fp32Functions::Function function, const Ball& x) {
  if (!is_exact(x)) throw std::logic_error("an fp32 function is fed with a value that is not exact");
  return exact(function(to_float(x)));
}

}  // namespace

const Functions& published_functions() {
  static const Published functions;
  return functions;
}

Ball FedFunctions::exp(const Ball& x) const {
  return fed(functions_.exp, x);
}
Ball FedFunctions::sigmoid(const Ball& x) const {
  return fed(functions_.sigmoid, x);
}
Ball FedFunctions::sqrt_softplus(const Ball& x) const {
  return fed(functions_.sqrt_softplus, x);
}
Ball FedFunctions::tanh(const Ball& x) const {
  return fed(functions_.tanh, x);
}
Ball FedFunctions::log(const Ball& x) const {
  return fed(functions_.log, x);
}
Ball FedFunctions::log1p(const Ball& x) const {
  return fed(functions_.log1p, x);
}

}  // namespace samebits::second
