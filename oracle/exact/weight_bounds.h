// Where the weights of a fp32 router can lie when the values that they are made of lie in intervals.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "oracle/exact/interval.h"
#include "oracle/reference/weigh.h"
#include "oracle/spec/router_spec.h"

namespace samebits::oracle {

// [K] weights of slots with the given values (chosen scores, biased or not; finite). `unseen` bounds the sum of further
// values that the sum of the router has too. Slots whose weight may overflow, or whose D may be 0 because values of
// both signs cancel, are kUnbounded.
std::vector<Interval> weight_bounds(const RouterSpec::Weights& weights, std::span<const Interval> values,
                                    Interval unseen, const LearnedScales& scales);
// The same for log_space_l1, from the logits of the slots.
std::vector<Interval> log_space_weight_bounds(const RouterSpec::Weights& weights, std::span<const Interval> logits,
                                              const LearnedScales& scales);

// The sum of the weights of all slots when there are no factors per slot: tighter than the sum of their bounds.
Interval weight_sum_bounds(const RouterSpec::Weights& weights, std::span<const Interval> values,
                           const std::optional<float>& global);
Interval log_space_weight_sum_bounds(const RouterSpec::Weights& weights, std::span<const Interval> logits,
                                     const std::optional<float>& global);

}  // namespace samebits::oracle
