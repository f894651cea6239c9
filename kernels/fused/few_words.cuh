// The words of the hand-over as few.cu lays them out: for up to kSideBySideRows rows those of four chunks side by side,
// which takes their reader the fewest loads; for more rows a chunk after the other, which takes the writers the fewest
// transactions. kTokenTiles is 1 or 2 for these two.
#pragma once

#include "kernels/fused/words.cuh"
#include "kernels/logits/decode_tile.cuh"
#include "kernels/select/threads.cuh"

namespace samebits::cuda {

// Experts of a chunk in the words of a row, where a thread has so many of them.
template <int kOfThread>
inline constexpr int kWordStride = kOfThread* kMaxSelectThreads;
inline constexpr int kSideBySide = 4, kSideBySideRows = 4;
static_assert(kSideBySideRows <= kTileTokens);
inline constexpr int kMostChunks = 28, kAnyChunks = 0;

__device__ __forceinline__ int quads_of(int chunks) {
  return (chunks + kSideBySide - 1) / kSideBySide;
}
template <int kTokenTiles, int kOfThread>
__device__ __forceinline__ int words_of_row(int chunks) {
  return (kTokenTiles == 1 ? quads_of(chunks) * kSideBySide : chunks) * kWordStride<kOfThread>;
}

template <int kOfThread>
__device__ __forceinline__ void write_side_by_side(std::uint32_t* words, int chunks, int num_rows, int chunk, int tile,
                                                   int lane, const Accumulator& sums) {
  const int row = 2 * (lane % 4), row_words = words_of_row<1, kOfThread>(chunks);
  words += row * row_words +
           (chunk / kSideBySide * kWordStride<kOfThread> + tile * kTileExperts + lane / 4) * kSideBySide +
           chunk % kSideBySide;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (row + i % 2 < num_rows) write_word(words + (i % 2 * row_words + i / 2 * 8 * kSideBySide), sums.values[i]);
  }
}

// The sums of a tile's halves, eight experts each: experts 2 * (lane % 4) and + 1 of tokens lane / 4 and + 8.
struct HalfSums {
  float values[2][4];
};
// Here tokens are the M of the instruction and the experts of half a tile its N. Their weights lie in the fragment in
// any case. tokens_at: see sum_chunk.
template <class TokensAt>
__device__ __forceinline__ HalfSums multiply_halves(const Fragment (&weights)[kChunkSteps], TokensAt tokens_at) {
  HalfSums sums{};
  const auto multiply_half = [](float(&c)[4], const uint2& low, const uint2& high, std::uint32_t weights_low,
                                std::uint32_t weights_high) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(low.x), "r"(high.x), "r"(low.y), "r"(high.y), "r"(weights_low), "r"(weights_high));
  };
#pragma unroll
  for (int s = 0; s < kChunkSteps; ++s) {
    const uint2 low = tokens_at(0, s), high = tokens_at(1, s);
    multiply_half(sums.values[0], low, high, weights[s].x, weights[s].z);
    multiply_half(sums.values[1], low, high, weights[s].y, weights[s].w);
  }
  return sums;
}
template <int kOfThread>
__device__ __forceinline__ void write_rows(std::uint32_t* words, int chunks, int num_rows, int chunk, int tile,
                                           int lane, const HalfSums& sums) {
  const int row = lane / 4, row_words = words_of_row<2, kOfThread>(chunks);
  words += row * row_words + chunk * kWordStride<kOfThread> + tile * kTileExperts + 2 * (lane % 4);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const float* pair = sums.values[i % 2] + i / 2 * 2;
    if (row + i / 2 * kTileTokens < num_rows) {
      asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};" ::"l"(
                       words + (i / 2 * kTileTokens * row_words + i % 2 * kTileExperts / 2)),
                   "r"(to_bits(pair[0])), "r"(to_bits(pair[1]))
                   : "memory");
    }
  }
}

__device__ __forceinline__ void read_side_by_side(const std::uint32_t* words, std::uint32_t* values) {
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(values[0]), "=r"(values[1]), "=r"(values[2]), "=r"(values[3])
               : "l"(words)
               : "memory");
}

// The sums of the words of kOfThread experts, left to right. False where one has not come after `patience` looks.
// kChunks: how many words there are, or kAnyChunks.
template <int kChunks, int kTokenTiles, int kOfThread>
__device__ __forceinline__ bool receive_sums(const std::uint32_t* const (&words)[kOfThread], int chunks, int patience,
                                             float (&sums)[kOfThread]) {
  constexpr int kWords = kChunks == kAnyChunks ? kMostChunks : kChunks;
  std::uint32_t values[kOfThread][kWords], largest;
  do {
    if (patience-- <= 0) return false;
#pragma unroll
    for (int e = 0; e < kOfThread; ++e) {
      if constexpr (kTokenTiles == 1) {
#pragma unroll
        for (int c = 0; c < kWords; c += kSideBySide) {
          if (kChunks != kAnyChunks || c < chunks)
            read_side_by_side(words[e] + c * kWordStride<kOfThread>, values[e] + c);
        }
      } else {
#pragma unroll
        for (int c = 0; c < kWords; ++c) {
          if (kChunks != kAnyChunks || c < chunks) values[e][c] = read_word(words[e] + c * kWordStride<kOfThread>);
        }
      }
    }
    largest = 0;
#pragma unroll
    for (int e = 0; e < kOfThread; ++e) {
#pragma unroll
      for (int c = 0; c < kWords; ++c) {
        if (kChunks == kAnyChunks && c >= chunks) values[e][c] = 0u;  // +0 changes no bit, as no sum is -0
        largest = e == 0 && c == 0 ? values[e][c] : max(largest, values[e][c]);
      }
    }
  } while (largest == kNoWord);
#pragma unroll
  for (int e = 0; e < kOfThread; ++e) {
    sums[e] = from_bits(values[e][0]);
#pragma unroll
    for (int c = 1; c < kWords; ++c) sums[e] = fadd(sums[e], from_bits(values[e][c]));
  }
  return true;
}

}  // namespace samebits::cuda
