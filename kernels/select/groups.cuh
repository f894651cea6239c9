// Groups of consecutive experts, of which only the best may be chosen from.
#pragma once

#include "kernels/cuda/view.h"
#include "kernels/select/order.cuh"

namespace samebits::cuda {

// Ranks the groups by their first member, or by the sum of the first two, and masks the experts of the groups behind
// the first topk_group: excluded, or with the key +0. By the whole team; the keys are visible to it before and after.
// group_ranks: scratch, [n_group].
template <class Team>
__device__ void mask_groups(Team team, const samebits_router_spec& spec, OrderedKey* keys, Rank* group_ranks) {
  const int group_size = spec.num_experts / spec.n_group;
  for (int g = team.warp(); g < spec.n_group; g += team.num_warps()) {
    const FirstTwo best = first_two(keys + g * group_size, group_size);
    const float score = spec.group_score == SAMEBITS_GROUP_SCORE_TOP2_SUM
                            ? fadd(key_of(best.first), key_of(best.second))
                            : key_of(best.first);
    if (Warp().rank() == 0) group_ranks[g] = rank_of(ordered_key(score), g);
  }
  team.sync();
  for (int e = team.rank(); e < spec.num_experts; e += team.size) {
    const Rank mine = group_ranks[e / group_size];
    int before = 0;
#pragma unroll 8
    for (int g = 0; g < spec.n_group; ++g) before += group_ranks[g] > mine ? 1 : 0;
    if (before < spec.topk_group) continue;
    keys[e] = spec.group_mask == SAMEBITS_GROUP_MASK_ZERO ? ordered_key(0.0f) : kExcluded;
  }
  team.sync();
}

}  // namespace samebits::cuda
