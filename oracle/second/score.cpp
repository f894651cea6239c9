#include "oracle/second/score.h"

#include <limits>

namespace samebits::second {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Ball dtype_of_score(const RouterSpec& spec, Ball score) {
  return spec.score.dtype == oracle::FloatType::kBf16 ? rounded(score, kBf16) : score;
}

Ball elementwise(const RouterSpec& spec, const Functions& functions, const Ball& logit) {
  switch (spec.score.func) {
    case oracle::ScoreFunc::kSigmoid:
      return functions.sigmoid(logit);
    case oracle::ScoreFunc::kSqrtSoftplus:
      return functions.sqrt_softplus(logit);
    case oracle::ScoreFunc::kIdentity:
    case oracle::ScoreFunc::kSoftmax:
      break;
  }
  return logit;
}

// e^(x_i - m) / sum, m the largest x that is not NaN. NaN stays NaN and adds +0. With m = +Inf, the infinite ones are 1
// and the rest 0; with m = -Inf or without a number, every score that is not NaN is 0.
std::vector<Ball> softmax(const Functions& functions, const std::vector<Ball>& x) {
  Ball greatest = exact(-kInfinity);
  for (const Ball& value : x) {
    if (is_unknown(value)) return std::vector<Ball>(x.size(), unknown());
    if (!is_nan(value)) greatest = maximum(greatest, value);
  }
  std::vector<Ball> terms;
  for (const Ball& value : x) {
    if (is_nan(value) || is_negative_infinity(greatest)) {
      terms.push_back(exact(0));
    } else if (is_positive_infinity(greatest)) {
      terms.push_back(exact(is_positive_infinity(value) ? 1 : 0));
    } else {
      terms.push_back(functions.exp(subtract(value, greatest)));
    }
  }
  const Ball sum = sum32(terms);
  std::vector<Ball> result;
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (is_nan(x[i])) {
      result.push_back(x[i]);
    } else {
      result.push_back(is_negative_infinity(greatest) ? exact(0) : divide(terms[i], sum));
    }
  }
  return result;
}

// Yes, no, or undecided within the bounds.
enum class Answer { kYes, kNo, kUndecided };

// Whether (t - z) / max(|z|, t) > 2 eps; never for NaN.
Answer exceeds(const Ball& t, const Ball& z, const Ball& threshold) {
  if (is_unknown(t) || is_unknown(z)) return Answer::kUndecided;
  if (is_nan(t) || is_nan(z)) return Answer::kNo;
  const Ball quotient = divide(subtract(t, z), maximum(absolute(z), t));
  if (is_unknown(quotient)) return Answer::kUndecided;
  if (is_nan(quotient)) return Answer::kNo;
  if (is_exact(quotient)) return mpfr_greater_p(quotient.center, threshold.center) != 0 ? Answer::kYes : Answer::kNo;
  Real gap;
  mpfr_sub(gap, quotient.center, threshold.center, MPFR_RNDN);
  if (mpfr_cmp_d(gap, quotient.radius * 1.01) > 0) return Answer::kYes;
  return mpfr_cmp_d(gap, -quotient.radius * 1.01) < 0 ? Answer::kNo : Answer::kUndecided;
}

// Pass i keeps the logits near that of the i-th chosen; the experts chosen before it no longer count.
std::vector<Ball> sparsemixer(const RouterSpec& spec, const Functions& functions, const std::vector<Ball>& logits,
                              std::span<const std::int32_t> chosen, bool& certain) {
  const Ball threshold = multiply(exact(2), exact(static_cast<float>(spec.sparsemixer_jitter_eps.value())));
  const auto experts = static_cast<std::size_t>(oracle::ranked_experts(spec));
  std::vector<Ball> result;
  for (std::size_t pass = 0; pass < chosen.size(); ++pass) {
    const auto id = static_cast<std::size_t>(chosen[pass]);
    std::vector<Ball> kept(logits.begin(), logits.begin() + static_cast<std::ptrdiff_t>(experts));
    for (std::size_t j = 0; j < experts; ++j) {
      const Answer answer = j == id ? Answer::kNo : exceeds(logits[id], logits[j], threshold);
      if (answer == Answer::kUndecided) certain = false;
      if (answer == Answer::kYes) kept[j] = exact(-kInfinity);
    }
    for (std::size_t earlier = 0; earlier < pass; ++earlier) {
      kept[static_cast<std::size_t>(chosen[earlier])] = exact(-kInfinity);
    }
    result.push_back(dtype_of_score(spec, softmax(functions, kept)[id]));
  }
  return result;
}

}  // namespace

bool scores_the_chosen(const RouterSpec& spec) {
  return spec.score.stage == oracle::ScoreStage::kAfterTopk ||
         spec.selection.method == oracle::SelectionMethod::kSparsemixer;
}

std::vector<Ball> scores(const RouterSpec& spec, const Functions& functions, const std::vector<Ball>& logits) {
  std::vector<Ball> result;
  if (spec.score.func == oracle::ScoreFunc::kSoftmax) {
    const auto experts = static_cast<std::ptrdiff_t>(oracle::ranked_experts(spec));
    result = softmax(functions, {logits.begin(), logits.begin() + experts});
    result.resize(logits.size(), exact(0));
  } else {
    for (const Ball& logit : logits) result.push_back(elementwise(spec, functions, logit));
  }
  for (Ball& score : result) score = dtype_of_score(spec, score);
  return result;
}

std::vector<Ball> chosen_scores(const RouterSpec& spec, const Functions& functions, const std::vector<Ball>& logits,
                                std::span<const std::int32_t> chosen, bool& certain) {
  if (spec.selection.method == oracle::SelectionMethod::kSparsemixer) {
    return sparsemixer(spec, functions, logits, chosen, certain);
  }
  std::vector<Ball> of_chosen;
  for (const std::int32_t id : chosen) of_chosen.push_back(logits[static_cast<std::size_t>(id)]);
  std::vector<Ball> result;
  if (spec.score.func == oracle::ScoreFunc::kSoftmax) {
    result = softmax(functions, of_chosen);
  } else {
    for (const Ball& logit : of_chosen) result.push_back(elementwise(spec, functions, logit));
  }
  for (Ball& score : result) score = dtype_of_score(spec, score);
  return result;
}

}  // namespace samebits::second
