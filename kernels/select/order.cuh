// The total order of keys as an order of integers, and the first of an array in it.
#pragma once

#include <cstdint>

#include "kernels/select/threads.cuh"

namespace samebits::cuda {

// Larger ranks first: by key, +0 equal to -0 and NaN below -inf; equal keys by lower id. No two ids give the same rank.
using Rank = std::uint64_t;
inline constexpr Rank kExcluded = 0;  // below every rank

__device__ inline Rank rank_of(float key, int id) {
  const std::uint32_t bits = key == 0.0f ? 0u : to_bits(key);
  const std::uint32_t ordered = is_nan(key) ? 0u : (bits & kSignBit) != 0 ? ~bits : bits | kSignBit;
  return static_cast<Rank>(ordered) << 32 | ~static_cast<std::uint32_t>(id);
}
__device__ inline int id_of(Rank rank) {
  return static_cast<int>(~static_cast<std::uint32_t>(rank));
}
// The key, but for the sign of a zero.
__device__ inline float key_of(Rank rank) {
  const auto ordered = static_cast<std::uint32_t>(rank >> 32);
  if (ordered == 0) return from_bits(kNaNBits);
  return from_bits((ordered & kSignBit) != 0 ? ordered & ~kSignBit : ~ordered);
}

// first[0 .. count) of ranks[0 .. n), in order, and kExcluded where there are fewer. By one warp: in each round the
// lane with the first rank looks for its next one. first is visible to the warp afterwards.
__device__ inline void take_first(const Rank* ranks, int n, int count, Rank* first) {
  const int lane = Warp().rank();
  Rank mine = kExcluded;
  for (int i = lane; i < n; i += kWarpSize) mine = ranks[i] > mine ? ranks[i] : mine;
  for (int c = 0; c < count; ++c) {
    const Rank taken = largest_of_lanes(mine);
    if (lane == 0) first[c] = taken;
    if (mine != taken || taken == kExcluded) continue;
    mine = kExcluded;
    for (int i = lane; i < n; i += kWarpSize) mine = ranks[i] > mine && ranks[i] < taken ? ranks[i] : mine;
  }
  __syncwarp();
}

}  // namespace samebits::cuda
