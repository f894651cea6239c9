// Step 4: the top_k best experts that are not excluded.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "oracle/reference/groups.h"

namespace samebits::oracle {

struct Selected {
  std::vector<std::int32_t> ids;  // [K], best key first
  std::int32_t first_rejected = -1;
};

// An excluded expert is never chosen. A valid spec leaves at least K others; should fewer be left, -1 fills the rest.
template <class Real>
Selected select(std::span<const Real> keys, std::span<const std::uint8_t> excluded, std::int64_t top_k) {
  std::vector<std::int32_t> order = ranking(keys);
  std::erase_if(order, [&](std::int32_t e) { return excluded[static_cast<std::size_t>(e)] != 0; });
  const std::size_t k = static_cast<std::size_t>(top_k);
  Selected selected;
  if (order.size() > k) selected.first_rejected = order[k];
  order.resize(k, -1);
  selected.ids = std::move(order);
  return selected;
}

}  // namespace samebits::oracle
