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

// Lays the arrays out from `base` on, 8-byte aligned; returns the bytes they take. The host calls it with null.
SAMEBITS_HOST_DEVICE inline std::size_t lay_out_row(const RouterView& router, unsigned char* base, RowMemory& memory) {
  constexpr int kGroupCandidates = 2 * kSelectWarps;
  const int of_warps = candidates_of_warp(router) * kSelectWarps;
  std::size_t used = 0;
  const auto ranks = [&](int count) {
    Rank* here = reinterpret_cast<Rank*>(base + used);
    used += static_cast<std::size_t>(count) * sizeof(Rank);
    return here;
  };
  const auto floats = [&](int count) {
    float* here = reinterpret_cast<float*>(base + used);
    used += static_cast<std::size_t>(count) * sizeof(float);
    return here;
  };
  memory.ranks = ranks(router.ranked_experts);
  memory.group_ranks = ranks(router.spec.n_group);
  memory.candidates = ranks(of_warps < kGroupCandidates ? kGroupCandidates : of_warps);
  memory.first = ranks(router.top_k);
  memory.logits = floats(router.gate_rows);
  memory.scores = floats(router.gate_rows);
  memory.ids = reinterpret_cast<std::int32_t*>(floats(router.columns));
  memory.chosen_logits = floats(router.columns);
  memory.values = floats(router.columns);
  memory.weights = floats(router.columns);
  return used;
}

}  // namespace samebits::cuda
