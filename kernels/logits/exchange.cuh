// The two thread blocks of a cluster that share the chunks of a tile: each takes a half of H. The first folds its
// chunks and hands the sum to the second, which has kept the values of its own chunks and adds them to it, in their
// order. sm_90.
//
// A value, of 64 rows by kExperts, lies in the order of the registers of the warps that computed it, and goes from a
// lane to the same lane. A warp has a barrier, on which the bytes of the sum of its 16 rows count.
#pragma once

#include <cstdint>

#include "kernels/logits/async_copy.cuh"

namespace samebits::cuda {

// By all threads of a cluster, after fence_barrier_init: the barriers of all its blocks are initialised.
__device__ __forceinline__ void sync_cluster_barriers() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Before the end of a block whose threads arrived at barriers of another one: they have arrived there when this
// returns.
__device__ __forceinline__ void sync_cluster_arrivals() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// The address of the same place in another block of the cluster.
__device__ __forceinline__ std::uint32_t address_in_block(std::uint32_t shared_address, int rank) {
  std::uint32_t address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared_address), "r"(rank));
  return address;
}
__device__ __forceinline__ void arrive_in_cluster(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// 16 bytes, which count at the barrier of the block that they go to.
__device__ __forceinline__ void send_quad(std::uint32_t address, float a, float b, float c, float d,
                                          std::uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(address),
      "f"(a), "f"(b), "f"(c), "f"(d), "r"(barrier)
      : "memory");
}
__device__ __forceinline__ void store_quad(std::uint32_t address, float a, float b, float c, float d) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(address), "f"(a), "f"(b), "f"(c), "f"(d) : "memory");
}
__device__ __forceinline__ void load_quad(std::uint32_t address, float& a, float& b, float& c, float& d) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(a), "=f"(b), "=f"(c), "=f"(d)
               : "r"(address)
               : "memory");
}

template <int kExperts, int kMostKept>
struct HalfExchange {
  static constexpr int kWarps = 4;
  static constexpr int kQuads = kExperts / 8;  // of a lane: 16 rows x kExperts values, 32 lanes
  static constexpr int kQuadBytes = 32 * 16, kWarpBytes = kQuads * kQuadBytes, kValueBytes = kWarps * kWarpBytes;
  static constexpr int kBytes = kMostKept == 0 ? 0 : (1 + kMostKept) * kValueBytes;
  using Value = float[kExperts / 2];

  std::uint32_t values, barriers;  // shared addresses: the sum that comes, what is kept; a barrier of each warp

  // One thread; the barriers are ready after a fence and a sync of the cluster.
  __device__ __forceinline__ void init() const {
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      init_barrier(barriers + 8 * warp, 1);
      arrive_expecting(barriers + 8 * warp, kWarpBytes);
    }
  }
  __device__ __forceinline__ std::uint32_t place(int warp) const {
    return values + warp * kWarpBytes + threadIdx.x % 32 * 16;
  }

  // By a warp of the first block, which may not end before the second has what it was sent.
  __device__ __forceinline__ void send(int warp, const Value& sum) const {
    const std::uint32_t to = address_in_block(place(warp), 1), barrier = address_in_block(barriers + 8 * warp, 1);
#pragma unroll
    for (int q = 0; q < kQuads; ++q)
      send_quad(to + q * kQuadBytes, sum[4 * q], sum[4 * q + 1], sum[4 * q + 2], sum[4 * q + 3], barrier);
  }
  // By a warp of the second block: the value of its next chunk.
  __device__ __forceinline__ void keep(std::uint32_t& next, const Value& value) const {
    next += kValueBytes;
#pragma unroll
    for (int q = 0; q < kQuads; ++q)
      store_quad(next + q * kQuadBytes, value[4 * q], value[4 * q + 1], value[4 * q + 2], value[4 * q + 3]);
  }
  // By the same warp: the sum that came, and all values that it kept up to `last`.
  __device__ __forceinline__ void add_kept(int warp, std::uint32_t last, Value& sum) const {
    std::uint32_t next = place(warp);
    wait_for_phase(barriers + 8 * warp, 0);
    load(next, sum);
#pragma unroll 2
    while (next != last) {
      next += kValueBytes;
      Value value;
      load(next, value);
#pragma unroll
      for (int i = 0; i < kExperts / 2; ++i) sum[i] = __fadd_rn(sum[i], value[i]);
    }
  }

 private:
  static __device__ __forceinline__ void load(std::uint32_t from, Value& value) {
#pragma unroll
    for (int q = 0; q < kQuads; ++q)
      load_quad(from + q * kQuadBytes, value[4 * q], value[4 * q + 1], value[4 * q + 2], value[4 * q + 3]);
  }
};

}  // namespace samebits::cuda
