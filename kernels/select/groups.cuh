// Groups of consecutive experts, of which only the best may be chosen from.
#pragma once

#include "kernels/select/row.cuh"

namespace samebits::cuda {

// Ranks the groups by their first member, or by the sum of the first two, and masks the experts of the groups behind
// the first topk_group: excluded, or with the key +0. By the whole block; the ranks are visible to it before and after.
__device__ inline void mask_groups(Block block, const samebits_router_spec& spec, const RowMemory& memory) {
  const int group_size = spec.num_experts / spec.n_group;
  const int members = spec.group_score == SAMEBITS_GROUP_SCORE_TOP2_SUM ? 2 : 1;
  Rank* first = memory.candidates + 2 * block.warp();
  for (int g = block.warp(); g < spec.n_group; g += kSelectWarps) {
    take_first(memory.ranks + g * group_size, group_size, members, first);
    if (Warp().rank() == 0) {
      const float key = key_of(first[0]);
      memory.group_ranks[g] = rank_of(members == 1 ? key : fadd(key, key_of(first[1])), g);
    }
    __syncwarp();
  }
  block.sync();
  for (int e = block.rank(); e < spec.num_experts; e += block.size) {
    const Rank mine = memory.group_ranks[e / group_size];
    int before = 0;
    for (int g = 0; g < spec.n_group; ++g) before += memory.group_ranks[g] > mine;
    if (before < spec.topk_group) continue;
    memory.ranks[e] = spec.group_mask == SAMEBITS_GROUP_MASK_ZERO ? rank_of(0.0f, e) : kExcluded;
  }
  block.sync();
}

}  // namespace samebits::cuda
