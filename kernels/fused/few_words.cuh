// The words of the hand-over as fused.cu lays them out: for up to kSideBySideRows rows those of four chunks side by
// side, which takes their reader the fewest loads; for more rows a chunk after the other, which takes the writers the
// fewest transactions. kTokenTiles is 1 or 2 for these two.
#pragma once

#include "kernels/fused/words.cuh"
#include "kernels/logits/decode_tile.cuh"
#include "kernels/select/threads.cuh"

namespace samebits::cuda {

inline constexpr int kWordStride = kMaxSelectThreads;  // experts of a chunk in the words of a row
inline constexpr int kSideBySide = 4, kSideBySideRows = 4;
static_assert(kSideBySideRows <= kTileTokens);

__device__ __forceinline__ int quads_of(int chunks) {
  return (chunks + kSideBySide - 1) / kSideBySide;
}
template <int kTokenTiles>
__device__ __forceinline__ int words_of_row(int chunks) {
  return (kTokenTiles == 1 ? quads_of(chunks) * kSideBySide : chunks) * kWordStride;
}

__device__ __forceinline__ void write_side_by_side(std::uint32_t* words, int chunks, int num_rows, int chunk, int tile,
                                                   int lane, const Accumulator& sums) {
  const int row = 2 * (lane % 4), row_words = words_of_row<1>(chunks);
  words += row * row_words + (chunk / kSideBySide * kWordStride + tile * kTileExperts + lane / 4) * kSideBySide +
           chunk % kSideBySide;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (row + i % 2 < num_rows) write_word(words + (i % 2 * row_words + i / 2 * 8 * kSideBySide), sums.values[i]);
  }
}

__device__ __forceinline__ void write_rows(std::uint32_t* words, int chunks, int num_rows, int chunk, int tile,
                                           int lane, const Accumulator (&sums)[2]) {
  const int row = 2 * (lane % 4), row_words = words_of_row<2>(chunks);
  words += row * row_words + chunk * kWordStride + tile * kTileExperts + lane / 4;
#pragma unroll
  for (int n = 0; n < 2; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int other = n * kTileTokens + i % 2;
      if (row + other < num_rows) write_word(words + (other * row_words + i / 2 * 8), sums[n].values[i]);
    }
  }
}

__device__ __forceinline__ void read_side_by_side(const std::uint32_t* words, std::uint32_t* values) {
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
               : "l"(words)
               : "memory");
}

// The sum of an expert's kChunks words, left to right. False where one has not come after `patience` looks.
template <int kChunks, int kTokenTiles>
__device__ __forceinline__ bool receive_sum(const std::uint32_t* words, int patience, float& sum) {
  static_assert(kTokenTiles > 1 || kChunks % kSideBySide == 0);
  std::uint32_t values[kChunks], largest;
  do {
    if (patience-- <= 0) return false;
    if constexpr (kTokenTiles == 1) {
#pragma unroll
      for (int c = 0; c < kChunks; c += kSideBySide) read_side_by_side(words + c * kWordStride, values + c);
    } else {
#pragma unroll
      for (int c = 0; c < kChunks; ++c) values[c] = read_word(words + c * kWordStride);
    }
    largest = values[0];
#pragma unroll
    for (int c = 1; c < kChunks; ++c) largest = max(largest, values[c]);
  } while (largest == kNoWord);
  sum = from_bits(values[0]);
#pragma unroll
  for (int c = 1; c < kChunks; ++c) sum = fadd(sum, from_bits(values[c]));
  return true;
}

}  // namespace samebits::cuda
