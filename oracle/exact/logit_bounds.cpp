// Bounds of a logit for each declared arithmetic. Notation: t_k = x_k w_k exactly, T = sum |t_k|, all sums over one
// logit; gamma_n(n, u) = n u / (1 - n u) (Higham, "Accuracy and Stability of Numerical Algorithms", 2nd ed.,
// lemma 3.1).
//
// Every quantity below is computed in double. A product of bf16 values (16 bits) or of bf16 and fp32 (32 bits) is exact
// there and far from underflow, so a double dot product of n terms is off by at most gamma_n(n, 2^-53) T, which is part
// of every radius. Radii themselves are sums of non-negative numbers with fewer than 2^20 roundings; they are stretched
// by 1 + 2^-30 to stay upper bounds.

#include "oracle/exact/logit_bounds.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cfloat>
#include <cmath>
#include <limits>

#include "oracle/emulate/gate_weight.h"
#include "oracle/reference/arithmetic.h"
#include "oracle/tensors/bf16.h"

namespace samebits::oracle {
namespace {

constexpr double kUnitFp32 = 0x1p-24;  // relative error of one rounding to nearest
constexpr double kUnitDouble = 0x1p-53;
constexpr double kStretch = 1 + 0x1p-30;

struct Interval {
  double lower, upper;
};
constexpr Interval kNothingClaimed = {1, 0};

struct Estimate {
  double value;
  double radius;
};

double gamma_n(double n, double u) {
  return n * u / (1 - n * u);
}

// Any order and association of fp32 additions, products rounded on their own or fused.
//
// A term meets at most one rounding as a product and one in each of at most n - 1 additions, n being the number of
// terms that are not 0, the bias among them (adding 0 is exact), each a factor (1 + d), |d| <= 2^-24: relative to the
// terms the error is at most gamma_n(n, 2^-24) T. An fp32 addition that underflows is exact, but a product or a fused
// result may lose up to 2^-149 absolutely to underflow (2^-150 rounded to nearest); at most n such losses, each carried
// through the later additions.
Estimate fp32_any_order(std::span<const double> x, std::span<const double> w, double bias, bool has_bias) {
  constexpr std::size_t kLanes = 8;  // independent sums, so that the additions overlap
  std::array<double, kLanes> sum{}, magnitude{}, terms{};
  const std::size_t whole = x.size() / kLanes * kLanes;
  for (std::size_t k = 0; k < whole; k += kLanes) {
    for (std::size_t l = 0; l < kLanes; ++l) {
      const double t = x[k + l] * w[k + l];
      sum[l] += t;
      magnitude[l] += std::fabs(t);
      terms[l] += t != 0 ? 1 : 0;
    }
  }
  for (std::size_t k = whole; k < x.size(); ++k) {
    const double t = x[k] * w[k];
    sum[k - whole] += t;
    magnitude[k - whole] += std::fabs(t);
    terms[k - whole] += t != 0 ? 1 : 0;
  }
  double value = bias, total = std::fabs(bias), n = has_bias ? 1 : 0;
  for (std::size_t l = 0; l < kLanes; ++l) {
    value += sum[l];
    total += magnitude[l];
    n += terms[l];
  }
  const double relative = gamma_n(n, kUnitFp32);
  const double radius = (relative + gamma_n(n + kLanes, kUnitDouble)) * total + n * 0x1p-149 * (1 + relative);
  return {value, radius * kStretch};
}

// One rounding to nearest of a value within `radius` of `value`. fp32 additions do not lose anything to underflow.
Estimate fadd(Estimate a, Estimate b) {
  const double value = a.value + b.value;
  const double radius = a.radius + b.radius;
  return {value, radius + (kUnitFp32 + kUnitDouble) * (std::fabs(value) + radius)};
}

// |v|, but at least the power of two that a step takes as the exponent of v: a subnormal counts as the least normal.
double raised(double v) {
  return v == 0 ? 0 : std::max(std::fabs(v), 0x1p-126);
}

// CHAIN from +0 over one chunk. One step adds 16 products to c: emax is the largest exponent among them, so
// 2^emax <= M = max(2^-133, |c| raised, raised |x| times raised |w|). Each of 17 terms is cut toward zero to a multiple
// of 2^(emax - 25), but the term that has emax keeps all its bits (14 or 23 of 25): 16 cuts lose less than
// 16 * 2^-25 M = 2^-21 M. The sum is exact; cutting it to 24 bits loses less than 2^-23 of it, or 2^-149 below 2^-126.
// |c| is at most the exact prefix sum plus the error so far, and both run along; `slack` is what the double prefix sum
// may be off.
Estimate chain(std::span<const double> x, std::span<const double> w) {
  const double double_error = gamma_n(static_cast<double>(x.size()), kUnitDouble);
  double prefix = 0, magnitude = 0, error = 0, slack = 0;
  for (std::size_t k = 0; k < x.size(); k += 16) {
    double largest = std::max(0x1p-133, raised(std::fabs(prefix) + slack + error));
    for (std::size_t i = k; i < std::min(k + 16, x.size()); ++i) {
      const double t = x[i] * w[i];
      prefix += t;
      magnitude += std::fabs(t);
      if (t != 0) largest = std::max(largest, raised(x[i]) * raised(w[i]));
    }
    slack = double_error * magnitude;
    const double before_cut = error + 0x1p-21 * largest;
    error = before_cut + 0x1p-23 * (std::fabs(prefix) + slack + before_cut) + 0x1p-149;
  }
  return {prefix, (error + slack) * kStretch};
}

// Chunks in order, each the sum of the chains over the parts of the weight; then the bias.
Estimate chunked_chains(std::span<const double> x, std::span<const std::vector<double>> parts, double bias,
                        bool has_bias) {
  Estimate sum{0, 0};
  for (std::size_t k = 0; k < x.size(); k += kChunk) {
    const std::size_t length = std::min<std::size_t>(kChunk, x.size() - k);
    Estimate partial{0, 0};
    for (std::size_t p = 0; p < parts.size(); ++p) {
      const Estimate next = chain(x.subspan(k, length), std::span(parts[p]).subspan(k, length));
      partial = p == 0 ? next : fadd(partial, next);
    }
    sum = k == 0 ? partial : fadd(sum, partial);
  }
  if (has_bias) sum = fadd(sum, {bias, 0});
  return {sum.value, sum.radius * kStretch};
}

// Roundings are monotone: an fp32 value inside [lower, upper] rounds to bf16 inside the rounded ends, which is within
// half a bf16 ulp of it. The quotient by the temperature is rounded once more, to fp32.
Interval finish(const RouterSpec& spec, Arithmetic arithmetic, Estimate estimate) {
  Interval logit{estimate.value - estimate.radius, estimate.value + estimate.radius};
  if (arithmetic == Arithmetic::kBf16Logits || spec.gate.logits_dtype == FloatType::kBf16) {
    logit = {ArithmeticOf<double>::round_to_bf16(logit.lower), ArithmeticOf<double>::round_to_bf16(logit.upper)};
  }
  const double temperature = static_cast<float>(spec.logits.temperature);
  if (temperature != 1) {
    const auto rounding = [](double q) { return (kUnitFp32 + 2 * kUnitDouble) * std::fabs(q) + 0x1p-149; };
    const double lower = logit.lower / temperature, upper = logit.upper / temperature;
    logit = {lower - rounding(lower), upper + rounding(upper)};
  }
  const bool finite = std::isfinite(logit.lower) && std::isfinite(logit.upper);
  return finite ? logit : kNothingClaimed;
}

// The gate weight of one expert as the arithmetic reads it: whole, or for tc256 cut into bf16 parts.
std::vector<std::vector<double>> weight_parts(const RouterInputs& inputs, std::int64_t expert, bool split) {
  const std::size_t hidden = static_cast<std::size_t>(inputs.hidden_size);
  const std::size_t first = static_cast<std::size_t>(expert) * hidden;
  const bool fp32 = !inputs.gate_weight_fp32.empty();
  std::vector<std::vector<double>> parts(fp32 && split ? 3 : 1, std::vector<double>(hidden));
  for (std::size_t k = 0; k < hidden; ++k) {
    if (!fp32) {
      parts[0][k] = bf16_to_fp32(inputs.gate_weight_bf16[first + k]);
    } else if (!split) {
      parts[0][k] = inputs.gate_weight_fp32[first + k];
    } else {
      const auto bits = split_fp32(inputs.gate_weight_fp32[first + k]);
      for (std::size_t p = 0; p < 3; ++p) parts[p][k] = bf16_to_fp32(bits[p]);
    }
  }
  return parts;
}

// False where an operand is not finite, or a partial sum in some order might leave the range of fp32: every partial sum
// is at most T plus its error, which is below T.
bool stays_finite(std::span<const double> x, std::span<const std::vector<double>> parts, double bias) {
  double total = std::fabs(bias);
  for (const std::vector<double>& w : parts) {
    for (std::size_t k = 0; k < x.size(); ++k) total += std::fabs(x[k] * w[k]);
  }
  return total < 0x1p126;  // false for NaN too
}

}  // namespace

LogitBounds logit_bounds(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t row, Arithmetic arithmetic) {
  const std::size_t experts = static_cast<std::size_t>(inputs.gate_rows);
  LogitBounds bounds;
  const auto push = [&](Interval interval) {
    bounds.lower.push_back(interval.lower);
    bounds.upper.push_back(interval.upper);
  };
  if (inputs.from_logits()) {  // given, hence exact
    for (std::size_t e = 0; e < experts; ++e) {
      const double given = inputs.router_logits[static_cast<std::size_t>(row) * experts + e];
      push(std::isfinite(given) ? Interval{given, given} : kNothingClaimed);
    }
    return bounds;
  }

  std::vector<double> x;
  const std::size_t hidden = static_cast<std::size_t>(inputs.hidden_size);
  for (std::size_t k = 0; k < hidden; ++k) {
    x.push_back(bf16_to_fp32(inputs.hidden_states[static_cast<std::size_t>(row) * hidden + k]));
  }
  const bool has_bias = spec.gate.linear_bias != BiasType::kNone;
  for (std::size_t e = 0; e < experts; ++e) {
    double bias = 0;
    if (has_bias) {
      const float given = inputs.linear_bias[e];
      bias = spec.gate.linear_bias == BiasType::kBf16 ? round_to_bf16(given) : given;
    }
    const auto parts = weight_parts(inputs, static_cast<std::int64_t>(e), arithmetic == Arithmetic::kTc256);
    if (!stays_finite(x, parts, bias)) {
      push(kNothingClaimed);
      continue;
    }
    const Estimate estimate = arithmetic == Arithmetic::kTc256 ? chunked_chains(x, parts, bias, has_bias)
                                                               : fp32_any_order(x, parts[0], bias, has_bias);
    push(finish(spec, arithmetic, estimate));
  }
  return bounds;
}

}  // namespace samebits::oracle
