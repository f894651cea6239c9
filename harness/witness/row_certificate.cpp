#include "harness/witness/row_certificate.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "oracle/exact/interval.h"
#include "oracle/exact/key_bounds.h"
#include "oracle/exact/score_bounds.h"
#include "oracle/reference/answer.h"

namespace samebits::harness {

using oracle::Interval;
using properties::TieRule;

namespace {

// Of a value times any factor from `less` to `more`, both positive.
Interval scaled(Interval value, double less, double more) {
  return {std::min(value.lower * less, value.lower * more), std::max(value.upper * less, value.upper * more)};
}

Interval rounded_more(Interval value, int roundings) {
  return scaled(value, std::pow(1.0 - kBf16Rounding, roundings), std::pow(1.0 + kBf16Rounding, roundings));
}

}  // namespace

RowCertificate::RowCertificate(const Reading& reading, const oracle::RouterInputs& inputs, std::int64_t row,
                               const oracle::LogitBounds& logits, bool exact)
    : reading_(reading),
      bounded_(properties::bound_row(reading.spec, logits, exact, oracle::row_constants(reading.spec, inputs, row),
                                     TieRule::kAny)) {
  round_scores_and_keys();
  if (reading.roundings.group > 0) open_groups();
}

void RowCertificate::round_scores_and_keys() {
  const Roundings& more = reading_.roundings;
  for (std::size_t e = 0; e < bounded_.scores.size(); ++e) {
    const Interval before = bounded_.scores[e];
    const Interval score = bounded_.scores[e] = rounded_more(before, more.score);
    if (e >= bounded_.keys.size()) continue;
    for (Interval* key : {&bounded_.keys[e], &bounded_.biased[e]}) {
      const bool by_score = reading_.spec.selection.rank_by == oracle::RankBy::kScore;
      if (by_score) *key = {key->lower - (before.lower - score.lower), key->upper + (score.upper - before.upper)};
      *key = rounded_more(*key, more.key);
    }
  }
}

std::string RowCertificate::objection(std::span<const std::int64_t> ids, std::span<const float> weights) const {
  if (!bounded_.judged) return "not judged: a bound is not finite";
  if (const auto found = properties::selection_contradiction(reading_.spec, bounded_, ids, TieRule::kAny)) {
    return found->reason;
  }
  std::vector<Interval> bounds = weight_bounds(ids);
  if (reading_.roundings.log > 0) bounds = logs_rounded(std::move(bounds), ids);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const Interval allowed = rounded_more(bounds[i], reading_.roundings.weight);
    if (allowed.contains(static_cast<double>(weights[i]))) continue;
    return fmt::format("weight {} of expert {} is outside [{}, {}]", weights[i], ids[i], allowed.lower, allowed.upper);
  }
  return {};
}

bool RowCertificate::decides(std::span<const std::int64_t> ids) const {
  if (!bounded_.judged) return false;
  const auto k = static_cast<std::size_t>(oracle::top_k(reading_.spec));
  std::vector<std::int64_t> swapped(ids.begin(), ids.end());
  std::size_t weakest = 0;
  std::vector<bool> chosen(bounded_.keys.size());
  for (std::size_t i = 0; i < k; ++i) {
    const auto id = static_cast<std::size_t>(ids[i]);
    if (id >= chosen.size()) return true;  // a table has no keys
    chosen[id] = true;
    if (bounded_.keys[id].lower < bounded_.keys[static_cast<std::size_t>(ids[weakest])].lower) weakest = i;
  }
  const bool excludes = reading_.spec.selection.group_mask == oracle::GroupMask::kNegInf;
  std::optional<std::size_t> strongest;
  for (std::size_t e = 0; e < bounded_.keys.size(); ++e) {
    if (chosen[e]) continue;
    if (excludes && bounded_.group[e] == properties::GroupState::kRejected) continue;
    if (!strongest || bounded_.keys[e].upper > bounded_.keys[*strongest].upper) strongest = e;
    if (!bounded_.group.empty() && bounded_.group[e] == properties::GroupState::kPossiblyKept) return false;
  }
  if (!strongest) return true;
  swapped[weakest] = static_cast<std::int64_t>(*strongest);
  return properties::selection_contradiction(reading_.spec, bounded_, swapped, TieRule::kAny).has_value();
}

// Groups whose score may be among the kept ones after the roundings of group scores may be kept. Under a `zero` mask
// their members then have their own key or 0.
void RowCertificate::open_groups() {
  const auto num_groups = static_cast<std::size_t>(reading_.spec.selection.n_group);
  const std::size_t size = bounded_.biased.size() / num_groups;
  std::vector<Interval> scores;
  for (std::size_t g = 0; g < num_groups; ++g) {
    const std::span members = std::span(bounded_.biased).subspan(g * size, size);
    scores.push_back(
        rounded_more(oracle::group_score_bounds(reading_.spec.selection.group_score, members, oracle::kFp32Steps),
                     reading_.roundings.group));
  }
  for (std::size_t g = 0; g < num_groups; ++g) {
    std::int64_t certainly_before = 0, possibly_before = 0;
    for (std::size_t h = 0; h < num_groups; ++h) {
      certainly_before += h != g && scores[h].lower > scores[g].upper ? 1 : 0;
      possibly_before += h != g && scores[h].upper >= scores[g].lower ? 1 : 0;
    }
    const std::int64_t kept = reading_.spec.selection.topk_group;
    if (certainly_before >= kept || possibly_before < kept) continue;
    for (std::size_t e = g * size; e < (g + 1) * size; ++e) {
      bounded_.group[e] = properties::GroupState::kPossiblyKept;
      const bool zero = reading_.spec.selection.group_mask == oracle::GroupMask::kZero;
      if (zero) bounded_.keys[e] = oracle::hull(bounded_.biased[e], {0.0, 0.0});
    }
  }
}

// A wider threshold lets more experts take part, which makes the weights of sparsemixer smaller: the extremes suffice.
std::vector<Interval> RowCertificate::weight_bounds(std::span<const std::int64_t> ids) const {
  std::vector<Interval> bounds = properties::weight_bounds(reading_.spec, bounded_, ids);
  if (reading_.roundings.threshold == 0) return bounds;
  oracle::RouterSpec spec = reading_.spec;
  const double jitter_eps = spec.sparsemixer_jitter_eps.value();
  const Interval threshold = rounded_more({jitter_eps, jitter_eps}, reading_.roundings.threshold);
  for (const double end : {threshold.lower, threshold.upper}) {
    spec.sparsemixer_jitter_eps = end;
    const std::vector<Interval> other = properties::weight_bounds(spec, bounded_, ids);
    for (std::size_t i = 0; i < bounds.size(); ++i) bounds[i] = oracle::hull(bounds[i], other[i]);
  }
  return bounds;
}

// Error of the exponent of w_i = exp(l_i - log sum exp(l)) when l, the logarithm and the difference are each rounded
// to bf16: |l_i| + sum p_j |l_j| + |log sum exp(l)| + |l_i - log sum exp(l)|, each times 2^-8, p being the softmax of
// l. An l that is off by d changes p_j by at most e^2d.
std::vector<Interval> RowCertificate::logs_rounded(std::vector<Interval> weights,
                                                   std::span<const std::int64_t> ids) const {
  std::vector<Interval> l;
  double low_sum = 0.0, high_sum = 0.0, largest = 0.0;
  for (const std::int64_t id : ids) {
    l.push_back(oracle::log_sigmoid_bounds(bounded_.logits[static_cast<std::size_t>(id)], oracle::kFp32Steps));
    low_sum += std::exp(l.back().lower);
    high_sum += std::exp(l.back().upper);
    largest = std::max(largest, oracle::magnitude(l.back()));
  }
  const Interval log_sum{std::log(low_sum), std::log(high_sum)};
  double inside = 0.0;
  for (const Interval& value : l) inside += std::exp(value.upper) / low_sum * oracle::magnitude(value);
  inside *= std::exp(2.0 * largest * kBf16Rounding);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const Interval difference{l[i].lower - log_sum.upper, l[i].upper - log_sum.lower};
    const double error = oracle::magnitude(l[i]) + inside + oracle::magnitude(log_sum) + oracle::magnitude(difference);
    const double factor = std::exp(error * kBf16Rounding * reading_.roundings.log);
    weights[i] = scaled(weights[i], 1.0 / factor, factor);
  }
  return weights;
}

}  // namespace samebits::harness
