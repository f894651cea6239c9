// Which experts a row gets.
#pragma once

#include "kernels/select/few_best.cuh"
#include "kernels/select/groups.cuh"
#include "kernels/select/row.cuh"
#include "kernels/select/score.cuh"

namespace samebits::cuda {

// first[0 .. k), visible to the first warp: the best k of all. By the whole block.
__device__ inline void choose_among_all(Block block, const RouterView& router, const RowMemory& memory) {
  if (router.top_k <= kFewBest) {
    if (block.warp() == 0)
      take_few_best(memory.keys, router.ranked_experts, router.top_k, memory.candidates, memory.first);
    return;
  }
  // Each warp names the best of its share of the experts, one warp the best of those.
  const int share = experts_of_warp(router, block.num_warps()), count = candidates_of_warp(router, block.num_warps());
  const int begin = block.warp() * share, end = min(begin + share, router.ranked_experts);
  take_first([&](int i) { return rank_of(memory.keys[begin + i], begin + i); }, max(end - begin, 0), count,
             memory.candidates + block.warp() * count);
  block.sync();
  if (block.warp() == 0) order_few(memory.candidates, block.num_warps() * count, router.top_k, memory.first);
}

// The best k / n_group of each group, all of them in order.
__device__ inline void choose_of_each_group(Block block, const RouterView& router, const RowMemory& memory) {
  const int num_groups = router.spec.n_group;
  const int group_size = router.ranked_experts / num_groups, count = router.top_k / num_groups;
  for (int g = block.warp(); g < num_groups; g += block.num_warps()) {
    const int begin = g * group_size;
    take_first([&](int i) { return rank_of(memory.keys[begin + i], begin + i); }, group_size, count,
               memory.candidates + g * count);
  }
  block.sync();
  if (block.warp() == 0) order_few(memory.candidates, router.top_k, router.top_k, memory.first);
}

// ids[0 .. K), visible to the first warp afterwards. A thread reads the scores and logits of the experts that it keeps,
// every size-th. bias: see rank_key; table_row: the row of the hash table, or null.
__device__ inline void choose_experts(Block block, const RouterView& router, const float* bias,
                                      const std::int32_t* table_row, const RowMemory& memory) {
  const samebits_router_spec& spec = router.spec;
  if (table_row == nullptr) {
    for (int e = block.rank(); e < router.ranked_experts; e += block.size) {
      memory.keys[e] = ordered_key(rank_key(spec, bias, memory.logits, memory.scores, e));
    }
    block.sync();
    if (spec.topk_scope == SAMEBITS_TOPK_PER_GROUP) {
      choose_of_each_group(block, router, memory);
    } else {
      if (spec.n_group > 1) mask_groups(block, spec, memory.keys, memory.group_ranks);
      choose_among_all(block, router, memory);
    }
  } else {
    block.sync();
  }
  if (block.warp() != 0) return;
  for (int c = Warp().rank(); c < router.columns; c += kWarpSize) {
    const int shared_expert = router.ranked_experts + c - router.top_k;
    memory.ids[c] = c >= router.top_k ? shared_expert : table_row != nullptr ? table_row[c] : id_of(memory.first[c]);
  }
  __syncwarp();
}

}  // namespace samebits::cuda
