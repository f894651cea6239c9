// Which experts a row gets: groups and the best k keys, or the row of a table.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/common/bits.h"
#include "kernels/cpu/steps.h"

namespace samebits::cpu {

// The total order of keys: larger first, -0 = +0, NaN below -inf. Equal keys (false both ways): the lower id is first.
inline bool ranks_before(float a, float b) {
  return a > b || (is_nan(b) && !is_nan(a));
}

// indices[0 .. k) of the best k of keys[0 .. n), best first, by insertion into a short list; `excluded` (or null)
// entries never enter. before(key, listed): a key that comes later by index goes in front of a listed one.
template <class Before>
void best_keys(const float* keys, const std::uint8_t* excluded, std::int64_t n, std::int64_t k, std::int32_t* indices,
               Before before) {
  std::int64_t listed = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    if (excluded != nullptr && excluded[i] != 0) continue;
    if (listed == k && !before(keys[i], keys[indices[k - 1]])) continue;
    std::int64_t place = std::min(listed, k - 1);
    for (; place > 0 && before(keys[i], keys[indices[place - 1]]); --place) indices[place] = indices[place - 1];
    indices[place] = static_cast<std::int32_t>(i);
    listed = std::min(listed + 1, k);
  }
}

// The same for k of hundreds and more, by the total order: a heap of the best so far, O(n log k) where the list above
// takes O(n k).
void best_keys_by_heap(const float* keys, const std::uint8_t* excluded, std::int64_t n, std::int64_t k,
                       std::int32_t* indices);

// Group scores, the best topk_group groups, and the mask on the others: fills scratch.excluded, may rewrite keys.
void mask_groups(const samebits_router_spec& spec, RowScratch& scratch);

// Steps::select of tc256.
void select_tc256(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch);

}  // namespace samebits::cpu
