// The best k experts of a row by exact keys, by one warp with the keys in its registers: for what row_choice.cuh
// leaves, whatever the keys are, in a round for each of k.
#pragma once

#include "kernels/cuda/elementwise.cuh"
#include "kernels/select/lean.cuh"

namespace samebits::cuda {

// Key i of a lane belongs to expert 32 i + lane; where there are groups, to expert kKeys lane + i, so that the keys of
// a group are those of consecutive lanes.
template <Lean kLean, int kKeys>
__device__ __forceinline__ int expert_of_key(int i) {
  return kLean == Lean::kSigmoidGroups ? kKeys * Warp().rank() + i : i * kWarpSize + Warp().rank();
}
// Whether the groups of a router can be taken so: 256 experts in 8 groups have 8 keys a lane and 4 lanes a group.
SAMEBITS_HOST_DEVICE inline bool has_groups_of_lanes(const samebits_router_spec& spec, int keys) {
  return spec.num_experts == keys * kWarpSize && kWarpSize % spec.n_group == 0;
}

// Of groups of lanes, whether this lane's is behind those that are kept.
template <int kKeys>
__device__ __forceinline__ bool is_masked(const samebits_router_spec& spec, const OrderedKey (&keys)[kKeys]) {
  const int lanes = kWarpSize / spec.n_group;
  FirstTwo best{kExcluded, kExcluded};
#pragma unroll
  for (int i = 0; i < kKeys; ++i) best = {max(best.first, keys[i]), max(best.second, min(best.first, keys[i]))};
  for (int distance = 1; distance < lanes; distance *= 2) {
    const OrderedKey first = __shfl_xor_sync(kAllLanes, best.first, distance);
    const OrderedKey second = __shfl_xor_sync(kAllLanes, best.second, distance);
    best = {max(best.first, first), max(min(best.first, first), max(best.second, second))};
  }
  const float score = spec.group_score == SAMEBITS_GROUP_SCORE_TOP2_SUM ? fadd(key_of(best.first), key_of(best.second))
                                                                        : key_of(best.first);
  const Rank mine = rank_of(ordered_key(score), Warp().rank() / lanes);
  int before = 0;
#pragma unroll 1
  for (int g = 0; g < spec.n_group; ++g) before += __shfl_sync(kAllLanes, mine, g * lanes) > mine ? 1 : 0;
  return before >= spec.topk_group;
}

// softmax of score.cuh, of a row in registers, -inf behind the last expert.
template <int kKeys>
__device__ __forceinline__ void softmax_of_row(const float (&x)[kKeys], float (&y)[kKeys]) {
  float largest = -infinity();
#pragma unroll 1
  for (int i = 0; i < kKeys; ++i) largest = x[i] > largest ? x[i] : largest;
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, largest, distance);
    largest = other > largest ? other : largest;
  }
  float lane_sum = 0.0f;
#pragma unroll 1
  for (int i = 0; i < kKeys; ++i) {
    const float term = largest == infinity() ? (x[i] == infinity() ? 1.0f : 0.0f) : exp_of(fsub(x[i], largest));
    y[i] = is_nan(x[i]) || largest == -infinity() ? 0.0f : term;
    lane_sum = fadd(lane_sum, y[i]);  // no term is -0, so one that does not count changes nothing
  }
  const float sum = add_lanes(lane_sum);
#pragma unroll 1
  for (int i = 0; i < kKeys; ++i) {
    if (is_nan(x[i])) {
      y[i] = from_bits(kNaNBits);
    } else if (largest != -infinity()) {
      y[i] = fdiv(y[i], sum);
    }
  }
}

// The columns of a row with an answer. logits: as they come, of which `finish` makes the row's; bias: null for none.
// The arrays are in local memory, as their loops are not unrolled: little code for what is rare.
template <Lean kLean, int kKeys>
__device__ __noinline__ void select_row_by_rounds(const RouterView& router, const CallView& call, std::int64_t row,
                                                  const float* bias) {
  const int n = router.gate_rows, k = router.top_k;
  const bool is_given = call.given_logits != nullptr;
  const float* logits =
      is_given ? call.given_logits + row * call.given_logits_stride : call.sums + row * router.padded_gate_rows;
  float scores[kKeys];
  OrderedKey keys[kKeys];
  {
    float x[kKeys];
#pragma unroll 1
    for (int i = 0; i < kKeys; ++i) {
      const int expert = expert_of_key<kLean, kKeys>(i);
      x[i] = expert < n ? canonical(logits[expert]) : -infinity();
      if (!is_given) x[i] = lean_logit(router, x[i]);
      if constexpr (kLean != Lean::kSoftmax)
        scores[i] = kLean == Lean::kSqrtSoftplus ? sqrt_softplus_of(x[i]) : sigmoid_of(x[i]);
    }
    if constexpr (kLean == Lean::kSoftmax) softmax_of_row(x, scores);
  }
#pragma unroll 1
  for (int i = 0; i < kKeys; ++i) {
    const int expert = expert_of_key<kLean, kKeys>(i);
    keys[i] = expert < n ? ordered_key(bias == nullptr ? scores[i] : fadd(scores[i], bias[expert])) : kExcluded;
  }
  if constexpr (kLean == Lean::kSigmoidGroups) {
    const OrderedKey masked = router.spec.group_mask == SAMEBITS_GROUP_MASK_ZERO ? ordered_key(0.0f) : kExcluded;
    const bool is_out = is_masked(router.spec, keys);
#pragma unroll 1
    for (int i = 0; i < kKeys; ++i) keys[i] = is_out ? masked : keys[i];
  }

  Rank limit = ~Rank{0};
  int id = 0;
  float score = 0.0f;
#pragma unroll 1
  for (int c = 0; c < k; ++c) {
    Rank largest = kNoRank;
    float its_score = 0.0f;
#pragma unroll 1
    for (int i = 0; i < kKeys; ++i) {
      const Rank rank = rank_of(keys[i], expert_of_key<kLean, kKeys>(i));
      if (rank < limit && rank > largest) largest = rank, its_score = scores[i];
    }
    limit = largest_of_lanes(largest);
    const unsigned holder = __ballot_sync(kAllLanes, largest == limit);
    its_score = __shfl_sync(kAllLanes, its_score, __ffs(static_cast<int>(holder)) - 1);
    if (Warp().rank() == c) id = id_of(limit), score = its_score;
  }
  lean_write(router, call, row, id, score);
}

}  // namespace samebits::cuda
