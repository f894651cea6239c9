// Error budget, with u the unit of one rounding: exp and division as in the header; one addition or multiplication u;
// a sum of n terms in any order, online rescaling included, 2 n u. Results below the smallest normal number may be
// flushed to zero, so every such result also has that absolute slack. With kFormula the same budgets cover the
// evaluation in double.
//
// A fp32 result below 2^-150 is 0, flushed or not: this is what makes a sum of scores vanish. But a score is reached
// through several results: the exponential, perhaps its rescaling by another one, and a quotient. Each may round what
// is above 2^-150 up to 2^-149, at most twice as much. So a score is 0 in every router where its exponential, before
// any division, is below a fourth of 2^-150; above that, and where only the quotient is so small, it may also be a few
// times 2^-149.

#include "oracle/exact/score_bounds.h"

#include <cstddef>

#include "oracle/reference/arithmetic.h"

namespace samebits::oracle {
namespace {

double sigmoid(double x) {
  return ArithmeticOf<double>::sigmoid(x);
}
double softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
}

// exp enters 1 / (1 + e^-x) with the factor 1 - s; then one add and one division, with a rounding each.
Interval sigmoid_bounds(Interval x, const Steps& steps) {
  const auto error = [&](double v) {
    return exp_error(v, steps) * (1.0 - sigmoid(v)) + 2.0 * steps.unit + division_error(steps);
  };
  if (sigmoid(x.upper) * (1.0 + error(x.upper)) < steps.vanishes) return {0.0, 0.0};
  return non_negative({widened({sigmoid(x.lower), 0.0}, error(x.lower), steps.flush).lower,
                       widened({0.0, sigmoid(x.upper)}, error(x.upper), steps.flush).upper});
}

// log1p(e^x) changes at most as much as e^x does, relatively; then log1p (2 ulp), the add of max(x, 0) and the root
// (1 ulp). The flush happens under the root. The root halves what came before it; the whole is kept.
Interval sqrt_softplus_bounds(Interval x, const Steps& steps) {
  const auto error = [&](double v) { return exp_error(std::min(v, 0.0), steps) + 8.0 * steps.unit; };
  // sqrt(softplus(x)) is less than e^(x/2).
  if (std::exp(x.upper / 2.0) * (1.0 + error(x.upper)) < steps.vanishes) return {0.0, 0.0};
  const Interval under_root{std::max(softplus(x.lower) - steps.flush, 0.0), softplus(x.upper) + steps.flush};
  return {std::sqrt(under_root.lower) * (1.0 - error(x.lower)), std::sqrt(under_root.upper) * (1.0 + error(x.upper))};
}

// s_i grows with its own logit and falls with every other one.
std::vector<Interval> softmax_bounds(std::span<const Interval> x, const Steps& steps) {
  const std::size_t n = x.size();
  double max = -std::numeric_limits<double>::infinity(), least_max = max;
  for (const Interval& v : x) {
    max = std::max(max, v.upper);
    least_max = std::max(least_max, v.lower);
  }

  std::vector<double> low(n), high(n);
  double low_sum = 0.0, high_sum = 0.0, argument = 0.0;
  for (std::size_t i = 0; i < n; ++i) {
    low[i] = std::exp(x[i].lower - max);
    high[i] = std::exp(x[i].upper - max);
    low_sum += low[i];
    high_sum += high[i];
    argument += high[i] * (max - x[i].lower);
  }
  // Of the denominator: each exp with its own argument, weighted by its share, and the sum itself.
  const double sum_error = (4.0 + 2.4 * argument / low_sum + 2.0 * static_cast<double>(n)) * steps.unit;
  // The sum of the others as a difference, whatever double lost in it.
  const double lost = static_cast<double>(n) * 0x1p-52;

  std::vector<Interval> scores(n);
  for (std::size_t i = 0; i < n; ++i) {
    const double first_order = exp_error(max - x[i].lower, steps) + sum_error + division_error(steps);
    if (!(first_order < 0.5)) {  // intervals so wide that nothing is known: a score is at most 1, up to a few roundings
      scores[i] = {0.0, 1.0 + (4.0 + 2.0 * static_cast<double>(n)) * steps.unit};
      continue;
    }
    const double error = first_order / (1.0 - first_order);
    const double others_high = std::max(high_sum - high[i], 0.0) + lost * high_sum;
    const double others_low = std::max(low_sum - low[i] - lost * low_sum, 0.0);
    const Interval exact{low[i] / (low[i] + others_high), high[i] / (high[i] + others_low)};
    const bool zero = std::exp(x[i].upper - least_max) * (1.0 + error) < steps.vanishes;
    scores[i] = zero ? Interval{0.0, 0.0} : non_negative(widened(exact, error, steps.flush));
  }
  return scores;
}

}  // namespace

Interval stored(Interval value, FloatType dtype, const Steps& steps) {
  if (dtype != FloatType::kBf16) return value;
  const Interval rounded = rounded_to_bf16(value, steps);
  return steps.formula ? rounded : hull(value, rounded);
}

std::vector<Interval> score_bounds(const RouterSpec::Score& spec, std::span<const Interval> logits,
                                   const Steps& steps) {
  std::vector<Interval> scores;
  if (spec.func == ScoreFunc::kSoftmax) {
    scores = softmax_bounds(logits, steps);
  } else {
    for (const Interval& x : logits) {
      switch (spec.func) {
        case ScoreFunc::kSigmoid:
          scores.push_back(sigmoid_bounds(x, steps));
          break;
        case ScoreFunc::kSqrtSoftplus:
          scores.push_back(sqrt_softplus_bounds(x, steps));
          break;
        case ScoreFunc::kSoftmax:
        case ScoreFunc::kIdentity:
          scores.push_back(x);
          break;
      }
    }
  }
  for (Interval& score : scores) score = stored(score, spec.dtype, steps);
  return scores;
}

// |l| = max(-x, 0) + log1p(e^-|x|), both terms non-negative: exp and log1p (2 ulp) are relative errors of the second,
// which is all of it above 0; below, |x| e^-|x| < 1 of |l| bounds the error of the argument. The addition is one of
// the whole.
Interval log_sigmoid_bounds(Interval x, const Steps& steps) {
  const auto value = [](double v) { return -softplus(-v); };
  const auto error = [&](double v) { return exp_error(std::max(v, 0.0), steps) + 8.0 * steps.unit; };
  return {widened({value(x.lower), 0.0}, error(x.lower), steps.flush).lower,
          widened({0.0, value(x.upper)}, error(x.upper), steps.flush).upper};
}

}  // namespace samebits::oracle
