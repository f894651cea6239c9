#include "kernels/cpu/select.h"

#include "kernels/common/sizes.h"

namespace samebits::cpu {
namespace {

// ranks_before as the type of a function object, which best_keys takes in where a function pointer would be called.
constexpr auto kRanksBefore = [](float a, float b) { return ranks_before(a, b); };

// Maximum, or sum of the two best members, by the order of keys: NaN counts only where too few others exist.
float group_score(const samebits_router_spec& spec, const float* keys, std::int64_t group_size) {
  std::int32_t best[2];
  const std::int64_t members = spec.group_score == SAMEBITS_GROUP_SCORE_TOP2_SUM ? 2 : 1;
  best_keys(keys, nullptr, group_size, members, best, kRanksBefore);
  return members == 1 ? keys[best[0]] : keys[best[0]] + keys[best[1]];
}

// From this k on the heap is used. Not visible in any bit.
constexpr std::int64_t kHeapFrom = 65;

// Indices into keys in the total order, ties by index.
auto index_order(const float* keys) {
  return [keys](std::int32_t a, std::int32_t b) {
    if (ranks_before(keys[a], keys[b])) return true;
    return a < b && !ranks_before(keys[b], keys[a]);
  };
}

void best_keys_by_list_or_heap(const float* keys, const std::uint8_t* excluded, std::int64_t n, std::int64_t k,
                               std::int32_t* indices) {
  if (k >= kHeapFrom) {
    best_keys_by_heap(keys, excluded, n, k, indices);
  } else {
    best_keys(keys, excluded, n, k, indices, kRanksBefore);
  }
}

// The best k / n_group of each group, all of them in the order of keys.
void best_of_each_group(const samebits_router_spec& spec, const float* keys, std::int32_t* ids) {
  const std::int64_t group_size = ranked_experts(spec) / spec.n_group, k = spec.top_k / spec.n_group;
  for (std::int64_t g = 0; g < spec.n_group; ++g) {
    std::int32_t* of_group = ids + g * k;
    best_keys_by_list_or_heap(keys + g * group_size, nullptr, group_size, k, of_group);
    for (std::int64_t c = 0; c < k; ++c) of_group[c] += static_cast<std::int32_t>(g * group_size);
  }
  std::sort(ids, ids + spec.top_k, index_order(keys));
}

}  // namespace

void best_keys_by_heap(const float* keys, const std::uint8_t* excluded, std::int64_t n, std::int64_t k,
                       std::int32_t* indices) {
  const auto before = index_order(keys);
  std::int32_t* end = indices;  // [indices, end) is a heap whose front ranks last
  for (std::int64_t i = 0; i < n; ++i) {
    if (excluded != nullptr && excluded[i] != 0) continue;
    const auto index = static_cast<std::int32_t>(i);
    if (end - indices == k) {
      if (!before(index, *indices)) continue;
      std::pop_heap(indices, end--, before);
    }
    *end++ = index;
    std::push_heap(indices, end, before);
  }
  std::sort_heap(indices, end, before);
}

void mask_groups(const samebits_router_spec& spec, RowScratch& scratch) {
  std::fill_n(scratch.excluded, ranked_experts(spec), std::uint8_t{0});
  if (spec.n_group <= 1) return;

  const std::int64_t group_size = ranked_experts(spec) / spec.n_group;
  for (std::int64_t g = 0; g < spec.n_group; ++g) {
    scratch.group_scores[g] = group_score(spec, scratch.keys + g * group_size, group_size);
  }
  best_keys_by_heap(scratch.group_scores, nullptr, spec.n_group, spec.topk_group, scratch.groups);
  std::sort(scratch.groups, scratch.groups + spec.topk_group);
  const std::int32_t* chosen = scratch.groups;  // the next chosen group
  for (std::int64_t g = 0; g < spec.n_group; ++g) {
    if (chosen != scratch.groups + spec.topk_group && *chosen == g) {
      ++chosen;
      continue;
    }
    for (std::int64_t e = g * group_size; e < (g + 1) * group_size; ++e) {
      if (spec.group_mask == SAMEBITS_GROUP_MASK_ZERO) {
        scratch.keys[e] = 0.0f;
      } else {
        scratch.excluded[e] = 1;
      }
    }
  }
}

void select_tc256(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  const samebits_router_spec& spec = constants.spec;
  if (spec.selection_method == SAMEBITS_SELECT_HASH_TABLE) {
    std::copy_n(constants.hash_table + row.token_id * spec.top_k, spec.top_k, scratch.ids);
  } else if (spec.topk_scope == SAMEBITS_TOPK_PER_GROUP) {
    best_of_each_group(spec, scratch.keys, scratch.ids);
  } else {
    mask_groups(spec, scratch);
    best_keys_by_list_or_heap(scratch.keys, scratch.excluded, ranked_experts(spec), spec.top_k, scratch.ids);
  }
}

}  // namespace samebits::cpu
