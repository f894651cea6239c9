// Copies from global to shared memory that complete on a barrier. sm_90.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace samebits::cuda {

__device__ __forceinline__ std::uint32_t shared_address(const void* pointer) {
  return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// Barriers, by shared address. A phase ends when all arrivals and all expected bytes have come.
__device__ __forceinline__ void init_barrier(std::uint32_t barrier, std::uint32_t arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
// By the thread that initialised barriers, before the __syncthreads after which others use them.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
__device__ __forceinline__ void arrive(std::uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void arrive_expecting(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// More bytes of the running phase, before its last arrival.
__device__ __forceinline__ void expect_bytes(std::uint32_t barrier, std::uint32_t bytes) {
  asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Until the phase of this parity has ended; of a new barrier, the phase of parity 1 counts as ended.
__device__ __forceinline__ void wait_for_phase(std::uint32_t barrier, std::uint32_t parity) {
  std::uint32_t ended;
  do {
    asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
                 : "=r"(ended)
                 : "r"(barrier), "r"(parity)
                 : "memory");
  } while (ended == 0);
}

// Contiguous bytes; addresses and size are multiples of 16.
__device__ __forceinline__ void copy_bytes(std::uint32_t destination, const void* source, std::uint32_t bytes,
                                           std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(destination),
      "l"(__cvta_generic_to_global(source)), "r"(bytes), "r"(barrier)
      : "memory");
}
// The box of the map that starts at (column, row). What lies outside of the tensor becomes +0 and counts as bytes.
__device__ __forceinline__ void copy_box(std::uint32_t destination, const CUtensorMap& map, std::int32_t column,
                                         std::int32_t row, std::uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          destination),
      "l"(&map), "r"(column), "r"(row), "r"(barrier)
      : "memory");
}
// The same to the same place in both blocks of a cluster, where it completes on the barrier at the same place.
__device__ __forceinline__ void copy_box_to_pair(std::uint32_t destination, const CUtensorMap& map, std::int32_t column,
                                                 std::int32_t row, std::uint32_t barrier) {
  constexpr std::uint16_t kBoth = 3;
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, "
      "%3}], [%4], %5;" ::"r"(destination),
      "l"(&map), "r"(column), "r"(row), "r"(barrier), "h"(kBoth)
      : "memory");
}
// Makes what other kernels stored visible to the copies that follow.
__device__ __forceinline__ void fence_before_copies() {
  asm volatile("fence.proxy.async.global;" ::: "memory");
}

// One lane of a warp whose lanes are together. Unlike after a comparison of threadIdx, the compiler knows that it is
// one: a copy is then an instruction, not a loop over lanes.
__device__ __forceinline__ bool is_elected_lane() {
  std::uint32_t elected;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}\n" : "=r"(elected));
  return elected != 0;
}
// The value stays in its register; else the compiler computes shared addresses anew wherever they are used.
__device__ __forceinline__ void keep_in_register(std::uint32_t& value) {
  asm volatile("" : "+r"(value));
}
// The map will be read by copies.
__device__ __forceinline__ void prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

}  // namespace samebits::cuda
