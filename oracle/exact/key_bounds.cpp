#include "oracle/exact/key_bounds.h"

#include <functional>

namespace samebits::oracle {
namespace {

double below(double value) {
  return std::nextafter(value, -std::numeric_limits<double>::infinity());
}
double above(double value) {
  return std::nextafter(value, std::numeric_limits<double>::infinity());
}

// One addition. A sum in double was itself rounded, so it is moved by one step, unless it is that of two points and
// exact. An fp32 router rounds it to fp32: equal keys of different scores (absorbed by a large bias) become points.
Interval sum(Interval a, Interval b, const Steps& steps) {
  const bool exact =
      a.is_point() && b.is_point() && a.lower + b.lower - a.lower == b.lower && a.lower + b.lower - b.lower == a.lower;
  const Interval total = exact ? Interval{a.lower + b.lower, a.upper + b.upper}
                               : Interval{below(a.lower + b.lower), above(a.upper + b.upper)};
  return steps.formula ? total : rounded_to_fp32(total);
}

}  // namespace

std::vector<float> added_bias(const RouterSpec::Selection& selection, std::span<const float> bias) {
  std::vector<float> added;
  for (const float b : bias) added.push_back(selection.bias == BiasType::kBf16 ? round_to_bf16(b) : b);
  return added;
}

std::vector<Interval> key_bounds(const RouterSpec& spec, std::span<const Interval> logits,
                                 std::span<const Interval> scores, std::span<const float> bias, const Steps& steps) {
  const bool by_logit = spec.selection.rank_by == RankBy::kLogit || scores.empty();
  const auto base = (by_logit ? logits : scores).first(static_cast<std::size_t>(ranked_experts(spec)));
  std::vector<Interval> keys(base.begin(), base.end());
  for (std::size_t e = 0; e < bias.size(); ++e) {
    const auto b = static_cast<double>(bias[e]);
    keys[e] = sum(keys[e], {b, b}, steps);
  }
  return keys;
}

Interval group_score_bounds(GroupScore rule, std::span<const Interval> keys, const Steps& steps) {
  std::vector<double> lower, upper;
  for (const Interval& key : keys) {
    lower.push_back(key.lower);
    upper.push_back(key.upper);
  }
  std::sort(lower.begin(), lower.end(), std::greater<>());
  std::sort(upper.begin(), upper.end(), std::greater<>());
  if (rule != GroupScore::kTop2Sum || keys.size() < 2) return {lower[0], upper[0]};
  return sum({lower[0], upper[0]}, {lower[1], upper[1]}, steps);
}

}  // namespace samebits::oracle
