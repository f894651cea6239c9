// Sparsemixer (Phi-3.5): one score for each chosen expert, each from a pass of its own over all experts.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "oracle/reference/score.h"

namespace samebits::oracle {

// Scores of `ids`, which are in the order of their logits. In pass i the logits of the i ids before are -Inf, and t is
// that of ids[i]; expert j takes part unless (t - z_j) / max(|z_j|, t) > 2 jitter_eps, z_j being the logit as it was.
// A NaN quotient (0 / 0, Inf / Inf) takes part. The score is the softmax over those that do.
template <class Real>
std::vector<Real> sparsemixer_scores(double jitter_eps, std::span<const Real> logits,
                                     std::span<const std::int32_t> ids) {
  using A = ArithmeticOf<Real>;
  const Real threshold = A::mul(Real{2}, static_cast<float>(jitter_eps));
  std::vector<Real> left(logits.begin(), logits.end());  // without those that earlier passes chose
  std::vector<Real> scores;
  for (const std::int32_t id : ids) {
    const Real t = left[static_cast<std::size_t>(id)];
    std::vector<Real> pass = left;
    for (std::size_t j = 0; j < pass.size(); ++j) {
      const Real distance = A::div(A::sub(t, logits[j]), std::max(std::fabs(logits[j]), t));
      if (distance > threshold) pass[j] = -std::numeric_limits<Real>::infinity();
    }
    scores.push_back(softmax<Real>(pass)[static_cast<std::size_t>(id)]);
    left[static_cast<std::size_t>(id)] = -std::numeric_limits<Real>::infinity();
  }
  return scores;
}

}  // namespace samebits::oracle
