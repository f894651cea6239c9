// Where the scores of sparsemixer can lie.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "oracle/exact/interval.h"

namespace samebits::oracle {

// One score for each of the distinct `ids`, which need not be in the order of their logits: an expert whose pass it may
// have been in, because its place in the order or its distance from the threshold is inside the bounds, makes the
// interval wider. certainly_before(a, b): expert a is chosen before b whenever both are.
std::vector<Interval> sparsemixer_bounds(double jitter_eps, std::span<const Interval> logits,
                                         std::span<const std::int64_t> ids,
                                         const std::function<bool(std::int64_t, std::int64_t)>& certainly_before,
                                         const Steps& steps);

}  // namespace samebits::oracle
