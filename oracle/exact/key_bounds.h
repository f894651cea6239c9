// Where rank keys and group scores can lie.
#pragma once

#include <span>
#include <vector>

#include "oracle/exact/interval.h"
#include "oracle/spec/router_spec.h"

namespace samebits::oracle {

// The selection bias [R] as it is added: rounded to bf16 when the spec says so. Empty without one.
std::vector<float> added_bias(const RouterSpec::Selection& selection, std::span<const float> bias);

// Keys [R] before a `zero` mask: score, or logit where the spec ranks by it, plus the bias of added_bias. `logits` and
// `scores` may have shared experts behind the R that compete; scores that do not exist before selection are empty.
std::vector<Interval> key_bounds(const RouterSpec& spec, std::span<const Interval> logits,
                                 std::span<const Interval> scores, std::span<const float> bias, const Steps& steps);

// Largest key of a group, or the sum of the two largest.
Interval group_score_bounds(GroupScore rule, std::span<const Interval> keys, const Steps& steps);

}  // namespace samebits::oracle
