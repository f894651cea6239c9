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
__device__ __forceinline__ std::uint32_t* words_of_side(const Handover& handover, int side) {
  return handover.words + side * kWordsOfSide;
}
// By one thread of each block, when all threads of the block have read the state.
__device__ __forceinline__ void add_arrival(const Handover& handover) {
  const std::uint32_t arrivals = blockIdx.x == 0 ? kArrivals - (gridDim.x - 1) : 1u;
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(&handover.state->arrivals), "r"(arrivals) : "memory");
}

// What this thread has seen or written comes before what others see of its later relaxed accesses, and the other way
// round: a fence that asks for less than __threadfence.
__device__ __forceinline__ void order_accesses() {
  asm volatile("fence.acq_rel.gpu;" ::: "memory");
}

// atomicAdd where `adds`, else 0; what it returns is waited for where it is used, not here.
__device__ __forceinline__ std::uint32_t add_if(bool adds, std::uint32_t* to, std::uint32_t amount) {
  std::uint32_t before = 0;
  asm volatile("{\n.reg .pred adds;\nsetp.ne.u32 adds, %3, 0;\n@adds atom.relaxed.gpu.global.add.u32 %0, [%1], %2;\n}"
               : "+r"(before)
               : "l"(to), "r"(amount), "r"(adds ? 1 : 0)
               : "memory");
  return before;
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
  auto* pieces = reinterpret_cast<uint4*>(words_of_side(handover, other));
  const unsigned count = (other == 0 ? state.used[0] : state.used[1]) / 4;  // padded rows of experts are whole pieces
  for (unsigned i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += num_blocks * blockDim.x) {
    pieces[i] = uint4{kNoWord, kNoWord, kNoWord, kNoWord};
  }
}

// The sum of num_words words, `stride` from one to the next, left to right; in batches of up to kBatch that are looked
// at together. False where one has not come after `patience` looks.
template <int kBatch>
__device__ __forceinline__ bool fold_words(const std::uint32_t* words, int num_words, int stride, int patience,
                                           float& sum) {
#ifdef SAMEBITS_MUTANT_ROW_DEPENDENT_DISPATCH
  words += (num_words - 1) * stride;
  stride = -stride;
#endif
  for (int first = 0; first < num_words; first += kBatch) {
    std::uint32_t values[kBatch];
    bool all_here = false;
    for (int look = 0; look < patience && !all_here; ++look) {
      const std::uint32_t* word = words + first * stride;
      asm volatile("" : "+l"(word));  // no look keeps the addresses of the one before, for which there are no registers
#pragma unroll
      for (int i = 0; i < kBatch; ++i, word += stride) values[i] = first + i < num_words ? read_word(word) : 0u;
      all_here = true;
#pragma unroll
      for (int i = 0; i < kBatch; ++i) all_here = all_here && values[i] != kNoWord;
    }
    if (!all_here) return false;
#pragma unroll
    for (int i = 0; i < kBatch; ++i) {
      if (first + i >= num_words) break;
      sum = first + i == 0 ? from_bits(values[i]) : fadd(sum, from_bits(values[i]));
    }
  }
  return true;
}

}  // namespace samebits::cuda
