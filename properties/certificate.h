// Judging a router that declares an error bound instead of the contract's bits: every value becomes an interval, and an
// answer is refused only when no values inside the intervals could have led to it.
//
// All checks are necessary conditions: an honest router never fails one. The intervals of the logits come from
// oracle/exact; what the steps after them may add is derived in certificate.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "oracle/exact/logit_bounds.h"
#include "oracle/spec/router_spec.h"
#include "properties/claims.h"

namespace samebits::properties {

struct Interval {
  double lower = 0.0;
  double upper = 0.0;
  bool contains(double value) const { return lower <= value && value <= upper; }
};

enum class GroupState : std::uint8_t { kKept, kPossiblyKept, kRejected };

struct BoundedRow {
  // false: a logit or a bias is not finite, or may overflow; then nothing below is filled and nothing is claimed.
  bool judged = false;
  bool exact_logits = false;      // the logits were given: they are points
  std::vector<Interval> logits;   // [E] finished logits
  std::vector<Interval> scores;   // [E]; empty for after_topk
  std::vector<Interval> keys;     // [E] as they compete, after a `zero` mask
  std::vector<Interval> biased;   // [E] keys before a `zero` mask: the biased scores
  std::vector<float> bias;        // [E] as it is added, or empty
  std::vector<GroupState> group;  // [E] state of the expert's group
};

// `logits` from oracle::logit_bounds, or lower == upper == the given logits (exact_logits). `selection_bias`: [E] or
// empty; rounded here when the spec says bf16. tie_rule decides between groups of equal score.
BoundedRow bound_row(const oracle::RouterSpec& spec, oracle::LogitBounds logits, bool exact_logits,
                     std::span<const float> selection_bias, TieRule tie_rule);

// Two experts whose keys are equal in every honest router: equal points, or the same function of the same inputs.
bool same_key_by_construction(const BoundedRow& row, std::int64_t a, std::int64_t b);

struct Contradiction {
  std::int64_t loser;   // chosen (or placed first) although ...
  std::int64_t winner;  // ... this one certainly ranks before it; -1: another reason
  std::string reason;
};
// nullopt: some keys within the intervals make `ids` (distinct, in range) a valid choice.
std::optional<Contradiction> selection_contradiction(const oracle::RouterSpec& spec, const BoundedRow& row,
                                                     std::span<const std::int64_t> ids, TieRule tie_rule);
// The same for the order of the slots.
std::optional<Contradiction> order_contradiction(const oracle::RouterSpec& spec, const BoundedRow& row,
                                                 std::span<const std::int64_t> ids, TieRule tie_rule);

// Where the weight of each chosen id can lie, and their sum.
std::vector<Interval> weight_bounds(const oracle::RouterSpec& spec, const BoundedRow& row,
                                    std::span<const std::int64_t> ids);
Interval weight_sum_bounds(const oracle::RouterSpec& spec, const BoundedRow& row, std::span<const std::int64_t> ids);

}  // namespace samebits::properties
