// Step 5 for log_space_l1 (Inkling): sigmoids normalised as logarithms, which do not underflow.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "oracle/reference/weigh.h"

namespace samebits::oracle {

// log(sigmoid(x)) = min(x, 0) - log(1 + e^-|x|).
template <class Real>
Real log_sigmoid(Real x) {
  using A = ArithmeticOf<Real>;
  if (std::isnan(x)) return A::nan();
  return A::sub(std::min(x, Real{0}), A::log1p(A::exp(-std::fabs(x))));
}

// `logits` of the K slots in their order. w = e^(l - M - log D) times the scales, l = log sigmoid, M the largest l that
// is not NaN, D the sum of e^(l - M); a NaN counts as 0. Nothing above -Inf: D = 0 and all weights are 0.
template <class Real>
Weighed<Real> weigh_in_log_space(const RouterSpec::Weights& spec, std::span<const Real> logits,
                                 const LearnedScales& scales) {
  using A = ArithmeticOf<Real>;
  constexpr Real kInf = std::numeric_limits<Real>::infinity();
  std::vector<Real> l;
  Real max = -kInf;
  for (const Real x : logits) {
    l.push_back(log_sigmoid(x));
    if (l.back() > max) max = l.back();
  }
  Weighed<Real> result;
  if (max == -kInf) {
    result.values.assign(l.size(), Real{0});
    result.weights.assign(l.size(), Real{0});
    return result;
  }
  for (const Real x : l) result.values.push_back(std::isnan(x) ? Real{0} : A::exp(A::sub(x, max)));
  result.sum = result.denominator = A::sum(result.values);
  const Real log_sum = A::log(result.denominator);
  for (std::size_t i = 0; i < l.size(); ++i) {
    const Real share = std::isnan(l[i]) ? Real{0} : A::exp(A::sub(A::sub(l[i], max), log_sum));
    result.weights.push_back(finished_weight(spec, A::mul(share, routed_scale<Real>(spec)), i, scales));
  }
  return result;
}

}  // namespace samebits::oracle
