// The total order of keys as an order of integers, and the first of an array in it.
#pragma once

#include <cstdint>

#include "kernels/select/threads.cuh"

namespace samebits::cuda {

// Larger first: by key, +0 equal to -0 and NaN below -inf.
using OrderedKey = std::uint32_t;
inline constexpr OrderedKey kExcluded = 0, kOrderedNaN = 1;  // -inf is 0x007fffff

__device__ inline OrderedKey ordered_key(float key) {
  if (is_nan(key)) return kOrderedNaN;
  const std::uint32_t bits = key == 0.0f ? 0u : to_bits(key);
  return (bits & kSignBit) != 0 ? ~bits : bits | kSignBit;
}
// The key, but for the sign of a zero; of an expert that is not excluded.
__device__ inline float key_of(OrderedKey ordered) {
  if (ordered == kOrderedNaN) return from_bits(kNaNBits);
  return from_bits((ordered & kSignBit) != 0 ? ordered & ~kSignBit : ~ordered);
}

// Larger ranks first: by key, equal keys by lower id. No two ids give the same rank, but for those that are excluded.
using Rank = std::uint64_t;
inline constexpr Rank kNoRank = 0;  // below every rank

__device__ inline Rank rank_of(OrderedKey key, int id) {
  return key == kExcluded ? kNoRank : static_cast<Rank>(key) << 32 | ~static_cast<std::uint32_t>(id);
}
__device__ inline int id_of(Rank rank) {
  return static_cast<int>(~static_cast<std::uint32_t>(rank));
}

// first[0 .. count) of rank_at(0 .. n), in order, and kNoRank where there are fewer. By one warp, for any n and count:
// in each round the lane with the first rank looks for its next one. first is visible to the warp afterwards.
template <class RankAt>
__device__ void take_first(RankAt rank_at, int n, int count, Rank* first) {
  const int lane = Warp().rank();
  const auto largest_below = [&](Rank limit) {
    Rank largest = kNoRank;
    for (int i = lane; i < n; i += kWarpSize) {
      const Rank rank = rank_at(i);
      if (rank < limit && rank > largest) largest = rank;
    }
    return largest;
  };
  Rank mine = largest_below(~Rank{0});
  for (int c = 0; c < count; ++c) {
    const Rank taken = largest_of_lanes(mine);
    if (lane == 0) first[c] = taken;
    if (mine == taken && taken != kNoRank) mine = largest_below(taken);
  }
  __syncwarp();
}

// Those of ranks[0 .. n), which are 16-byte aligned and followed by kNoRank up to a multiple of kRankPadding, that are
// larger.
inline constexpr int kRankPadding = 8;
__device__ inline int count_larger(const Rank* ranks, int n, Rank than) {
  int larger = 0;
  for (int j = 0; j < n; j += kRankPadding) {
#pragma unroll
    for (int pair = 0; pair < kRankPadding / 2; ++pair) {
      const ulonglong2 others = *reinterpret_cast<const ulonglong2*>(ranks + j + 2 * pair);
      larger += (others.x > than ? 1 : 0) + (others.y > than ? 1 : 0);
    }
  }
  return larger;
}

// The same for few ranks, each of which counts those before it. ranks: 16-byte aligned, with room for kRankPadding
// more, which this overwrites; visible to the warp afterwards.
__device__ inline void order_few(Rank* ranks, int n, int count, Rank* first) {
  if (Warp().rank() < kRankPadding) ranks[n + Warp().rank()] = kNoRank;
  __syncwarp();
  for (int i = Warp().rank(); i < n; i += kWarpSize) {
    const Rank mine = ranks[i];
    const int place = count_larger(ranks, n, mine);
    if (place < count && mine != kNoRank) first[place] = mine;
  }
  __syncwarp();
}

// The first two of keys[0 .. n), equal ones counted apart, kExcluded where there are fewer; by one warp, the same for
// all lanes.
struct FirstTwo {
  OrderedKey first, second;
};
__device__ inline FirstTwo first_two(const OrderedKey* keys, int n) {
  OrderedKey first = kExcluded, second = kExcluded;
  for (int i = Warp().rank(); i < n; i += kWarpSize) {
    const OrderedKey key = keys[i];
    second = max(second, min(first, key));
    first = max(first, key);
  }
  const OrderedKey largest = __reduce_max_sync(kAllLanes, first);
  const int holder = __ffs(static_cast<int>(__ballot_sync(kAllLanes, first == largest))) - 1;
  if (Warp().rank() == holder) first = second;
  return {largest, __reduce_max_sync(kAllLanes, first)};
}

}  // namespace samebits::cuda
