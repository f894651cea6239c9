// The thread blocks of a cluster that share the chunks of a tile hand them to the block that folds them. sm_90.
//
// Chunk c is computed by block c % kShares in round c / kShares. Warp w of the warps that multiply has the same 16 rows
// in all blocks; block w / kFoldingWarps folds them, by a warp of its own. A value travels in the order of the
// registers of the warp that computed it, from lane to the same lane.
//
// Barriers of a block, for each of two slots: `full`, one for each folding warp and share: a chunk has arrived. `free`,
// one for each multiplying warp: what it sent was read, and it may send again. A warp ends when all that it sent was
// read, and when all that was sent to it has come: so a block may end without a sync of the cluster.
#pragma once

#include <cstdint>

#include "kernels/logits/async_copy.cuh"

namespace samebits::cuda {

// By all threads of a cluster, after fence_barrier_init: the barriers of all its blocks are initialised.
__device__ __forceinline__ void sync_cluster_barriers() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
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

template <int kMultiplyingWarps, int kExperts, int kShares>
struct ChunkExchange {
  // A value takes about as long to be folded and its place to be free again as the next chunk to be computed.
  static constexpr int kSlots = 2;
  static constexpr int kFoldingWarps = kMultiplyingWarps / kShares;
  static constexpr int kQuads = kExperts / 8;  // of a lane: 16 rows x kExperts values, 32 lanes
  static constexpr int kQuadBytes = 32 * 16;
  static constexpr int kValueBytes = kQuads * kQuadBytes;
  static constexpr int kBytes = kShares == 1 ? 0 : kSlots * kMultiplyingWarps * kValueBytes;
  static constexpr int kBarriers = 2 * kSlots * kMultiplyingWarps;

  std::uint32_t values, barriers;  // shared addresses
  int share;                       // of this block, which is its rank in the cluster

  // What comes from one share to one of the warps that fold.
  __device__ __forceinline__ int place(int slot, int index, int from) const {
    return (slot * kFoldingWarps + index) * kShares + from;
  }
  __device__ __forceinline__ std::uint32_t value_of_lane(int place) const {
    return values + place * kValueBytes + threadIdx.x % 32 * 16;
  }
  __device__ __forceinline__ std::uint32_t full(int place) const { return barriers + 8 * place; }
  __device__ __forceinline__ std::uint32_t free(int slot, int warp) const {
    return barriers + 8 * ((kSlots + slot) * kMultiplyingWarps + warp);
  }

  // One thread; the barriers are ready after a fence and a sync of the cluster.
  __device__ __forceinline__ void init() const {
    for (int i = 0; i < kBarriers; ++i) init_barrier(barriers + 8 * i, 1);
  }

  // By a warp that multiplies, in each round.
  __device__ __forceinline__ void send(int warp, int round, const float (&sums)[kExperts / 2]) const {
    const int slot = round % kSlots;
    if (round >= kSlots) wait_for_phase(free(slot, warp), (round / kSlots - 1) % 2);
    const int owner = warp / kFoldingWarps, to_place = place(slot, warp % kFoldingWarps, share);
    const std::uint32_t to = address_in_block(value_of_lane(to_place), owner);
    const std::uint32_t barrier = address_in_block(full(to_place), owner);
#pragma unroll
    for (int q = 0; q < kQuads; ++q)
      send_quad(to + q * kQuadBytes, sums[4 * q], sums[4 * q + 1], sums[4 * q + 2], sums[4 * q + 3], barrier);
  }

  // By the same warp before it ends: all that it sent was read.
  __device__ __forceinline__ void wait_until_read(int warp, int num_rounds) const {
    for (int round = max(num_rounds - kSlots, 0); round < num_rounds; ++round)
      wait_for_phase(free(round % kSlots, warp), round / kSlots % 2);
  }

  // By a warp that folds: take(value) for all chunks in their order.
  template <class Take>
  __device__ __forceinline__ void receive(int index, int num_chunks, Take take) const {
    const bool first_lane = threadIdx.x % 32 == 0;
    if (first_lane) {
      for (int chunk = 0; chunk < min(kSlots * kShares, num_chunks); ++chunk)
        arrive_expecting(full(place(chunk / kShares, index, chunk % kShares)), kValueBytes);
    }
#pragma unroll 1
    for (int chunk = 0; chunk < num_chunks; ++chunk) {
      const int round = chunk / kShares, from = chunk % kShares, slot = round % kSlots;
      const int from_place = place(slot, index, from);
      wait_for_phase(full(from_place), round / kSlots % 2);
      float sums[kExperts / 2];
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(sums[4 * q]), "=f"(sums[4 * q + 1]), "=f"(sums[4 * q + 2]), "=f"(sums[4 * q + 3])
                     : "r"(value_of_lane(from_place) + q * kQuadBytes)
                     : "memory");
      }
      take(sums);
      __syncwarp();
      if (first_lane) {
        if (chunk + kSlots * kShares < num_chunks) arrive_expecting(full(from_place), kValueBytes);
        arrive_in_cluster(address_in_block(free(slot, share * kFoldingWarps + index), from));
      }
    }
  }
};

}  // namespace samebits::cuda
