// Step 4: the top_k best experts that are not excluded, and the cut between chosen and rejected.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "oracle/reference/groups.h"

namespace samebits::oracle {

struct Selected {
  std::vector<std::int32_t> ids;  // [k], best key first
  std::int32_t last_chosen = -1;
  std::int32_t first_rejected = -1;
};

// An excluded expert is never chosen. A valid spec leaves at least k others; should fewer be left, -1 fills the rest.
template <class Real>
Selected select(std::span<const Real> keys, std::span<const std::uint8_t> excluded, std::int64_t top_k) {
  std::vector<std::int32_t> left;
  left.reserve(keys.size());
  for (std::size_t e = 0; e < keys.size(); ++e) {
    if (excluded[e] == 0) left.push_back(static_cast<std::int32_t>(e));
  }
  const std::size_t k = static_cast<std::size_t>(top_k);
  std::vector<std::int32_t> order = first_ranked(std::move(left), keys, k + 1);
  Selected selected;
  if (order.size() > k) selected.first_rejected = order[k];
  order.resize(k, -1);
  selected.last_chosen = order.empty() ? -1 : order.back();
  selected.ids = std::move(order);
  return selected;
}

// Difference of two keys at a cut, the larger given first. Equal ones, two NaN or two infinities, are 0 apart.
template <class Real>
Real key_gap(Real chosen, Real rejected) {
  const bool equal = chosen == rejected || (std::isnan(chosen) && std::isnan(rejected));
  if (equal) return 0;
  const Real gap = chosen - rejected;
  return std::isnan(gap) ? std::numeric_limits<Real>::infinity() : gap;
}

// top_k / n_group from each group of consecutive experts. The cut is that of the group where the two keys are nearest.
template <class Real>
Selected select_per_group(std::span<const Real> keys, std::int64_t n_group, std::int64_t top_k) {
  const std::size_t size = keys.size() / static_cast<std::size_t>(n_group);
  const std::vector<std::uint8_t> none_excluded(size, 0);
  Selected selected;
  Real nearest = 0;
  for (std::size_t first = 0; first < keys.size(); first += size) {
    const std::span<const Real> members = keys.subspan(first, size);
    const Selected of_group = select<Real>(members, none_excluded, top_k / n_group);
    const auto offset = static_cast<std::int32_t>(first);
    for (const std::int32_t id : of_group.ids) selected.ids.push_back(offset + id);
    if (of_group.first_rejected < 0) continue;
    const Real gap = key_gap(members[static_cast<std::size_t>(of_group.last_chosen)],
                             members[static_cast<std::size_t>(of_group.first_rejected)]);
    if (selected.first_rejected >= 0 && gap >= nearest) continue;
    nearest = gap;
    selected.last_chosen = offset + of_group.last_chosen;
    selected.first_rejected = offset + of_group.first_rejected;
  }
  std::sort(selected.ids.begin(), selected.ids.end(), [&](std::int32_t a, std::int32_t b) {
    return ranks_before(keys[static_cast<std::size_t>(a)], a, keys[static_cast<std::size_t>(b)], b);
  });
  if (selected.first_rejected < 0) selected.last_chosen = selected.ids.empty() ? -1 : selected.ids.back();
  return selected;
}

}  // namespace samebits::oracle
