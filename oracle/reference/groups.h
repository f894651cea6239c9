// Step 3: which groups of E / n_group consecutive experts stay.
#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "oracle/reference/rank_key.h"
#include "oracle/spec/router_spec.h"

namespace samebits::oracle {

inline bool has_groups(const RouterSpec::Selection& selection) {
  return selection.n_group > 1 && selection.group_mask != GroupMask::kNone;
}

// The `count` first of `indices` in the order of ranks_before, or all where there are fewer.
template <class Real>
std::vector<std::int32_t> first_ranked(std::vector<std::int32_t> indices, std::span<const Real> keys,
                                       std::size_t count) {
  count = std::min(count, indices.size());
  std::partial_sort(indices.begin(), indices.begin() + static_cast<std::ptrdiff_t>(count), indices.end(),
                    [&](std::int32_t a, std::int32_t b) {
                      return ranks_before(keys[static_cast<std::size_t>(a)], a, keys[static_cast<std::size_t>(b)], b);
                    });
  indices.resize(count);
  return indices;
}
// The same of all indices into `keys`.
template <class Real>
std::vector<std::int32_t> first_ranked(std::span<const Real> keys, std::size_t count) {
  std::vector<std::int32_t> indices(keys.size());
  std::iota(indices.begin(), indices.end(), 0);
  return first_ranked(std::move(indices), keys, count);
}

// The best key of each group, or the sum of its two best. NaN ranks last, so it counts only where too few others exist.
template <class Real>
std::vector<Real> group_scores(const RouterSpec::Selection& selection, std::span<const Real> keys) {
  const std::size_t size = keys.size() / static_cast<std::size_t>(selection.n_group);
  std::vector<Real> scores;
  for (std::size_t first = 0; first + size <= keys.size(); first += size) {
    const std::span<const Real> members = keys.subspan(first, size);
    const std::vector<std::int32_t> order = first_ranked(members, 2);
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
  for (const std::int32_t group : first_ranked(scores, static_cast<std::size_t>(selection.topk_group))) {
    kept[static_cast<std::size_t>(group)] = 1;
  }
  return kept;
}

}  // namespace samebits::oracle
