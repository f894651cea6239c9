// Threads that share an array, and what one warp computes over it.
#pragma once

#include <cstdint>

#include "kernels/cuda/bf16.cuh"
#include "kernels/plan/plan.h"

namespace samebits::cuda {

inline constexpr int kWarpSize = 32;
inline constexpr int kMaxSelectThreads = 512;  // of the block that routes one row

// A thread an expert, in whole warps, as far as that goes.
SAMEBITS_HOST_DEVICE constexpr int select_threads(int gate_rows) {
  const int threads = static_cast<int>(round_up(gate_rows, kWarpSize));
  return threads < kMaxSelectThreads ? threads : kMaxSelectThreads;
}

// The two kinds of teams: both have rank(), size, warp(), num_warps() and sync(), which also orders accesses to shared
// memory; sync_all(x) is a sync that returns whether x is true for all threads.
struct Warp {
  static constexpr int size = kWarpSize;
  __device__ int rank() const { return static_cast<int>(threadIdx.x % kWarpSize); }
  __device__ int warp() const { return 0; }
  __device__ int num_warps() const { return 1; }
  __device__ void sync() const { __syncwarp(); }
  __device__ bool sync_all(bool x) const { return __all_sync(0xffffffffu, x ? 1 : 0) != 0; }
};
struct Block {
  int size;
  __device__ Block() : size(static_cast<int>(blockDim.x)) {}
  __device__ int rank() const { return static_cast<int>(threadIdx.x); }
  __device__ int warp() const { return static_cast<int>(threadIdx.x / kWarpSize); }
  __device__ int num_warps() const { return size / kWarpSize; }
  __device__ void sync() const { __syncthreads(); }
  __device__ bool sync_all(bool x) const { return __syncthreads_and(x ? 1 : 0) != 0; }
};

inline constexpr unsigned kAllLanes = 0xffffffffu;

// The same pointer, formed here: else the compiler forms it where it is used, while what it points to is waited for. By
// whole warps.
template <class T>
__device__ __forceinline__ T* formed_here(T* pointer) {
  const auto bits = reinterpret_cast<unsigned long long>(pointer);
  return reinterpret_cast<T*>(__shfl_sync(kAllLanes, bits, static_cast<int>(threadIdx.x % kWarpSize)));
}

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
