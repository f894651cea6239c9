// Judging a router that declares an error bound instead of the contract's bits: every value becomes an interval, and an
// answer is refused only when no values inside the intervals could have led to it.
//
// All checks are necessary conditions: an honest router never fails one. The intervals come from oracle/exact. Not
// judged: rows with a NaN or Inf, or that may overflow; where zero experts are renamed to id 0, which of them were
// chosen (only whether that many can be among the best), which slot of id 0 is expert 0, and weights that depend on the
// others of the row through a softmax after selection or log_space_l1.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "oracle/exact/interval.h"
#include "oracle/exact/logit_bounds.h"
#include "oracle/reference/answer.h"
#include "oracle/spec/router_spec.h"
#include "properties/claims.h"

namespace samebits::properties {

using oracle::Interval;

enum class GroupState : std::uint8_t { kKept, kPossiblyKept, kRejected };

// Sizes as in oracle/spec/router_spec.h: R experts compete, G have logits, K are the columns of the answer.
struct BoundedRow {
  // false: a logit or a bias is not finite or may overflow, or the row has no answer; then nothing is claimed, and of
  // what follows only the logits of a row with an answer are filled.
  bool judged = false;
  bool exact_logits = false;       // the logits were given: they are points
  std::vector<Interval> logits;    // [G] finished logits; not finite_in_fp32 where one may be NaN or Inf
  std::vector<Interval> scores;    // [G]; empty where scores exist only after selection
  std::vector<Interval> keys;      // [R] as they compete, after a `zero` mask; empty for hash_table
  std::vector<Interval> biased;    // [R] keys before a `zero` mask: the biased scores
  std::vector<float> bias;         // [R] as it is added, or empty
  std::vector<GroupState> group;   // [R] state of the expert's group
  oracle::RowConstants constants;  // views into the tensors of the case
};

// `logits` from oracle::logit_bounds, or lower == upper == the given logits (exact_logits). `constants` from
// oracle::row_constants; a bf16 bias is rounded here. tie_rule decides between groups of equal score.
BoundedRow bound_row(const oracle::RouterSpec& spec, const oracle::LogitBounds& logits, bool exact_logits,
                     const oracle::RowConstants& constants, TieRule tie_rule);

// Two experts whose keys are equal in every honest router: equal points, or the same function of the same inputs.
bool same_key_by_construction(const BoundedRow& row, std::int64_t a, std::int64_t b);

struct Contradiction {
  std::int64_t loser;   // chosen (or placed first) although ...
  std::int64_t winner;  // ... this one certainly ranks before it; -1: another reason
  std::string reason;
};
// `ids` [K] of a judged row, each in [0, G) and, but for id 0 of renamed zero experts, distinct. nullopt: some keys
// within the intervals make them a valid choice.
std::optional<Contradiction> selection_contradiction(const oracle::RouterSpec& spec, const BoundedRow& row,
                                                     std::span<const std::int64_t> ids, TieRule tie_rule);
// The same for the order of the slots.
std::optional<Contradiction> order_contradiction(const oracle::RouterSpec& spec, const BoundedRow& row,
                                                 std::span<const std::int64_t> ids, TieRule tie_rule);

// What id 0 can stand for among `ids` where zero experts are renamed to it: zero experts alone, or expert 0 as well.
struct ReadingsOfId0 {
  bool without_expert_0 = true;
  bool with_expert_0 = true;
};
ReadingsOfId0 readings_of_id_0(const oracle::RouterSpec& spec, const BoundedRow& row, std::span<const std::int64_t> ids,
                               TieRule tie_rule);

// Where the weight of each chosen id can lie, and their sum.
std::vector<Interval> weight_bounds(const oracle::RouterSpec& spec, const BoundedRow& row,
                                    std::span<const std::int64_t> ids);
Interval weight_sum_bounds(const oracle::RouterSpec& spec, const BoundedRow& row, std::span<const std::int64_t> ids);

// Whether `winner` is chosen before `loser` in every honest router.
bool certainly_before(const BoundedRow& row, std::int64_t winner, std::int64_t loser, TieRule tie_rule);

}  // namespace samebits::properties
