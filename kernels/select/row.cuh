// What a block holds of its row in shared memory.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/view.h"
#include "kernels/select/few_best.cuh"

namespace samebits::cuda {

struct RowMemory {
  Rank* candidates;      // [num_candidates], 16-byte aligned
  Rank* group_ranks;     // [n_group]
  Rank* first;           // [k]
  OrderedKey* keys;      // [R]
  float* bias;           // [R], the row's selection bias; not there without one
  float* logits;         // [G]
  float* scores;         // [G]
  std::int32_t* ids;     // [K], the k chosen in slot order, then the shared experts in the gate
  float* chosen_logits;  // [K]
  float* values;         // [K]
  float* weights;        // [K]
};

// Where every warp looks through its share of the experts: how many these are, and how many of them it names.
SAMEBITS_HOST_DEVICE inline int experts_of_warp(const RouterView& router, int num_warps) {
  return static_cast<int>(ceil_div(router.ranked_experts, num_warps));
}
SAMEBITS_HOST_DEVICE inline int candidates_of_warp(const RouterView& router, int num_warps) {
  const int experts = experts_of_warp(router, num_warps);
  return router.top_k < experts ? router.top_k : experts;
}

// Byte offsets of these arrays, and the bytes of them all.
struct RowLayout {
  std::size_t candidates, group_ranks, first, keys, bias, logits, scores, ids, chosen_logits, values, weights, bytes;
};
SAMEBITS_HOST_DEVICE inline RowLayout row_layout(const RouterView& router, int num_warps) {
  const int of_warps = candidates_of_warp(router, num_warps) * num_warps;
  std::size_t used = 0;
  const auto take = [&](int count, std::size_t size) {
    const std::size_t offset = used;
    used += static_cast<std::size_t>(count) * size;
    return offset;
  };
  RowLayout layout;
  layout.candidates = take((of_warps < kMaxSurvivors ? kMaxSurvivors : of_warps) + kRankPadding, sizeof(Rank));
  layout.group_ranks = take(router.spec.n_group, sizeof(Rank));
  layout.first = take(router.top_k, sizeof(Rank));
  layout.keys = take(router.ranked_experts, sizeof(OrderedKey));
  layout.bias = take(router.selection_bias == nullptr ? 0 : router.ranked_experts, sizeof(float));
  layout.logits = take(router.gate_rows, sizeof(float));
  layout.scores = take(router.gate_rows, sizeof(float));
  layout.ids = take(router.columns, sizeof(std::int32_t));
  layout.chosen_logits = take(router.columns, sizeof(float));
  layout.values = take(router.columns, sizeof(float));
  layout.weights = take(router.columns, sizeof(float));
  layout.bytes = used;
  return layout;
}

// base: 16-byte aligned.
__device__ inline RowMemory row_memory(const RouterView& router, int num_warps, unsigned char* base) {
  const RowLayout layout = row_layout(router, num_warps);
  const auto ranks = [&](std::size_t offset) { return reinterpret_cast<Rank*>(base + offset); };
  const auto floats = [&](std::size_t offset) { return reinterpret_cast<float*>(base + offset); };
  return {ranks(layout.candidates),     ranks(layout.group_ranks),
          ranks(layout.first),          reinterpret_cast<OrderedKey*>(base + layout.keys),
          floats(layout.bias),          floats(layout.logits),
          floats(layout.scores),        reinterpret_cast<std::int32_t*>(base + layout.ids),
          floats(layout.chosen_logits), floats(layout.values),
          floats(layout.weights)};
}

}  // namespace samebits::cuda
