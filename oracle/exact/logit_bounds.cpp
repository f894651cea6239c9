// Bounds of a logit for each declared arithmetic; notation as in dot.h.

#include "oracle/exact/logit_bounds.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

#include "oracle/exact/dot.h"
#include "oracle/exact/input_bounds.h"
#include "oracle/exact/interval.h"
#include "oracle/exact/tc256_bounds.h"

namespace samebits::oracle {
namespace {

// The terms that a router may add, T among them with every operand at least the least normal number.
struct Terms {
  double count = 0.0;
  double total = 0.0;
  double lost = 0.0;
};

double raised(double v) {
  return std::max(std::fabs(v), 0x1p-126);
}

// A weight that is no bf16 value is cut into three, of one sign, so that T stays, but for what `raised` adds to the two
// later ones: less than 2^-124. They hold all its bits unless these end below 2^-133, the smallest bf16 number: from
// 2^-110 on, whose last bit is that, none do.
Terms terms_on_tensor_cores(const InputBounds& x, std::span<const double> w) {
  Terms terms;
  const auto add = [&](double x_k, double w_k) {
    if (x_k == 0.0 || w_k == 0.0) return;
    const bool whole = (std::bit_cast<std::uint32_t>(static_cast<float>(w_k)) & 0xffffu) == 0;
    terms.count += whole ? 1.0 : 3.0;
    terms.total += raised(x_k) * (raised(w_k) + (whole ? 0.0 : 0x1p-124));
    if (!whole && std::fabs(w_k) < 0x1p-110) terms.lost += std::fabs(x_k) * 0x1p-133;
  };
  for (std::size_t k = 0; k < w.size(); ++k) add(x.middle[k], w[k]);
  for (const InputBounds::Uncertain& u : x.uncertain) add(u.radius, w[u.k]);
  return terms;
}

bool any_subnormal(std::span<const double> values) {
  bool any = false;
  for (const double v : values) any |= v != 0.0 && std::fabs(v) < 0x1p-126;
  return any;
}

// fp32 sums, the bias being one more term. An operand that is only known within a radius moves the exact sum by |w|
// times that, and enlarges T by as much.
//
// fp32-depth: products that are exact, rounded on their own or fused, additions that round to nearest. A term meets at
// most the declared number of roundings, and no more than n (n terms that are not 0: adding 0 is exact), each a factor
// (1 + d), |d| <= 2^-24: the error is at most gamma_n(n, 2^-24) T. An addition that underflows is exact, but a product
// or a fused result may lose 2^-150 (2^-149 is counted), carried through the later additions.
//
// The others: also the steps of tensor cores, and fp32 weights in three bf16 parts, whose products are terms. A step
// adds m exact products to a partial sum c; a is the largest of these m + 1 in magnitude. All but one that has its
// exponent (which keeps its bits: 14 of a product, 23 of c) are cut to multiples of some g <= 2^-23 |a|; where c is 0
// that is one cut less. They are added exactly, and the sum A is cut to 24 bits: as A is a multiple of g, that loses 0,
// or less than 2^-23 |A| by at least g. So a step loses at most 2^-23 max(|a|, |A|) for each of its m products.
//
// Let a partial sum of n terms with absolute sum S be off by at most ((1 + v)^n - 1) S, v = 2^-23. A product rounded on
// its own is, with n = 1. A step makes S + error at most (1 + m v) times as large, hence at most (1 + v)^m times, and n
// larger by m. A rounded addition of two sums makes it (1 + 2^-24) times as large, and n the sum of two numbers from 1
// on. So it holds for every tree of steps and additions, and (1 + v)^n - 1 <= gamma_n(n, v) for the whole.
//
// A step takes a subnormal operand for the least normal number, hence `raised`. A result below 2^-126 is cut to a
// multiple of 2^-149, terms below that one to one of 2^-158: less than 2^-148 a term.
Interval fp32_sum(const InputBounds& x, std::span<const double> w, bool fp32_weight, double bias, bool has_bias,
                  const Arithmetic& arithmetic) {
  const Dot product = dot(x.middle, w);
  const double spread = x.spread(w);
  const double value = product.value + bias;
  Terms terms{product.terms + static_cast<double>(x.uncertain.size()), product.total + spread, 0.0};
  double unit = kUnitFp32, underflow = 0x1p-149;
  if (arithmetic.kind != Arithmetic::kFp32Depth) {
    unit = 2.0 * kUnitFp32, underflow = 0x1p-148;
    if (fp32_weight || any_subnormal(w) || any_subnormal(x.middle)) terms = terms_on_tensor_cores(x, w);
  }
  const double total = terms.total + std::fabs(bias);
  if (!(total < kSafeTotal)) return kNothingClaimed;

  const double n = terms.count + (has_bias ? 1.0 : 0.0);
  const bool shallow = arithmetic.kind == Arithmetic::kFp32Depth;
  const double relative = gamma_n(shallow ? std::min(n, static_cast<double>(arithmetic.depth)) : n, unit);
  const double radius = spread + terms.lost + (relative + gamma_n(product.depth + 1.0, kUnitDouble)) * total +
                        n * underflow * (1.0 + relative);
  return {value - radius * kStretch, value + radius * kStretch};
}

// The bf16 rounding of the spec or the declared arithmetic, temperature and softcap.
//
// Temperature: a division, or a product with the rounded reciprocal: 3 u. Softcap: the quotient likewise (tanh moves by
// at most as much), tanh to 8 ulp, or built from an exponential, which near 0 leaves an absolute error of 8 u; then a
// product.
Interval finish(const RouterSpec& spec, const Arithmetic& arithmetic, Interval logit) {
  if (logit.lower > logit.upper) return kNothingClaimed;
  if (arithmetic.kind == Arithmetic::kBf16Logits || spec.gate.logits_dtype == FloatType::kBf16) {
    logit = rounded_to_bf16(logit);
  }
  const double temperature = static_cast<float>(spec.logits.temperature);
  if (temperature != 1) {
    logit = widened({logit.lower / temperature, logit.upper / temperature}, 3.0 * kUnitFp32, 0x1p-149);
  }
  if (spec.logits.softcap) {
    const double cap = static_cast<float>(*spec.logits.softcap);
    const Interval curve{cap * std::tanh(logit.lower / cap), cap * std::tanh(logit.upper / cap)};
    logit = widened(curve, 12.0 * kUnitFp32, 8.0 * kUnitFp32 * cap + 0x1p-149);
  }
  return finite_in_fp32(logit) ? logit : kNothingClaimed;
}

}  // namespace

LogitBounds logit_bounds(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t row,
                         const Arithmetic& arithmetic) {
  LogitBounds bounds;
  const auto push = [&](Interval interval) {
    bounds.lower.push_back(interval.lower);
    bounds.upper.push_back(interval.upper);
  };
  if (inputs.from_logits()) {  // given, hence exact
    for (std::int64_t e = 0; e < inputs.gate_rows; ++e) {
      const double given = inputs.router_logits[static_cast<std::size_t>(row * inputs.gate_rows + e)];
      push(std::isfinite(given) ? Interval{given, given} : kNothingClaimed);
    }
    return bounds;
  }

  const std::optional<InputBounds> x = input_bounds(spec, inputs, row, arithmetic);
  const bool has_bias = spec.gate.linear_bias != BiasType::kNone;
  for (std::int64_t e = 0; e < inputs.gate_rows; ++e) {
    if (!x) {
      push(kNothingClaimed);
      continue;
    }
    const double bias = linear_bias(spec, inputs, e);
    const Interval sum =
        arithmetic.kind == Arithmetic::kTc256
            ? tc256_bounds(x->middle, inputs, e, bias, has_bias)
            : fp32_sum(*x, gate_weight_row(inputs, e), !inputs.gate_weight_fp32.empty(), bias, has_bias, arithmetic);
    push(finish(spec, arithmetic, sum));
  }
  return bounds;
}

}  // namespace samebits::oracle
