// Step 1: logits -> scores.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "oracle/reference/arithmetic.h"
#include "oracle/spec/router_spec.h"

namespace samebits::oracle {

// e^(x - max) / sum over the given values, in their order. A NaN has a NaN score and no part in maximum or sum (its
// term is +0). With +Inf present the +Inf ones share 1; when nothing is above -Inf every score that is not NaN is 0.
template <class Real>
std::vector<Real> softmax(std::span<const Real> logits) {
  using A = ArithmeticOf<Real>;
  constexpr Real kInf = std::numeric_limits<Real>::infinity();
  Real max = -kInf;
  for (const Real x : logits) {
    if (x > max) max = x;
  }
  std::vector<Real> scores(logits.size());
  if (max == kInf) {
    for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = Real(logits[i] == kInf);
  } else if (max != -kInf) {
    std::vector<Real> differences(logits.size());
    for (std::size_t i = 0; i < scores.size(); ++i) differences[i] = A::sub(logits[i], max);
    A::exp(differences, scores);
    for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = std::isnan(logits[i]) ? Real{0} : scores[i];
  }
  const Real sum = A::sum(scores);
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (std::isnan(logits[i])) {
      scores[i] = A::nan();
    } else if (max != -kInf) {
      scores[i] = A::div(scores[i], sum);
    }
  }
  return scores;
}

// Finished scores of the given logits, rounded to bf16 when the spec says so.
// before_topk: those of the R experts that compete, or of the shared ones in the gate; after_topk: those of the K slots
// in their order.
template <class Real>
std::vector<Real> score(const RouterSpec::Score& spec, std::span<const Real> logits) {
  using A = ArithmeticOf<Real>;
  std::vector<Real> scores(logits.size());
  switch (spec.func) {
    case ScoreFunc::kSoftmax:
      scores = softmax(logits);
      break;
    case ScoreFunc::kSigmoid:
      A::sigmoid(logits, scores);
      break;
    case ScoreFunc::kSqrtSoftplus:
      A::sqrt_softplus(logits, scores);
      break;
    case ScoreFunc::kIdentity:
      for (std::size_t i = 0; i < scores.size(); ++i) scores[i] = A::one_nan(logits[i]);
      break;
  }
  if (spec.dtype == FloatType::kBf16) {
    for (Real& s : scores) s = A::round_to_bf16(s);
  }
  return scores;
}

}  // namespace samebits::oracle
