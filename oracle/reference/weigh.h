// Step 5: values of the chosen experts -> weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "oracle/reference/arithmetic.h"
#include "oracle/spec/router_spec.h"

namespace samebits::oracle {

template <class Real>
struct Weighed {
  std::vector<Real> values;   // [K] NaN as 0
  std::vector<Real> weights;  // [K] in the order of the values
  Real sum{};                 // S
  Real denominator{};         // D; 1 without renormalisation
};

// Learned factors, applied after everything but the last rounding.
struct LearnedScales {
  std::vector<float> per_slot = {};  // [K] per_expert_scale of the expert in each slot, or empty
  std::optional<float> global = {};
};

template <class Real>
Real routed_scale(const RouterSpec::Weights& spec) {
  return spec.scale_stage == ScaleStage::kOnExpertOutput ? 1.0f : static_cast<float>(spec.routed_scaling_factor);
}

// The last steps of a weight: learned scales, rounding to bf16; not finite: 0.
template <class Real>
Real finished_weight(const RouterSpec::Weights& spec, Real w, std::size_t slot, const LearnedScales& scales) {
  using A = ArithmeticOf<Real>;
  if (!scales.per_slot.empty()) w = A::mul(w, scales.per_slot[slot]);
  if (scales.global) w = A::mul(w, *scales.global);
  if (spec.dtype == FloatType::kBf16) w = A::round_to_bf16(w);
  return std::isfinite(w) ? w : Real{0};
}

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

// `values` are those of the K slots in slot order: S is their left fold in this order, also when the ids are returned
// sorted by index. Never NaN or Inf:
//   a NaN value counts as 0;
//   D = 0: all weights are 0, whatever the scales;
//   with +Inf among the values and renormalisation, +Inf counts as 1 and everything else as 0;
//   with +Inf and no renormalisation, the +Inf ones weigh the largest finite fp32 and the others 0, without any scale;
//   any weight that is still not finite after the last rounding is 0.
template <class Real>
Weighed<Real> weigh(const RouterSpec::Weights& spec, std::span<const Real> values, const LearnedScales& scales = {}) {
  using A = ArithmeticOf<Real>;
  constexpr Real kInf = std::numeric_limits<Real>::infinity();
  const bool renormalize = spec.renormalize != Renormalize::kNone;
  const Real scale = routed_scale<Real>(spec);

  Weighed<Real> result;
  result.values.reserve(values.size());
  result.weights.reserve(values.size());
  for (const Real x : values) result.values.push_back(std::isnan(x) ? Real{0} : x);
  std::vector<Real> s = result.values;
  const bool infinite = std::count(s.begin(), s.end(), kInf) > 0;
  if (infinite) {
    for (Real& x : s) x = x == kInf ? Real{1} : Real{0};
  }
  const std::vector<Real>& terms = renormalize ? s : result.values;
  for (std::size_t i = 0; i < terms.size(); ++i) result.sum = i == 0 ? terms[0] : A::add(result.sum, terms[i]);
  result.denominator = renormalize ? weight_denominator(spec, result.sum) : Real{1};

  for (std::size_t i = 0; i < s.size(); ++i) {
    const Real x = s[i];
    Real w = 0;
    if (infinite && !renormalize) {
      w = finished_weight<Real>(spec, x * std::numeric_limits<float>::max(), i, {});
    } else if (!renormalize) {
      w = finished_weight(spec, A::mul(x, scale), i, scales);
    } else if (result.denominator == 0) {
      w = 0;
    } else if (spec.scale_stage == ScaleStage::kBeforeDivide) {
      w = finished_weight(spec, A::div(A::mul(x, scale), result.denominator), i, scales);
    } else {
      w = finished_weight(spec, A::mul(A::div(x, result.denominator), scale), i, scales);
    }
    result.weights.push_back(w);
  }
  return result;
}

}  // namespace samebits::oracle
