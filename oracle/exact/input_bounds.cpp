// Bounds of x_k r v_k s before it is rounded to bf16, with u the unit of one rounding and r, v, s the factors that the
// spec has. Everything is evaluated in double.
//
//   mean of squares + eps: a sum of non-negative terms. A term meets n + 2 roundings in any order (n terms that are not
//     0), or depth + 2: its square, the additions, the division by H and eps; relative gamma_n. Squares and quotient
//     may underflow by half a subnormal each, n + 1 in all.
//   r: one over its root. 16 u: rsqrt or pow(-1/2) to 8 ulp.
//   s = H^-1/2: likewise 16 u, then its rounding to bf16 where the spec says so.
//   three products in any order: 3 u, 4 with what double adds. A partial product may underflow by half a subnormal,
//     which the other factors carry on: summed over all partial products, half a subnormal times prod (1 + |factor|).
//     A partial product is at most prod max(1, |factor|), which must stay in range.
// A zero x_k stays 0.

#include "oracle/exact/input_bounds.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "oracle/emulate/prepared_input.h"
#include "oracle/exact/dot.h"
#include "oracle/exact/interval.h"
#include "oracle/tensors/bf16.h"

namespace samebits::oracle {
namespace {

struct InputSteps : Steps {
  double subnormal;                   // distance of two subnormals
  std::optional<std::int64_t> depth;  // roundings a term of the sum of squares meets; nullopt: any order
};

constexpr double kRootError = 16.0;
constexpr double kProductError = 4.0;

Interval inverse_rms(std::span<const double> x, double eps, const InputSteps& steps) {
  double squares = 0.0, terms = 0.0;
  for (const double value : x) {
    squares += value * value;
    terms += value != 0.0 ? 1.0 : 0.0;
  }
  const double meets = (steps.depth ? std::min(terms, static_cast<double>(*steps.depth)) : terms) + 2.0;
  const double mean = squares / static_cast<double>(x.size()) + eps;
  const double double_error = gamma_n(static_cast<double>(x.size()) + 3.0, kUnitDouble);
  const Interval exact =
      widened({mean, mean}, gamma_n(meets, steps.unit) + double_error, (terms + 1.0) * steps.subnormal);
  if (!(exact.lower > 0.0) || !(squares < kSafeTotal)) return kNothingClaimed;
  return widened({1.0 / std::sqrt(exact.upper), 1.0 / std::sqrt(exact.lower)}, kRootError * steps.unit, 0.0);
}

Interval input_scale(const RouterSpec::Gate& gate, std::int64_t hidden_size, const InputSteps& steps) {
  if (gate.input_scale_kind == InputScale::kFactor) {
    const double factor = static_cast<float>(gate.input_scale);
    return {factor, factor};
  }
  const double root = 1.0 / std::sqrt(static_cast<double>(hidden_size));
  const Interval scale = widened({root, root}, kRootError * steps.unit, 0.0);
  return gate.input_scale_kind == InputScale::kRsqrtHiddenSizeBf16 ? rounded_to_bf16(scale, steps) : scale;
}

std::vector<double> hidden_states(const RouterInputs& inputs, std::int64_t row) {
  const auto hidden = static_cast<std::size_t>(inputs.hidden_size);
  const std::uint16_t* bits = inputs.hidden_states.data() + static_cast<std::size_t>(row) * hidden;
  std::vector<double> x(hidden);
  for (std::size_t k = 0; k < hidden; ++k) x[k] = bf16_to_fp32(bits[k]);
  return x;
}

std::optional<InputBounds> bounds(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t row,
                                  const InputSteps& steps) {
  InputBounds result{hidden_states(inputs, row), {}};
  if (!prepares_input(spec)) return result;
  const RouterSpec::Gate& gate = spec.gate;
  Interval r{1.0, 1.0};
  if (gate.input_norm == InputNorm::kRmsnormUnweighted) {
    r = inverse_rms(result.middle, static_cast<float>(gate.input_norm_eps.value()), steps);
  }
  const Interval s = input_scale(gate, inputs.hidden_size, steps);
  if (!finite_in_fp32(r) || !finite_in_fp32(s)) return std::nullopt;

  const double lower_factor = r.lower * s.lower, upper_factor = r.upper * s.upper;  // neither is negative
  for (std::size_t k = 0; k < result.middle.size(); ++k) {
    double& x = result.middle[k];
    const double v = gate.input_scale_vector ? static_cast<double>(inputs.input_scale_vector[k]) : 1.0;
    double largest = 1.0, carried = steps.subnormal;
    for (const double factor : {x, r.upper, v, s.upper}) {
      largest *= std::max(1.0, std::fabs(factor));
      carried *= 1.0 + std::fabs(factor);
    }
    if (!std::isfinite(v) || !(largest < kSafeTotal)) return std::nullopt;
    if (x == 0.0) continue;
    const auto [low, high] = std::minmax({x * v * lower_factor, x * v * upper_factor});
    const Interval rounded = rounded_to_bf16(widened({low, high}, kProductError * steps.unit, carried), steps);
    if (!finite_in_fp32(rounded)) return std::nullopt;
    x = (rounded.lower + rounded.upper) / 2.0;
    if (!rounded.is_point()) result.uncertain.push_back({k, (rounded.upper - rounded.lower) / 2.0});
  }
  return result;
}

}  // namespace

double InputBounds::spread(std::span<const double> w) const {
  double sum = 0.0;
  for (const Uncertain& u : uncertain) sum += u.radius * std::fabs(w[u.k]);
  return sum;
}

std::optional<InputBounds> input_bounds(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t row,
                                        const Arithmetic& arithmetic) {
  if (arithmetic.kind == Arithmetic::kTc256) {
    InputBounds exact;
    for (const std::uint16_t bits : prepared_input(spec, inputs, row)) exact.middle.push_back(bf16_to_fp32(bits));
    return exact;
  }
  const bool shallow = arithmetic.kind == Arithmetic::kFp32Depth;
  return bounds(spec, inputs, row, {kFp32Steps, 0x1p-149, shallow ? std::optional(arithmetic.depth) : std::nullopt});
}

std::optional<InputBounds> exact_input(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t row) {
  return bounds(spec, inputs, row, {kFormula, 0x1p-1074, std::nullopt});
}

}  // namespace samebits::oracle
