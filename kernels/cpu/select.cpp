#include "kernels/cpu/select.h"

namespace samebits::cpu {
namespace {

// Maximum, or sum of the two best members, by the order of keys: NaN counts only where too few others exist.
float group_score(const samebits_router_spec& spec, const float* keys, std::int64_t group_size) {
  std::int32_t best[2];
  const std::int64_t members = spec.group_score == SAMEBITS_GROUP_SCORE_TOP2_SUM ? 2 : 1;
  best_keys(keys, nullptr, group_size, members, best, ranks_before);
  return members == 1 ? keys[best[0]] : keys[best[0]] + keys[best[1]];
}

}  // namespace

void mask_groups(const samebits_router_spec& spec, RowScratch& scratch) {
  const std::int64_t num_experts = spec.num_experts;
  std::fill_n(scratch.excluded, num_experts, std::uint8_t{0});
  if (spec.n_group <= 1) return;

  const std::int64_t group_size = num_experts / spec.n_group;
  for (std::int64_t g = 0; g < spec.n_group; ++g) {
    scratch.group_scores[g] = group_score(spec, scratch.keys + g * group_size, group_size);
  }
  for (std::int64_t g = 0; g < spec.n_group; ++g) {
    std::int64_t better = 0;
    for (std::int64_t other = 0; other < spec.n_group; ++other) {
      const float mine = scratch.group_scores[g], theirs = scratch.group_scores[other];
      better += ranks_before(theirs, mine) || (other < g && !ranks_before(mine, theirs));
    }
    if (better < spec.topk_group) continue;
    for (std::int64_t e = g * group_size; e < (g + 1) * group_size; ++e) {
      if (spec.group_mask == SAMEBITS_GROUP_MASK_ZERO) {
        scratch.keys[e] = 0.0f;
      } else {
        scratch.excluded[e] = 1;
      }
    }
  }
}

void select_tc256(const RouterConstants& constants, RowScratch& scratch) {
  mask_groups(constants.spec, scratch);
  best_keys(scratch.keys, scratch.excluded, constants.spec.num_experts, constants.spec.top_k, scratch.ids,
            ranks_before);
}

}  // namespace samebits::cpu
