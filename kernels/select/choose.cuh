// Which experts a row gets.
#pragma once

#include "kernels/select/groups.cuh"
#include "kernels/select/row.cuh"
#include "kernels/select/score.cuh"

namespace samebits::cuda {

// The best k of all: each warp names the best of its share of the experts, one warp the best of those.
__device__ inline void choose_among_all(Block block, const RouterView& router, const RowMemory& memory) {
  const int share = experts_of_warp(router), count = candidates_of_warp(router);
  const int begin = block.warp() * share, end = min(begin + share, router.ranked_experts);
  take_first(memory.ranks + begin, max(end - begin, 0), count, memory.candidates + block.warp() * count);
  block.sync();
  if (block.warp() == 0) take_first(memory.candidates, kSelectWarps * count, router.top_k, memory.first);
}

// The best k / n_group of each group, all of them in order.
__device__ inline void choose_of_each_group(Block block, const RouterView& router, const RowMemory& memory) {
  const int num_groups = router.spec.n_group;
  const int group_size = router.ranked_experts / num_groups, count = router.top_k / num_groups;
  for (int g = block.warp(); g < num_groups; g += kSelectWarps) {
    take_first(memory.ranks + g * group_size, group_size, count, memory.candidates + g * count);
  }
  block.sync();
  if (block.warp() == 0) take_first(memory.candidates, router.top_k, router.top_k, memory.first);
}

// ids[0 .. K), visible to the block afterwards. Scores and logits are visible to it before. bias: see rank_key;
// table_row: the row of the hash table, or null.
__device__ inline void choose_experts(Block block, const RouterView& router, const float* bias,
                                      const std::int32_t* table_row, const RowMemory& memory) {
  const samebits_router_spec& spec = router.spec;
  if (table_row == nullptr) {
    for (int e = block.rank(); e < router.ranked_experts; e += block.size) {
      memory.ranks[e] = rank_of(rank_key(spec, bias, memory.logits, memory.scores, e), e);
    }
    block.sync();
    if (spec.topk_scope == SAMEBITS_TOPK_PER_GROUP) {
      choose_of_each_group(block, router, memory);
    } else {
      if (spec.n_group > 1) mask_groups(block, spec, memory);
      choose_among_all(block, router, memory);
    }
  }
  if (block.warp() == 0) {
    for (int c = Warp().rank(); c < router.columns; c += kWarpSize) {
      const int shared_expert = router.ranked_experts + c - router.top_k;
      memory.ids[c] = c >= router.top_k ? shared_expert : table_row != nullptr ? table_row[c] : id_of(memory.first[c]);
    }
  }
  block.sync();
}

}  // namespace samebits::cuda
