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
  if (std::isnan(key_a) != std::isnan(key_b)) return std::isnan(key_b);
  if (!std::isnan(key_a) && key_a != key_b) return key_a > key_b;
  return index_a < index_b;
}

// base + bias in one addition, so that absorbed scores are genuine ties. The base is the finished score or the finished
// logit; a spec whose scores exist only after selection ranks by logit.
template <class Real>
std::vector<Real> rank_keys(const RouterSpec& spec, std::span<const Real> logits, std::span<const Real> scores,
                            std::span<const float> selection_bias) {
  using A = ArithmeticOf<Real>;
  const bool by_logit = spec.selection.rank_by == RankBy::kLogit;
  std::vector<Real> keys;
  for (std::size_t e = 0; e < logits.size(); ++e) {
    const Real base = A::one_nan(by_logit ? logits[e] : scores[e]);
    if (spec.selection.bias == BiasType::kNone) {
      keys.push_back(base);
    } else {
      const float bias = selection_bias[e];
      keys.push_back(A::add(base, spec.selection.bias == BiasType::kBf16 ? round_to_bf16(bias) : bias));
    }
  }
  return keys;
}

}  // namespace samebits::oracle
