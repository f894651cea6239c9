// The best k experts of a row whose logits are in the registers of one warp, for routers that rank by score and bias.
#pragma once

#include "kernels/cuda/elementwise.cuh"
#include "kernels/select/few_best.cuh"
#include "kernels/select/lean.h"

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

// Logits and biases, +0 where there is no bias, of a row.
template <int kKeys>
struct RowKeys {
  float logits[kKeys], biases[kKeys];
};

struct Candidate {
  float logit, bias;
  int id;
  bool key_is_zero;
};

// Scratch of a warp, and the answer: in the order of keys, experts and their scores.
struct alignas(16) RowKeysMemory {
  Rank survivors[kSurvivorRoom];
  Rank first[kFewBest];
  Candidate candidates[kMaxSurvivors];
  float survivor_scores[kMaxSurvivors];
  float first_scores[kFewBest];
};

// mask_groups for groups of lanes.
template <int kKeys>
__device__ __forceinline__ void mask_groups_of_lanes(const samebits_router_spec& spec, OrderedKey (&keys)[kKeys]) {
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
  for (int g = 0; g < spec.n_group; ++g) before += __shfl_sync(kAllLanes, mine, g * lanes) > mine ? 1 : 0;
  const OrderedKey masked = spec.group_mask == SAMEBITS_GROUP_MASK_ZERO ? ordered_key(0.0f) : kExcluded;
#pragma unroll
  for (int i = 0; i < kKeys; ++i) keys[i] = before < spec.topk_group ? keys[i] : masked;
}

// The first k of `count` survivors, which kNoRank follows up to a multiple of kRankPadding.
__device__ __forceinline__ void take_ordered(RowKeysMemory& memory, int count, int k) {
  for (int i = Warp().rank(); i < count; i += kWarpSize) {
    const int place = count_larger(memory.survivors, count, memory.survivors[i]);
    if (place < k) memory.first[place] = memory.survivors[i], memory.first_scores[place] = memory.survivor_scores[i];
  }
  __syncwarp();
}

// An estimate s of sigmoid(x), off by less than 2^-21. The exponential is within 2^-22 of its value,
// relatively, which counts s (1 - s) <= 1/4 of that; its argument x log2(e) is within |x| 2^-23, which counts
// |x| s (1 - s) < 0.23; the reciprocal and the sum before it are within 2^-23 and 2^-24 of theirs.
__device__ __forceinline__ float estimate_sigmoid(float x) {
  float power, s;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(fmul(x, -0x1.715476p+0f)));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(s) : "f"(fadd(1.0f, power)));
  return s;
}
// More than twice what an estimated key near `key` may be off by: 2^-21 for the score, and a rounding of both sums.
__device__ __forceinline__ float key_margin(float key) {
  return ffma(magnitude(key), 0x1p-22f, 0x1p-20f);
}

// Excludes the keys of the groups that are not kept. False: their estimates are too near to each other to tell.
template <int kKeys>
__device__ __forceinline__ bool mask_estimated_groups(const samebits_router_spec& spec, float (&keys)[kKeys],
                                                      bool& is_masked) {
  const int lanes = kWarpSize / spec.n_group;
  float first = -infinity(), second = -infinity();
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    second = fmaxf(second, fminf(first, keys[i]));
    first = fmaxf(first, keys[i]);
  }
  for (int distance = 1; distance < lanes; distance *= 2) {
    const float other_first = __shfl_xor_sync(kAllLanes, first, distance);
    const float other_second = __shfl_xor_sync(kAllLanes, second, distance);
    second = fmaxf(fminf(first, other_first), fmaxf(second, other_second));
    first = fmaxf(first, other_first);
  }
  const float score = spec.group_score == SAMEBITS_GROUP_SCORE_TOP2_SUM ? fadd(first, second) : first;
  int before = 0;
  for (int g = 0; g < spec.n_group; ++g) before += __shfl_sync(kAllLanes, score, g * lanes) > score ? 1 : 0;
  is_masked = before >= spec.topk_group;
  const OrderedKey ordered = ordered_key(score);
  const float last_kept = key_of(__reduce_min_sync(kAllLanes, is_masked ? ~OrderedKey{0} : ordered));
  const float first_masked = key_of(__reduce_max_sync(kAllLanes, is_masked ? ordered : ordered_key(-infinity())));
  const float masked = spec.group_mask == SAMEBITS_GROUP_MASK_ZERO ? 0.0f : -infinity();
#pragma unroll
  for (int i = 0; i < kKeys; ++i) keys[i] = is_masked ? masked : keys[i];
  // Two keys may be off, so twice the margin; no score of Inf is told apart.
  return __popc(__ballot_sync(kAllLanes, !is_masked)) == spec.topk_group * lanes &&
         fsub(last_kept, first_masked) > fmul(2.0f, key_margin(fmaxf(magnitude(last_kept), magnitude(first_masked)))) &&
         magnitude(last_kept) < infinity();
}

// The same by estimates: k experts have an estimated key of `bound` or more, so the k-th best exact key is not below
// `bound` by more than what an estimate is off, and an expert with that key or more is not below by more than twice
// that. Few are left; their exact keys decide. False: too many, or values for which this does not hold.
template <Lean kLean, int kKeys>
__device__ __forceinline__ bool choose_by_estimates(const samebits_router_spec& spec, const RowKeys<kKeys>& row, int n,
                                                    int k, RowKeysMemory& memory) {
  const int lane = Warp().rank();
  float keys[kKeys];
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    keys[i] = fadd(estimate_sigmoid(row.logits[i]), row.biases[i]);
    if (expert_of_key<kLean, kKeys>(i) >= n || is_nan(keys[i])) keys[i] = -infinity();  // NaN is the last key
  }
  bool is_masked = false;
  if (kLean == Lean::kSigmoidGroups && !mask_estimated_groups(spec, keys, is_masked)) return false;

  float largest = keys[0];
#pragma unroll
  for (int i = 1; i < kKeys; ++i) largest = fmaxf(largest, keys[i]);
  OrderedKey mine = ordered_key(largest), bound = kExcluded;
  for (int c = 0; c < k; ++c) {
    bound = __reduce_max_sync(kAllLanes, mine);
    if (mine == bound) mine = kExcluded;
  }
  const float least = key_of(bound), threshold = fsub(least, key_margin(least));
  if (bound == kExcluded || !(magnitude(least) < infinity())) return false;

  int count = 0;
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    const bool in = keys[i] >= threshold;
    const unsigned lanes = __ballot_sync(kAllLanes, in);
    const int place = count + __popc(lanes & ((1u << lane) - 1u));
    if (in && place < kMaxSurvivors)
      memory.candidates[place] = {row.logits[i], row.biases[i], expert_of_key<kLean, kKeys>(i), is_masked};
    count += __popc(lanes);
  }
  __syncwarp();
  if (count < k || count > kMaxSurvivors) return false;

  for (int i = lane; i < round_up(count, kRankPadding); i += kWarpSize) {
    memory.survivors[i] = kNoRank;
    if (i >= count) continue;
    const Candidate& candidate = memory.candidates[i];
    const float score = sigmoid_of(candidate.logit);
    const float key = candidate.key_is_zero ? 0.0f : fadd(score, candidate.bias);
    memory.survivors[i] = rank_of(ordered_key(key), candidate.id);
    memory.survivor_scores[i] = score;
  }
  __syncwarp();
  take_ordered(memory, count, k);
  return true;
}

// By exact keys: a round for each of k, whatever they are; then a faster way.
template <Lean kLean, int kKeys>
__device__ __noinline__ void take_in_rounds(const OrderedKey (&keys)[kKeys], const float (&scores)[kKeys], int k,
                                            RowKeysMemory& memory) {
  Rank limit = ~Rank{0};
  for (int c = 0; c < k; ++c) {
    Rank largest = kNoRank;
    float score = 0.0f;
#pragma unroll 1
    for (int i = 0; i < kKeys; ++i) {
      const Rank rank = rank_of(keys[i], expert_of_key<kLean, kKeys>(i));
      if (rank < limit && rank > largest) largest = rank, score = scores[i];
    }
    limit = largest_of_lanes(largest);
    if (largest == limit && limit != kNoRank) memory.first[c] = limit, memory.first_scores[c] = score;
  }
  __syncwarp();
}
template <Lean kLean, int kKeys>
__device__ __forceinline__ void take_best(const OrderedKey (&keys)[kKeys], const float (&scores)[kKeys], int k,
                                          RowKeysMemory& memory) {
  const int lane = Warp().rank();
  OrderedKey mine = keys[0], bound = kExcluded;
#pragma unroll
  for (int i = 1; i < kKeys; ++i) mine = max(mine, keys[i]);
  for (int c = 0; c < k; ++c) {
    bound = __reduce_max_sync(kAllLanes, mine);
    if (mine == bound) mine = kExcluded;
  }
  int count = 0;
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    const bool in = keys[i] >= bound && keys[i] != kExcluded;
    const unsigned lanes = __ballot_sync(kAllLanes, in);
    const int place = count + __popc(lanes & ((1u << lane) - 1u));
    if (in && place < kMaxSurvivors) {
      memory.survivors[place] = rank_of(keys[i], expert_of_key<kLean, kKeys>(i));
      memory.survivor_scores[place] = scores[i];
    }
    count += __popc(lanes);
  }
  __syncwarp();
  if (count > kMaxSurvivors) {
    OrderedKey all_keys[kKeys];  // copies, so that all others stay in registers
    float all_scores[kKeys];
#pragma unroll
    for (int i = 0; i < kKeys; ++i) all_keys[i] = keys[i], all_scores[i] = scores[i];
    take_in_rounds<kLean>(all_keys, all_scores, k, memory);
    return;
  }
  if (lane < kRankPadding) memory.survivors[count + lane] = kNoRank;
  __syncwarp();
  take_ordered(memory, count, k);
}

}  // namespace samebits::cuda
