// The words of the hand-over as few.cu lays them out: for up to kSideBySideRows rows those of four chunks side by side,
// which takes their reader the fewest loads; for more rows a chunk after the other, which takes the writers the fewest
// transactions. kTokenTiles is 1 or 2 for these two.
#pragma once

#include "kernels/fused/words.cuh"
#include "kernels/logits/decode_tile.cuh"
#include "kernels/select/threads.cuh"

namespace samebits::cuda {

inline constexpr int kWordStride = kMaxSelectThreads;  // experts of a chunk in the words of a row
inline constexpr int kSideBySide = 4, kSideBySideRows = 4;
static_assert(kSideBySideRows <= kTileTokens);
inline constexpr int kMostChunks = 28, kAnyChunks = 0;

// A use of three fragments that does nothing, after the chain had the sum `before`. The hardware waits for loads by six
// scoreboards. Loads that are in flight together share one of them where the compiler sees no use of some that comes
// much before those of others, so the chain would begin with the last of them. It looks no further than a branch, so
// there is none from load_chunk to the end of the chain. scratch: an address in shared memory.
inline constexpr int kUsedAtOnce = 3, kUses = 3;  // as many as there are scoreboards for
__device__ __forceinline__ void use_fragments(unsigned scratch, const Fragment* weights, float before) {
  asm volatile(
      "{\n.reg .pred p;\n.reg .b32 all;\nsetp.eq.u32 p, %3, 0xfffffffe;\n"  // no sum is that
      "@p lop3.b32 all, %0, %1, %2, 0x80;\n@p st.shared.u32 [%4], all;\n}" ::"r"(weights[0].x),
      "r"(weights[1].x), "r"(weights[2].x), "r"(to_bits(before)), "r"(scratch)
      : "memory");
}
// run_chains for up to 8 tokens, as weights come.
__device__ __forceinline__ void run_chains(const Fragment (&weights)[kChunkSteps],
                                           const std::uint16_t (&tokens)[kTileTokens][kSharedStride], int lane,
                                           Accumulator (&chains)[1]) {
  // Behind a token's columns lies what nobody reads.
  const auto scratch = static_cast<unsigned>(__cvta_generic_to_shared(&tokens[0][kChunkWidth]));
  chains[0] = {};
  float before = from_bits(scratch);
#pragma unroll
  for (int s = 0; s < kChunkSteps; ++s) {
    const uint2 some = tokens_of_step(tokens, 0, s, lane);
    if (s % kUsedAtOnce == 0 && s / kUsedAtOnce < kUses) use_fragments(scratch, weights + s, before);
    if (s % kUsedAtOnce == kUsedAtOnce - 1) before = chains[0].values[0];
    multiply_tile(chains[0], weights[s], some);
  }
}
// Of up to 16, it is not faster so.
__device__ __forceinline__ void run_chains(const Fragment (&weights)[kChunkSteps],
                                           const std::uint16_t (&tokens)[2 * kTileTokens][kSharedStride], int lane,
                                           Accumulator (&chains)[2]) {
  run_chains(
      weights, [&](int n, int s) { return tokens_of_step(tokens, n, s, lane); }, chains);
}

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

// The sum of an expert's words, left to right. False where one has not come after `patience` looks. kChunks: how many
// words there are, or kAnyChunks.
template <int kChunks, int kTokenTiles>
__device__ __forceinline__ bool receive_sum(const std::uint32_t* words, int chunks, int patience, float& sum) {
  constexpr int kWords = kChunks == kAnyChunks ? kMostChunks : kChunks;
  std::uint32_t values[kWords], largest;
  do {
    if (patience-- <= 0) return false;
    if constexpr (kTokenTiles == 1) {
#pragma unroll
      for (int c = 0; c < kWords; c += kSideBySide) {
        if (kChunks != kAnyChunks || c < chunks) read_side_by_side(words + c * kWordStride, values + c);
      }
    } else {
#pragma unroll
      for (int c = 0; c < kWords; ++c) {
        if (kChunks != kAnyChunks || c < chunks) values[c] = read_word(words + c * kWordStride);
      }
    }
    largest = 0;
#pragma unroll
    for (int c = 0; c < kWords; ++c) {
      if (kChunks == kAnyChunks && c >= chunks) values[c] = 0u;  // +0 changes no bit, as no sum is -0
      largest = c == 0 ? values[c] : max(largest, values[c]);
    }
  } while (largest == kNoWord);
  sum = from_bits(values[0]);
#pragma unroll
  for (int c = 1; c < kWords; ++c) sum = fadd(sum, from_bits(values[c]));
  return true;
}

}  // namespace samebits::cuda
