// Step 5: values of the chosen experts -> weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "oracle/reference/arithmetic.h"
#include "oracle/spec/router_spec.h"

namespace samebits::oracle {

template <class Real>
struct Weighed {
  std::vector<Real> weights;  // [K] in the order of the values
  Real sum{};                 // S
  Real denominator{};         // D; 1 without renormalisation
};

template <class Real>
Real weight_denominator(const RouterSpec::Weights& spec, Real sum) {
  const Real eps = static_cast<float>(spec.eps);
  switch (spec.eps_mode) {
    case EpsMode::kAdd:
      return ArithmeticOf<Real>::add(sum, eps);
    case EpsMode::kClampMin:
      return sum > eps ? sum : eps;
    case EpsMode::kNone:
      break;
  }
  return sum;
}

// `values` are the scores of the chosen in slot order, that is key descending: S is their left fold in this order, also
// when the ids are returned sorted by index. Never NaN or Inf:
//   a NaN value counts as 0;
//   with +Inf among the values and renormalisation, +Inf counts as 1 and everything else as 0;
//   with +Inf and no renormalisation, the +Inf ones weigh the largest finite fp32 (not scaled), everything else 0;
//   any weight that is still not finite after the last rounding is 0.
template <class Real>
Weighed<Real> weigh(const RouterSpec::Weights& spec, std::span<const Real> values) {
  using A = ArithmeticOf<Real>;
  constexpr Real kInf = std::numeric_limits<Real>::infinity();
  const bool renormalize = spec.renormalize != Renormalize::kNone;
  const Real scale =
      spec.scale_stage == ScaleStage::kOnExpertOutput ? 1.0f : static_cast<float>(spec.routed_scaling_factor);

  std::vector<Real> s(values.begin(), values.end());
  for (Real& x : s) {
    if (std::isnan(x)) x = 0;
  }
  const bool infinite = std::count(s.begin(), s.end(), kInf) > 0;
  if (infinite) {
    for (Real& x : s) x = x == kInf ? Real{1} : Real{0};
  }

  Weighed<Real> result;
  for (std::size_t i = 0; i < s.size(); ++i) result.sum = i == 0 ? s[0] : A::add(result.sum, s[i]);
  result.denominator = renormalize ? weight_denominator(spec, result.sum) : Real{1};

  for (const Real x : s) {
    Real w = 0;
    if (infinite && !renormalize) {
      w = x * std::numeric_limits<float>::max();
    } else if (!renormalize) {
      w = A::mul(x, scale);
    } else if (result.denominator == 0) {
      w = 0;
    } else if (spec.scale_stage == ScaleStage::kBeforeDivide) {
      w = A::div(A::mul(x, scale), result.denominator);
    } else {
      w = A::mul(A::div(x, result.denominator), scale);
    }
    if (spec.dtype == FloatType::kBf16) w = A::round_to_bf16(w);
    result.weights.push_back(std::isfinite(w) ? w : Real{0});
  }
  return result;
}

}  // namespace samebits::oracle
