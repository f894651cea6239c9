// The weights of a row by their intervals: which values belong to the slots.

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "oracle/exact/score_bounds.h"
#include "oracle/exact/sparsemixer_bounds.h"
#include "oracle/exact/weight_bounds.h"
#include "properties/certificate.h"
#include "properties/spec_features.h"

namespace samebits::properties {
namespace {

using oracle::kFp32Steps;
using oracle::RouterSpec;

bool in_log_space(const RouterSpec& spec) {
  return spec.weights.renormalize == oracle::Renormalize::kLogSpaceL1;
}

std::vector<Interval> gather(std::span<const Interval> at, std::span<const std::int64_t> ids) {
  std::vector<Interval> values;
  for (const std::int64_t id : ids) values.push_back(at[static_cast<std::size_t>(id)]);
  return values;
}

// What the weights are made of, for experts under their own ids. log_space_l1: logits.
std::vector<Interval> values_of(const RouterSpec& spec, const BoundedRow& row, std::span<const std::int64_t> ids) {
  if (in_log_space(spec)) return gather(row.logits, ids);
  if (spec.score.stage == oracle::ScoreStage::kAfterTopk) {
    return oracle::score_bounds(spec.score, gather(row.logits, ids), kFp32Steps);
  }
  if (is_sparsemixer(spec)) {
    std::vector<Interval> values = oracle::sparsemixer_bounds(
        spec.sparsemixer_jitter_eps.value(), row.logits, ids,
        [&](std::int64_t a, std::int64_t b) { return certainly_before(row, a, b, TieRule::kAny); }, kFp32Steps);
    for (Interval& value : values) value = oracle::stored(value, spec.score.dtype, kFp32Steps);
    return values;
  }
  const bool biased = spec.weights.source == oracle::WeightSource::kBiasedScore;
  return gather(biased ? row.biased : row.scores, ids);
}

oracle::LearnedScales factors_of(const BoundedRow& row, std::span<const std::int64_t> ids) {
  oracle::LearnedScales factors{.per_slot = {}, .global = row.constants.global_scale};
  if (row.constants.per_expert_scale.empty()) return factors;
  for (const std::int64_t id : ids) {
    factors.per_slot.push_back(row.constants.per_expert_scale[static_cast<std::size_t>(id)]);
  }
  return factors;
}

// The sum of the values of `count` zero experts, whichever they are.
Interval zero_expert_sum(const RouterSpec& spec, const BoundedRow& row, std::int64_t count) {
  const bool biased = spec.weights.source == oracle::WeightSource::kBiasedScore;
  const std::vector<Interval>& values = biased ? row.biased : row.scores;
  std::vector<double> lower, upper;
  for (std::int64_t z = oracle::num_experts(spec); z < oracle::ranked_experts(spec); ++z) {
    lower.push_back(values[static_cast<std::size_t>(z)].lower);
    upper.push_back(-values[static_cast<std::size_t>(z)].upper);
  }
  std::sort(lower.begin(), lower.end());
  std::sort(upper.begin(), upper.end());
  Interval sum;
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) sum = {sum.lower + lower[i], sum.upper - upper[i]};
  return sum;
}

// Of experts under their own ids, beside `renamed` zero experts.
std::vector<Interval> bounds_of(const RouterSpec& spec, const BoundedRow& row, std::span<const std::int64_t> ids,
                                std::int64_t renamed) {
  const oracle::LearnedScales factors = factors_of(row, ids);
  const bool renormalize = spec.weights.renormalize != oracle::Renormalize::kNone;
  // Scores that depend on which experts were chosen cannot be bounded from their number.
  const bool interdependent = in_log_space(spec) || spec.score.stage == oracle::ScoreStage::kAfterTopk;
  if (renamed > 0 && interdependent) return std::vector<Interval>(ids.size(), oracle::kUnbounded);
  const std::vector<Interval> values = values_of(spec, row, ids);
  if (in_log_space(spec)) return oracle::log_space_weight_bounds(spec.weights, values, factors);
  const Interval unseen = renamed > 0 && renormalize ? zero_expert_sum(spec, row, renamed) : Interval{};
  return oracle::weight_bounds(spec.weights, values, unseen, factors);
}

// How many slots carry the id of renamed zero experts, which may also be that of expert 0.
std::int64_t ambiguous_slots(const RouterSpec& spec, std::span<const std::int64_t> ids) {
  return renames_zero_experts(spec) ? std::count(ids.begin(), ids.end(), 0) : 0;
}

}  // namespace

std::vector<Interval> weight_bounds(const RouterSpec& spec, const BoundedRow& row, std::span<const std::int64_t> ids) {
  const std::int64_t ambiguous = ambiguous_slots(spec, ids);
  if (ambiguous == 0) return bounds_of(spec, row, ids, 0);

  if (ambiguous - 1 > spec.special.zero_experts) return std::vector<Interval>(ids.size(), oracle::kUnbounded);
  ReadingsOfId0 readings = readings_of_id_0(spec, row, ids, TieRule::kAny);
  if (!readings.without_expert_0 && !readings.with_expert_0) readings = {};  // the choice is wrong in any case
  if (ambiguous > spec.special.zero_experts) readings = {.without_expert_0 = false, .with_expert_0 = true};
  std::vector<std::int64_t> named;
  for (const std::int64_t id : ids) {
    if (id != 0) named.push_back(id);
  }
  std::vector<Interval> without, with;
  if (readings.without_expert_0) without = bounds_of(spec, row, named, ambiguous);
  named.push_back(0);
  if (readings.with_expert_0) with = bounds_of(spec, row, named, ambiguous - 1);
  if (!readings.with_expert_0) {  // an impossible reading adds nothing to the other
    with = without;
    with.emplace_back();
  }
  if (!readings.without_expert_0) without = with;
  const bool surely_0 = ambiguous == 1 && !readings.without_expert_0;

  std::vector<Interval> bounds;
  std::size_t next = 0;
  for (const std::int64_t id : ids) {
    if (id == 0) {  // one slot of id 0 is that of expert 0, if any
      bounds.push_back(surely_0 ? with.back() : hull(with.back(), {}));
      continue;
    }
    bounds.push_back(hull(with[next], without[next]));
    ++next;
  }
  return bounds;
}

Interval weight_sum_bounds(const RouterSpec& spec, const BoundedRow& row, std::span<const std::int64_t> ids) {
  const bool per_expert = !row.constants.per_expert_scale.empty();
  const std::int64_t ambiguous = ambiguous_slots(spec, ids);
  if (!per_expert && ambiguous == 0) {
    const std::vector<Interval> values = values_of(spec, row, ids);
    return in_log_space(spec) ? oracle::log_space_weight_sum_bounds(spec.weights, values, row.constants.global_scale)
                              : oracle::weight_sum_bounds(spec.weights, values, row.constants.global_scale);
  }
  const std::vector<Interval> bounds = weight_bounds(spec, row, ids);
  Interval sum;
  double total = 0.0;
  bool counted_0 = false;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const bool renamed = ids[i] == 0 && ambiguous > 0;
    if (renamed && counted_0) continue;  // at most one slot of id 0 has a weight
    counted_0 = counted_0 || renamed;
    sum = {sum.lower + bounds[i].lower, sum.upper + bounds[i].upper};
    total += magnitude(bounds[i]);
  }
  if (!std::isfinite(total)) return oracle::kUnbounded;
  return widened(sum, 0.0, total * static_cast<double>(ids.size()) * 0x1p-52);  // the sums in double, ours and theirs
}

}  // namespace samebits::properties
