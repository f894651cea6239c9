// What a block holds of its row in shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/view.h"
#include "kernels/select/order.cuh"

namespace samebits::cuda {

struct RowMemory {
  Rank* ranks;           // [R]
  Rank* group_ranks;     // [n_group]
  Rank* candidates;      // [num_candidates]
  Rank* first;           // [k]
  float* logits;         // [G]
  float* scores;         // [G]
  std::int32_t* ids;     // [K], the k chosen in slot order, then the shared experts in the gate
  float* chosen_logits;  // [K]
  float* values;         // [K]
  float* weights;        // [K]
};

// Experts that one warp looks through for the best k, and how many it may name.
SAMEBITS_HOST_DEVICE inline int experts_of_warp(const RouterView& router) {
  return static_cast<int>(ceil_div(router.ranked_experts, kSelectWarps));
}
SAMEBITS_HOST_DEVICE inline int candidates_of_warp(const RouterView& router) {
  const int experts = experts_of_warp(router);
  return router.top_k < experts ? router.top_k : experts;
}

// Byte offsets of these arrays, and the bytes of them all.
struct RowLayout {
  std::size_t ranks, group_ranks, candidates, first, logits, scores, ids, chosen_logits, values, weights, bytes;
};
SAMEBITS_HOST_DEVICE inline RowLayout row_layout(const RouterView& router) {
  constexpr int kGroupCandidates = 2 * kSelectWarps;
  const int of_warps = candidates_of_warp(router) * kSelectWarps;
  std::size_t used = 0;
  const auto take = [&](int count, std::size_t size) {
    const std::size_t offset = used;
    used += static_cast<std::size_t>(count) * size;
    return offset;
  };
  RowLayout layout;
  layout.ranks = take(router.ranked_experts, sizeof(Rank));
  layout.group_ranks = take(router.spec.n_group, sizeof(Rank));
  layout.candidates = take(of_warps < kGroupCandidates ? kGroupCandidates : of_warps, sizeof(Rank));
  layout.first = take(router.top_k, sizeof(Rank));
  layout.logits = take(router.gate_rows, sizeof(float));
  layout.scores = take(router.gate_rows, sizeof(float));
  layout.ids = take(router.columns, sizeof(std::int32_t));
  layout.chosen_logits = take(router.columns, sizeof(float));
  layout.values = take(router.columns, sizeof(float));
  layout.weights = take(router.columns, sizeof(float));
  layout.bytes = used;
  return layout;
}

// base: 8-byte aligned.
__device__ inline RowMemory row_memory(const RouterView& router, unsigned char* base) {
  const RowLayout layout = row_layout(router);
  const auto ranks = [&](std::size_t offset) { return reinterpret_cast<Rank*>(base + offset); };
  const auto floats = [&](std::size_t offset) { return reinterpret_cast<float*>(base + offset); };
  return {ranks(layout.ranks),
          ranks(layout.group_ranks),
          ranks(layout.candidates),
          ranks(layout.first),
          floats(layout.logits),
          floats(layout.scores),
          reinterpret_cast<std::int32_t*>(base + layout.ids),
          floats(layout.chosen_logits),
          floats(layout.values),
          floats(layout.weights)};
}

}  // namespace samebits::cuda
