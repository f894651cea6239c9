// Step 2: scores or logits -> rank keys, and the one order by which keys are compared.
#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "oracle/reference/arithmetic.h"
#include "oracle/spec/router_spec.h"

namespace samebits::oracle {

// Larger first; +0 and -0 are equal; NaN below -Inf. Equal keys (two NaN too): the lower index first.
template <class Real>
bool ranks_before(Real key_a, std::int64_t index_a, Real key_b, std::int64_t index_b) {
  if (key_a > key_b) return true;
  if (key_a < key_b) return false;
  if (std::isnan(key_a) != std::isnan(key_b)) return std::isnan(key_b);
  return index_a < index_b;
}

// base + bias in one addition, so that absorbed scores are genuine ties. The base is the finished score or the finished
// logit; a spec whose scores exist only after selection ranks by logit.
template <class Real>
std::vector<Real> rank_keys(const RouterSpec& spec, std::span<const Real> logits, std::span<const Real> scores,
                            std::span<const float> selection_bias) {
  using A = ArithmeticOf<Real>;
  const bool by_logit = spec.selection.rank_by == RankBy::kLogit;
  const std::span<const Real> bases = by_logit ? logits : scores;
  std::vector<Real> keys(bases.size());
  for (std::size_t e = 0; e < keys.size(); ++e) keys[e] = A::one_nan(bases[e]);
  if (spec.selection.bias == BiasType::kNone) return keys;
  const bool rounded = spec.selection.bias == BiasType::kBf16;
  for (std::size_t e = 0; e < keys.size(); ++e) {
    const float bias = selection_bias[e];
    keys[e] = A::add(keys[e], rounded ? round_to_bf16(bias) : bias);
  }
  return keys;
}

}  // namespace samebits::oracle
