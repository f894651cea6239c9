// The best few of a row of many experts by all warps of a block: up to 1,024 experts, two a thread, and up to 16
// chosen.
//
// Of each 32 experts, every second of 64 neighbours, the largest key is found, and of these the k-th largest: no
// smaller key is among the best k. What is left is little more than k keys, in any order; each counts those before it
// by key and id.
#pragma once

#include "kernels/cuda/elementwise.cuh"
#include "kernels/select/block_choice.cuh"
#include "kernels/select/order.cuh"
#include "kernels/select/rows_call.cuh"

namespace samebits::cuda {

inline constexpr int kWideThreads = 512, kWideKeys = 2;  // keys of a thread: of neighbours
inline constexpr int kMostWideExperts = kWideThreads * kWideKeys, kMostWideChosen = 16;
inline constexpr int kWideCandidates = 64;

// In shared memory.
struct alignas(16) WideChoice {
  Rank candidates[kWideCandidates];  // kNoRank behind the last
  float candidate_scores[kWideCandidates];
  OrderedKey largest[kWarpSize];  // of 32 experts each; then of those that are among the first k, else all ones
  OrderedKey first_largest[kWarpSize];
  float scores[kMostWideChosen];  // of the chosen, in order; +0 from k on
  std::int32_t ids[kMostWideChosen];
  int count;
  unsigned is_left;  // not 0: to lean.cuh
};

// Whether so many experts have groups of 32 enough for a bound above which few are.
inline bool can_choose_wide(int experts, int k) {
  return experts <= kMostWideExperts && k <= kMostWideChosen && 2 * ((experts + kWarpSize - 1) / kWarpSize) >= 3 * k;
}

// Once, by all threads, before the choice and a barrier.
__device__ __forceinline__ void clear_choice(const ChoiceThread& thread, WideChoice& memory) {
  const int rank = thread.rank;
  if (rank < kWideCandidates) memory.candidates[rank] = kNoRank;
  if (rank < kMostWideChosen) memory.scores[rank] = 0.0f;
  if (rank == 0) memory.count = 0, memory.is_left = 0;
}

// The first k experts of a row and their scores into memory.scores and memory.ids, visible to the block, of
// kWideThreads. Each thread has the logits of the experts kWideKeys * rank and behind, and their biases, 0 without one.
// False, and nothing is chosen: a logit is not near, too many keys are equal, or `ready` is false for a thread; the
// caller then takes the way of lean.cuh.
template <Lean kLean>
__device__ __forceinline__ bool choose_wide(const ChoiceThread& thread, const float (&logits)[kWideKeys],
                                            const float (&biases)[kWideKeys], bool ready, WideChoice& memory) {
  static_assert(kLean == Lean::kSigmoid || kLean == Lean::kSqrtSoftplus);
  const int rank = thread.rank, lane = thread.lane(), warp = thread.warp(), experts = thread.experts, k = thread.k;
  float scores[kWideKeys];
  OrderedKey keys[kWideKeys];
#pragma unroll
  for (int i = 0; i < kWideKeys; ++i) {
    scores[i] = kLean == Lean::kSqrtSoftplus ? near_sqrt_softplus_of(logits[i]) : near_sigmoid_of(logits[i]);
    const bool is_expert = kWideKeys * rank + i < experts;
    keys[i] = is_expert ? ordered_key(fadd(scores[i], biases[i])) : kExcluded;
    ready = ready && (!is_expert || is_near(logits[i]));
    const OrderedKey largest = __reduce_max_sync(kAllLanes, keys[i]);
    if (lane == 0) memory.largest[warp + i * (kWideThreads / kWarpSize)] = largest;
  }
  if (__any_sync(kAllLanes, !ready) && lane == 0) memory.is_left = 1;
  __syncthreads();

  {  // Half a warp for each of them, of which each lane compares two.
    constexpr int kHalf = kWarpSize / 2;
    const OrderedKey mine = memory.largest[rank / kHalf];
    const uint2 others = *reinterpret_cast<const uint2*>(memory.largest + 2 * (lane % kHalf));
    const unsigned half = 0xffffu << (lane & kHalf);
    const int larger = __popc(__ballot_sync(kAllLanes, others.x > mine) & half) +
                       __popc(__ballot_sync(kAllLanes, others.y > mine) & half);
    if (lane % kHalf == 0) memory.first_largest[rank / kHalf] = larger < k ? mine : ~OrderedKey{0};
  }
  __syncthreads();

  const OrderedKey bound = __reduce_min_sync(kAllLanes, memory.first_largest[lane]);
  unsigned in[kWideKeys];
  int some = 0, place = 0;
#pragma unroll
  for (int i = 0; i < kWideKeys; ++i) {
    in[i] = __ballot_sync(kAllLanes, keys[i] >= bound && keys[i] != kExcluded);
    some += __popc(in[i]);
  }
  if (some > 0) {
    if (lane == 0) place = atomicAdd(&memory.count, some);
    place = __shfl_sync(kAllLanes, place, 0);
#pragma unroll
    for (int i = 0; i < kWideKeys; ++i) {
      const int own = place + __popc(in[i] & ((1u << lane) - 1u));
      if ((in[i] >> lane & 1u) != 0 && own < kWideCandidates) {
        memory.candidates[own] = rank_of(keys[i], kWideKeys * rank + i);
        memory.candidate_scores[own] = scores[i];
      }
      place += __popc(in[i]);
    }
  }
  __syncthreads();

  constexpr int kOfCandidate = 4;  // threads, each of which compares two at a time
  const int count = memory.count;
  if (count > kWideCandidates || memory.is_left != 0) return false;
  if (warp < kWideCandidates * kOfCandidate / kWarpSize) {
    const Rank mine = memory.candidates[rank / kOfCandidate];
    int before = 0;
    for (int other = 2 * (lane % kOfCandidate); other < count; other += 2 * kOfCandidate) {
      const ulonglong2 two = *reinterpret_cast<const ulonglong2*>(memory.candidates + other);
      before += (two.x > mine ? 1 : 0) + (two.y > mine ? 1 : 0);
    }
    before += __shfl_xor_sync(kAllLanes, before, 1);
    before += __shfl_xor_sync(kAllLanes, before, 2);
    if (lane % kOfCandidate == 0 && before < k && mine != kNoRank) {
      memory.scores[before] = memory.candidate_scores[rank / kOfCandidate];
      memory.ids[before] = id_of(mine);
    }
  }
  __syncthreads();
  return true;
}

// The column of the chosen of this rank, below k.
__device__ __forceinline__ void write_chosen(int rank, const Column& column, const ColumnRule& rule,
                                             const WideChoice& choice) {
  const float weight = weight_of(choice.scores[rank], sum_in_order<kMostWideChosen>(choice.scores), rule);
  if (rule.rare == 0 || rule.rare == kSlots) {
    *reinterpret_cast<std::int32_t*>(column.id) = choice.ids[rank];
    *reinterpret_cast<float*>(column.weight) = is_finite(weight) ? weight : 0.0f;
    if (rule.rare != 0) *column.slot = choice.ids[rank];
  } else {
    write_rare_column(rule.rare, column, choice.ids[rank], weight);
  }
}

}  // namespace samebits::cuda
