// Notation as in dot.h. Every quantity is computed in double; what that loses is part of every radius.

#include "oracle/exact/tc256_bounds.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "oracle/emulate/gate_weight.h"
#include "oracle/exact/dot.h"
#include "oracle/tensors/bf16.h"

namespace samebits::oracle {
namespace {

struct Estimate {
  double value;
  double radius;
};

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

// The gate weight of one expert: as it is, or cut into bf16 parts where it is fp32.
std::vector<std::vector<double>> weight_parts(const RouterInputs& inputs, std::int64_t expert) {
  if (inputs.gate_weight_fp32.empty()) return {gate_weight_row(inputs, expert)};
  const auto hidden = static_cast<std::size_t>(inputs.hidden_size);
  const std::size_t first = static_cast<std::size_t>(expert) * hidden;
  std::vector<std::vector<double>> parts(3, std::vector<double>(hidden));
  for (std::size_t k = 0; k < hidden; ++k) {
    const auto bits = split_fp32(inputs.gate_weight_fp32[first + k]);
    for (std::size_t p = 0; p < 3; ++p) parts[p][k] = bf16_to_fp32(bits[p]);
  }
  return parts;
}

// False where an operand is not finite, or a partial sum might leave the range of fp32.
bool stays_finite(std::span<const double> x, std::span<const std::vector<double>> parts, double bias) {
  double total = std::fabs(bias);
  for (const std::vector<double>& w : parts) {
    for (std::size_t k = 0; k < x.size(); ++k) total += std::fabs(x[k] * w[k]);
  }
  return total < kSafeTotal;  // false for NaN too
}

}  // namespace

Interval tc256_bounds(std::span<const double> x, const RouterInputs& inputs, std::int64_t expert, double bias,
                      bool has_bias) {
  const std::vector<std::vector<double>> parts = weight_parts(inputs, expert);
  if (!stays_finite(x, parts, bias)) return kNothingClaimed;
  const Estimate logit = chunked_chains(x, parts, bias, has_bias);
  return {logit.value - logit.radius, logit.value + logit.radius};
}

}  // namespace samebits::oracle
