// The best few of many keys, by one warp and without a round for each.
//
// A lane holds the largest key of every 32nd expert. k lanes hold a key no smaller than the k-th largest of these 32,
// so no smaller key can be among the best k: what is left is little more than k keys, and each counts those before it.
#pragma once

#include "kernels/select/order.cuh"

namespace samebits::cuda {

inline constexpr int kFewBest = kWarpSize;  // the most that is asked for
inline constexpr int kMaxSurvivors = 2 * kFewBest;
inline constexpr int kSurvivorRoom = kMaxSurvivors + kRankPadding;  // ranks that the scratch memory holds
inline constexpr int kKeysAtOnce = 4;                               // of a lane

// The k-th largest of one value a lane; values is scratch of 32, 16-byte aligned.
__device__ inline OrderedKey kth_of_lanes(OrderedKey mine, int k, OrderedKey* values) {
  values[Warp().rank()] = mine;
  __syncwarp();
  int larger = 0;
#pragma unroll
  for (int i = 0; i < kWarpSize; i += 4) {
    const uint4 others = *reinterpret_cast<const uint4*>(values + i);
    larger +=
        (others.x > mine ? 1 : 0) + (others.y > mine ? 1 : 0) + (others.z > mine ? 1 : 0) + (others.w > mine ? 1 : 0);
  }
  __syncwarp();
  return __reduce_min_sync(kAllLanes, larger < k ? mine : ~OrderedKey{0});
}

// Appends the ranks of the keys that are wanted to survivors[count ..) in the order of ids, as far as they fit. Returns
// the count, of those that did not fit too.
template <class Wanted>
__device__ __forceinline__ int append_survivors(const OrderedKey* keys, int n, Wanted wanted, int count,
                                                Rank* survivors) {
  const int lane = Warp().rank();
  for (int first = lane; first - lane < n; first += kKeysAtOnce * kWarpSize) {
    OrderedKey some[kKeysAtOnce];
#pragma unroll
    for (int i = 0; i < kKeysAtOnce; ++i) some[i] = first + i * kWarpSize < n ? keys[first + i * kWarpSize] : kExcluded;
#pragma unroll
    for (int i = 0; i < kKeysAtOnce; ++i) {
      const bool in = some[i] != kExcluded && wanted(some[i]);
      const unsigned lanes = __ballot_sync(kAllLanes, in);
      const int place = count + __popc(lanes & ((1u << lane) - 1u));
      if (in && place < kMaxSurvivors) survivors[place] = rank_of(some[i], first + i * kWarpSize);
      count += __popc(lanes);
    }
  }
  return count;
}

// first[0 .. k) of keys[0 .. n), in order, as take_first gives them; k up to kFewBest. survivors: scratch of
// kSurvivorRoom ranks, 16-byte aligned. By one warp.
__device__ inline void take_few_best(const OrderedKey* keys, int n, int k, Rank* survivors, Rank* first) {
  OrderedKey largest = kExcluded;
  for (int first = Warp().rank(); first < n; first += kKeysAtOnce * kWarpSize) {
#pragma unroll
    for (int i = 0; i < kKeysAtOnce; ++i) {
      if (first + i * kWarpSize < n) largest = max(largest, keys[first + i * kWarpSize]);
    }
  }
  const OrderedKey bound = kth_of_lanes(largest, k, reinterpret_cast<OrderedKey*>(survivors));
  int count = append_survivors(
      keys, n, [bound](OrderedKey key) { return key >= bound; }, 0, survivors);
  if (count > kMaxSurvivors) {
    // Many keys are equal to the bound, of which those of the lowest ids are enough, or a lane has many of the best.
    __syncwarp();  // other lanes write these places again
    count = append_survivors(
        keys, n, [bound](OrderedKey key) { return key > bound; }, 0, survivors);
    if (count > kMaxSurvivors) {
      take_first([keys](int i) { return rank_of(keys[i], i); }, n, k, first);
      return;
    }
    count = append_survivors(
        keys, n, [bound](OrderedKey key) { return key == bound; }, count, survivors);
  }
  __syncwarp();
  order_few(survivors, min(count, kMaxSurvivors), k, first);
}

}  // namespace samebits::cuda
