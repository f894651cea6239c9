// Threads that share an array, and what one warp computes over it.
#pragma once

#include <cstdint>

#include "kernels/cuda/bf16.cuh"

namespace samebits::cuda {

inline constexpr int kWarpSize = 32;
inline constexpr int kSelectWarps = 8;  // of the block that routes one row
inline constexpr int kSelectThreads = kSelectWarps * kWarpSize;

// The two kinds of teams: both have rank(), size and sync(), which also orders accesses to shared memory.
struct Warp {
  static constexpr int size = kWarpSize;
  __device__ int rank() const { return static_cast<int>(threadIdx.x) % kWarpSize; }
  __device__ void sync() const { __syncwarp(); }
};
struct Block {
  static constexpr int size = kSelectThreads;
  __device__ int rank() const { return static_cast<int>(threadIdx.x); }
  __device__ int warp() const { return static_cast<int>(threadIdx.x) / kWarpSize; }
  __device__ void sync() const { __syncthreads(); }
};

inline constexpr unsigned kAllLanes = 0xffffffffu;

// Largest of x[0 .. n) that is not NaN, -inf without one; the same for all lanes of the calling warp.
__device__ inline float largest_of(const float* x, int n) {
  float largest = -infinity();
  for (int i = Warp().rank(); i < n; i += kWarpSize) largest = x[i] > largest ? x[i] : largest;
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, largest, distance);
    largest = other > largest ? other : largest;
  }
  return largest;
}

// sum32 of the contract: a lane adds its terms left to right, then lanes at distance 16, 8, 4, 2, 1 are added. The same
// for all lanes of the calling warp.
__device__ inline float add_lanes(float lane_sum) {
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    lane_sum = fadd(lane_sum, __shfl_xor_sync(kAllLanes, lane_sum, distance));
  }
  return lane_sum;
}
__device__ inline float sum32(const float* x, int n) {
  const int lane = Warp().rank();
  float sum = lane < n ? x[lane] : 0.0f;
  for (int i = lane + kWarpSize; i < n; i += kWarpSize) sum = fadd(sum, x[i]);
  return add_lanes(sum);
}

// Largest of one value a lane.
__device__ inline std::uint64_t largest_of_lanes(std::uint64_t x) {
  std::uint32_t high = static_cast<std::uint32_t>(x >> 32), low = static_cast<std::uint32_t>(x);
  const std::uint32_t largest_high = __reduce_max_sync(kAllLanes, high);
  if (high != largest_high) low = 0;
  return static_cast<std::uint64_t>(largest_high) << 32 | __reduce_max_sync(kAllLanes, low);
}

}  // namespace samebits::cuda
