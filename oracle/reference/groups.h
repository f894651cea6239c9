// Step 3: which groups of E / n_group consecutive experts stay.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "oracle/reference/rank_key.h"
#include "oracle/spec/router_spec.h"

namespace samebits::oracle {

inline bool has_groups(const RouterSpec::Selection& selection) {
  return selection.n_group > 1 && selection.group_mask != GroupMask::kNone;
}

// Indices in the order of ranks_before.
template <class Real>
std::vector<std::int32_t> ranking(std::span<const Real> keys) {
  std::vector<std::int32_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return ranks_before(keys[static_cast<std::size_t>(a)], a, keys[static_cast<std::size_t>(b)], b);
  });
  return order;
}

// The best key of each group, or the sum of its two best. NaN ranks last, so it counts only where too few others exist.
template <class Real>
std::vector<Real> group_scores(const RouterSpec::Selection& selection, std::span<const Real> keys) {
  const std::size_t size = keys.size() / static_cast<std::size_t>(selection.n_group);
  std::vector<Real> scores;
  for (std::size_t first = 0; first + size <= keys.size(); first += size) {
    const std::span<const Real> members = keys.subspan(first, size);
    const std::vector<std::int32_t> order = ranking(members);
    const Real best = members[static_cast<std::size_t>(order[0])];
    if (selection.group_score == GroupScore::kTop2Sum && size > 1) {
      scores.push_back(ArithmeticOf<Real>::add(best, members[static_cast<std::size_t>(order[1])]));
    } else {
      scores.push_back(best);
    }
  }
  return scores;
}

// 1 for the topk_group best groups; a NaN group score ranks last, equal scores: the lower group.
template <class Real>
std::vector<std::uint8_t> kept_groups(const RouterSpec::Selection& selection, std::span<const Real> scores) {
  std::vector<std::uint8_t> kept(scores.size(), 0);
  const std::vector<std::int32_t> order = ranking(scores);
  const std::size_t count = std::min(order.size(), static_cast<std::size_t>(selection.topk_group));
  for (std::size_t i = 0; i < count; ++i) kept[static_cast<std::size_t>(order[i])] = 1;
  return kept;
}

}  // namespace samebits::oracle
