// Error budget as in score_bounds.cpp: u the unit of one rounding, and the absolute slack of results that are flushed.

#include "oracle/exact/weight_bounds.h"

#include <array>
#include <cstddef>

#include "oracle/exact/dot.h"
#include "oracle/exact/score_bounds.h"

namespace samebits::oracle {
namespace {

constexpr double kU = kFp32Steps.unit;
constexpr double kFlush = kFp32Steps.flush;

// The factors of one slot: routed scale, learned scale of its expert, learned scale of all.
using Factors = std::array<double, 3>;

Factors factors_of(const RouterSpec::Weights& weights, const LearnedScales& scales, std::size_t slot) {
  const bool scaled = weights.scale_stage != ScaleStage::kOnExpertOutput;
  return {scaled ? static_cast<double>(static_cast<float>(weights.routed_scaling_factor)) : 1.0,
          scales.per_slot.empty() ? 1.0 : static_cast<double>(scales.per_slot[slot]),
          static_cast<double>(scales.global.value_or(1.0f))};
}

double with_eps(const RouterSpec::Weights& weights, double sum) {
  const auto eps = static_cast<double>(static_cast<float>(weights.eps));
  switch (weights.eps_mode) {
    case EpsMode::kAdd:
      return sum + eps;
    case EpsMode::kClampMin:
      return std::max(sum, eps);
    case EpsMode::kNone:
      break;
  }
  return sum;
}

// part / (part + others + eps), and 0 where nothing is divided by nothing.
double share(const RouterSpec::Weights& weights, double part, double others) {
  const double denominator = with_eps(weights, part + others);
  return denominator > 0.0 ? part / denominator : 0.0;
}

// The sum of k values in any order (2 k u), eps, division (4 u), three factors, and what double loses.
double weight_error(std::size_t k) {
  return (2.0 * static_cast<double>(k) + 10.0) * kU;
}

// What a weight may lose because value * scale, formed before the division, is too small: the division by D multiplies
// it. A D that is not 0 is 2^-149 or more, and its own error at most halves it. Infinite where the product may
// overflow.
double lost_before_division(const RouterSpec::Weights& weights, Interval value, Interval denominator) {
  const double scale = std::fabs(static_cast<double>(static_cast<float>(weights.routed_scaling_factor)));
  const double product = magnitude(value) * scale;
  if (weights.renormalize == Renormalize::kNone || weights.scale_stage != ScaleStage::kBeforeDivide || product == 0.0) {
    return 0.0;
  }
  if (!(product < kSafeTotal)) return std::numeric_limits<double>::infinity();
  const double least = std::min(std::fabs(denominator.lower), std::fabs(denominator.upper));
  return 2.0 * kFlush / std::max(least, 0x1p-149);
}

// A weight after its factors, of which each multiplies what was flushed before it; `lost` before the learned ones.
// Products in any order must stay finite: a router makes 0 of a weight that is not, and nothing is claimed.
Interval finished(const RouterSpec::Weights& weights, Interval weight, double relative, double lost,
                  const Factors& factors) {
  const auto& [scale, per_expert, global] = factors;
  const double product = scale * per_expert * global;
  double largest = magnitude(weight);
  for (const double factor : factors) largest *= std::max(1.0, std::fabs(factor));
  if (!std::isfinite(product) || !std::isfinite(lost) || !(largest < kSafeTotal)) return kUnbounded;
  const double flushed =
      (kFlush * (1.0 + std::fabs(scale)) + lost) * (1.0 + std::fabs(per_expert)) * (1.0 + std::fabs(global));
  const auto [low, high] = std::minmax({weight.lower * product, weight.upper * product});
  return stored(widened({low, high}, relative, flushed), weights.dtype, kFp32Steps);
}

// w_i = exp(l_i - M - log sum e^(l - M)), which is one over the sum of e^(l_j - l_i): grows with l_i, falls with the
// others. An argument that is off by d makes its exponential relatively off by d: l - M and the last difference lose u
// of their operands, which are at most |l|, |M| and log K; the sum 2 K u; the logarithm 2 ulp.
struct LogSigmoids {
  std::vector<Interval> l;
  double max = -std::numeric_limits<double>::infinity();
  Interval sum;        // of e^(l - max)
  double error = 0.0;  // relative, of a weight before its factors; 1: nothing is known

  explicit LogSigmoids(std::span<const Interval> logits) {
    double largest = 0.0;
    for (const Interval& z : logits) {
      l.push_back(log_sigmoid_bounds(z, kFp32Steps));
      largest = std::max(largest, magnitude(l.back()));
      max = std::max(max, l.back().upper);
    }
    for (const Interval& x : l) sum = {sum.lower + std::exp(x.lower - max), sum.upper + std::exp(x.upper - max)};
    const double arguments = 8.0 * (largest + std::log(static_cast<double>(l.size())) + 1.0) * kU;
    const double first_order =
        exp_error(2.0 * largest, kFp32Steps) + exp_error(largest, kFp32Steps) + arguments + weight_error(l.size());
    error = first_order < 0.5 ? first_order / (1.0 - first_order) : 1.0;
  }

  Interval share(std::size_t i) const {
    const double low = std::exp(l[i].lower - max), high = std::exp(l[i].upper - max);
    const double lost = static_cast<double>(l.size() + 1) * 0x1p-52;  // by double, in the sums that leave one out
    const double others_high = std::max(sum.upper - high, 0.0) + lost * sum.upper;
    const double others_low = std::max(sum.lower - low - lost * sum.lower, 0.0);
    return {low > 0.0 ? low / (low + others_high) : 0.0, high > 0.0 ? high / (high + others_low) : 0.0};
  }
};

// The sum of k weights that are `total` before their factors. Every weight has its own flush and, when it is stored as
// bf16, its own rounding: half an ulp, 2^-8 relative.
Interval finished_sum(const RouterSpec::Weights& weights, Interval total, double relative, double lost, std::size_t k,
                      const std::optional<float>& global) {
  const Factors factors = factors_of(weights, {.global = global}, 0);
  RouterSpec::Weights unrounded = weights;
  unrounded.dtype = FloatType::kFp32;
  double flushed = kFlush * static_cast<double>(k);
  for (const double factor : factors) flushed *= 1.0 + std::fabs(factor);
  const Interval sum = finished(unrounded, total, relative, lost * static_cast<double>(k), factors);
  return widened(sum, weights.dtype == FloatType::kBf16 ? 0x1p-8 : 0.0, flushed);
}

}  // namespace

std::vector<Interval> weight_bounds(const RouterSpec::Weights& weights, std::span<const Interval> values,
                                    Interval unseen, const LearnedScales& scales) {
  const std::size_t k = values.size();
  Interval sum = unseen;
  double total = magnitude(unseen);
  bool signed_values = unseen.lower < 0.0;
  for (const Interval& v : values) {
    sum = {sum.lower + v.lower, sum.upper + v.upper};
    total += magnitude(v);
    signed_values = signed_values || v.lower < 0.0;
  }
  // A sum that overflows makes 0 of every weight.
  if (weights.renormalize != Renormalize::kNone && !(total < kSafeTotal)) return std::vector<Interval>(k, kUnbounded);
  // Values of both signs cancel, so the error of their sum is relative to the sum of their magnitudes.
  const double error = weight_error(k);
  if (signed_values) sum = widened(sum, 0.0, error * total);
  const double lost = static_cast<double>(k + 1) * 0x1p-52 * total;  // by double, in sums that leave one value out
  const bool alone = k == 1 && unseen.upper == 0.0;
  const Interval d{with_eps(weights, sum.lower), with_eps(weights, sum.upper)};

  std::vector<Interval> bounds;
  for (std::size_t i = 0; i < k; ++i) {
    const Interval v = values[i];
    Interval weight = v;
    if (weights.renormalize != Renormalize::kNone && signed_values) {
      if (d.lower <= 0.0 && d.upper >= 0.0) {  // the sum may vanish
        bounds.push_back(kUnbounded);
        continue;
      }
      const auto [low, high] =
          std::minmax({v.lower / d.lower, v.lower / d.upper, v.upper / d.lower, v.upper / d.upper});
      weight = {low, high};
    } else if (weights.renormalize != Renormalize::kNone) {
      // Grows with its own value, falls with the others.
      const double others_high = std::max(sum.upper - v.upper, 0.0) + (alone ? 0.0 : lost);
      const double others_low = std::max(sum.lower - v.lower - lost, 0.0);
      weight = {share(weights, v.lower, others_high), share(weights, v.upper, others_low)};
    }
    bounds.push_back(
        finished(weights, weight, error, lost_before_division(weights, v, d), factors_of(weights, scales, i)));
  }
  return bounds;
}

std::vector<Interval> log_space_weight_bounds(const RouterSpec::Weights& weights, std::span<const Interval> logits,
                                              const LearnedScales& scales) {
  const LogSigmoids slots(logits);
  std::vector<Interval> bounds;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    bounds.push_back(slots.error < 1.0
                         ? finished(weights, slots.share(i), slots.error, 0.0, factors_of(weights, scales, i))
                         : kUnbounded);
  }
  return bounds;
}

Interval weight_sum_bounds(const RouterSpec::Weights& weights, std::span<const Interval> values,
                           const std::optional<float>& global) {
  Interval total;
  for (const Interval& v : values) {
    if (v.lower < 0.0) return kUnbounded;  // cancellation: the bound of each weight is what is left
    total = {total.lower + v.lower, total.upper + v.upper};
  }
  // S / (S + eps) and S / max(S, eps) grow with S; without eps the quotient is 1 whatever S is.
  double lost = 0.0;
  if (weights.renormalize != Renormalize::kNone) {
    if (!(total.upper < kSafeTotal)) return kUnbounded;
    lost = lost_before_division(weights, total, {with_eps(weights, total.lower), with_eps(weights, total.upper)});
    total = {share(weights, total.lower, 0.0), share(weights, total.upper, 0.0)};
  }
  return finished_sum(weights, total, weight_error(values.size()), lost, values.size(), global);
}

Interval log_space_weight_sum_bounds(const RouterSpec::Weights& weights, std::span<const Interval> logits,
                                     const std::optional<float>& global) {
  const LogSigmoids slots(logits);
  if (!(slots.error < 1.0)) return kUnbounded;
  return finished_sum(weights, {1.0, 1.0}, slots.error, 0.0, logits.size(), global);  // the shares sum to 1
}

}  // namespace samebits::oracle
