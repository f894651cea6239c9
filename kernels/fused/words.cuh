// Words of the hand-over, on the device. Accesses are relaxed: a word is all that its reader needs.
#pragma once

#include "kernels/cuda/bf16.cuh"
#include "kernels/fused/handover.h"

namespace samebits::cuda {

__device__ __forceinline__ HandoverState read_state(const Handover& handover) {
  HandoverState state;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(state.arrivals), "=r"(state.used[0]), "=r"(state.used[1]), "=r"(state.rows_done)
               : "l"(handover.state)
               : "memory");
  return state;
}
__device__ __forceinline__ int side_of(const HandoverState& state) {
  return static_cast<int>(state.arrivals / kArrivals % 2);
}

// What this thread has seen or written comes before what others see of its later relaxed accesses, and the other way
// round: a fence that asks for less than __threadfence.
__device__ __forceinline__ void order_accesses() {
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

__device__ __forceinline__ void write_word_bits(std::uint32_t* word, std::uint32_t bits) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(word), "r"(bits) : "memory");
}
__device__ __forceinline__ void write_word(std::uint32_t* word, float value) {
  write_word_bits(word, to_bits(value));
}
__device__ __forceinline__ std::uint32_t read_word(const std::uint32_t* word) {
  std::uint32_t value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
  return value;
}

// Puts the side that is not in use back, by all threads of the first num_blocks blocks together.
__device__ __forceinline__ void clear_other_side(const Handover& handover, const HandoverState& state,
                                                 unsigned num_blocks) {
  const int other = 1 - side_of(state);
  auto* pieces = reinterpret_cast<uint4*>(handover.words + other * kWordsOfSide);
  const unsigned count = (other == 0 ? state.used[0] : state.used[1]) / 4;  // whole pieces
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += num_blocks * blockDim.x) {
    pieces[i] = uint4{kNoWord, kNoWord, kNoWord, kNoWord};
  }
}

}  // namespace samebits::cuda
