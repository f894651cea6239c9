// Bounds of a logit for each declared arithmetic; notation as in dot.h.

#include "oracle/exact/logit_bounds.h"

#include <algorithm>
#include <cmath>

#include "oracle/exact/dot.h"
#include "oracle/exact/input_bounds.h"
#include "oracle/exact/interval.h"
#include "oracle/exact/tc256_bounds.h"

namespace samebits::oracle {
namespace {

// fp32 sums of products that are exact, rounded on their own or fused, the bias being one more term.
//
// A term meets one rounding as a product and one in each addition, at most n in all (n terms that are not 0: adding 0
// is exact) or the declared depth, each a factor (1 + d), |d| <= 2^-24: the error is at most gamma_n(n, 2^-24) T. An
// fp32 addition that underflows is exact, but a product or a fused result may lose 2^-150 (2^-149 is counted) to
// underflow; at most n such losses, each carried through the later additions. An operand that is only known within a
// radius moves the exact sum by |w| times that, and enlarges T by as much.
Interval fp32_sum(const InputBounds& x, std::span<const double> w, double bias, bool has_bias,
                  const Arithmetic& arithmetic) {
  const Dot product = dot(x.middle, w);
  const double spread = x.spread(w);
  const double value = product.value + bias;
  const double total = product.total + spread + std::fabs(bias);
  if (!(total < kSafeTotal)) return kNothingClaimed;

  const double n = product.terms + static_cast<double>(x.uncertain.size()) + (has_bias ? 1.0 : 0.0);
  const bool shallow = arithmetic.kind == Arithmetic::kFp32Depth;
  const double relative = gamma_n(shallow ? std::min(n, static_cast<double>(arithmetic.depth)) : n, kUnitFp32);
  const double radius =
      spread + (relative + gamma_n(product.depth + 1.0, kUnitDouble)) * total + n * 0x1p-149 * (1.0 + relative);
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
    const Interval sum = arithmetic.kind == Arithmetic::kTc256
                             ? tc256_bounds(x->middle, inputs, e, bias, has_bias)
                             : fp32_sum(*x, gate_weight_row(inputs, e), bias, has_bias, arithmetic);
    push(finish(spec, arithmetic, sum));
  }
  return bounds;
}

}  // namespace samebits::oracle
