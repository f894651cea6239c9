// What a warp computes of few rows by mma.sync: one tile of 16 experts, one chunk. Experts are the M of the
// instruction, tokens its N.
#pragma once

#include <cuda_pipeline_primitives.h>

#include "kernels/cuda/view.h"
#include "kernels/logits/decode.h"

namespace samebits::cuda {

inline constexpr int kTileTokens = 8;
inline constexpr int kChunkSteps = kChunkWidth / kStepWidth;
// Of a token's chunk in shared memory: with 544 bytes from token to token, the 16 lanes of a half warp, 4 tokens by 32
// bytes, meet every bank once.
inline constexpr int kSharedStride = kChunkWidth + 16;

using Fragment = uint4;  // one lane's 8 weights
struct Accumulator {
  float values[4];  // experts lane / 4, + 8 (values 2 and 3); tokens 2 * (lane % 4), + 1 (values 1 and 3)
};

// Steps of a chunk.
__device__ inline int steps_of_chunk(const RouterView& router, int chunk) {
  return min(kChunkSteps, router.padded_hidden_size / kStepWidth - chunk * kChunkSteps);
}

// One step for 16 experts and 8 tokens. tokens: columns 4 * (lane % 4) ... + 3 of token lane / 4.
__device__ inline void multiply_tile(Accumulator& c, const Fragment& weights, const uint2& tokens) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{%0, %1, %2, %3};"
      : "+f"(c.values[0]), "+f"(c.values[1]), "+f"(c.values[2]), "+f"(c.values[3])
      : "r"(weights.x), "r"(weights.y), "r"(weights.z), "r"(weights.w), "r"(tokens.x), "r"(tokens.y));
}

// The fragments of an expert tile's chunk, from its first one of this lane; +0 behind the last step.
__device__ inline void load_fragments(const Fragment* fragments, int num_steps, Fragment (&weights)[kChunkSteps]) {
#pragma unroll
  for (int s = 0; s < kChunkSteps; ++s) weights[s] = s < num_steps ? __ldg(fragments + s * kFragmentLanes) : Fragment{};
}
__device__ inline void load_weights(const RouterView& router, int part, int tile, int chunk, int num_steps, int lane,
                                    Fragment (&weights)[kChunkSteps]) {
  const std::int64_t first_step = (std::int64_t{part} * (router.padded_gate_rows / kTileExperts) + tile) *
                                      (router.padded_hidden_size / kStepWidth) +
                                  chunk * kChunkSteps;
  const auto* fragments = reinterpret_cast<const Fragment*>(router.weight_fragments);
  load_fragments(fragments + first_step * kFragmentLanes + lane, num_steps, weights);
}

// The fragments of a whole chunk, here rather than where they are used.
__device__ __forceinline__ void load_chunk(const Fragment* fragments, Fragment (&weights)[kChunkSteps]) {
#pragma unroll
  for (int s = 0; s < kChunkSteps; ++s) {
    asm volatile("ld.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(weights[s].x), "=r"(weights[s].y), "=r"(weights[s].z), "=r"(weights[s].w)
                 : "l"(fragments + s * kFragmentLanes));
  }
}

// Starts the copy of 16 bytes, if `copies`, without a branch.
__device__ __forceinline__ void copy_if(bool copies, void* to, const void* from) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.u32 p, %2, 0;\n@p cp.async.cg.shared.global [%0], [%1], 16;\n}" ::"r"(
                   static_cast<unsigned>(__cvta_generic_to_shared(to))),
               "l"(from), "r"(copies ? 1 : 0)
               : "memory");
}

// Starts the copy of a chunk of the block's tokens, `width` columns from `input`; what is not copied, other tokens and
// other columns, is +0. By the whole block.
template <int kTokens>
__device__ inline void copy_tokens(const std::uint16_t* input, std::int64_t stride, int num_rows, int width,
                                   std::uint16_t (&tokens)[kTokens][kSharedStride]) {
  constexpr int kPiece = 8;  // values in 16 bytes
  constexpr int kRowPieces = kChunkWidth / kPiece;
  for (int i = static_cast<int>(threadIdx.x); i < kTokens * kRowPieces; i += static_cast<int>(blockDim.x)) {
    const int row = i / kRowPieces, column = i % kRowPieces * kPiece;
    if (row < num_rows && column < width) {
      __pipeline_memcpy_async(&tokens[row][column], input + row * stride + column, sizeof(uint4));
    } else {
      *reinterpret_cast<uint4*>(&tokens[row][column]) = uint4{};
    }
  }
  __pipeline_commit();
}

// The chains of one part of a tile's chunk, from +0. tokens_at(n, s): what multiply_tile takes of token tile n in step
// s. A chunk of less steps goes on with steps of zeros, in which both operands are +0: without a branch between them,
// the operands of the next steps are loaded before their use.
template <int kTokenTiles, class TokensAt>
__device__ inline void run_chains(const Fragment (&weights)[kChunkSteps], TokensAt tokens_at,
                                  Accumulator (&chains)[kTokenTiles]) {
#pragma unroll
  for (int n = 0; n < kTokenTiles; ++n) chains[n] = {};
#pragma unroll
  for (int s = 0; s < kChunkSteps; ++s) {
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) multiply_tile(chains[n], weights[s], tokens_at(n, s));
  }
}
// The same of a further part, added to the parts before.
template <int kTokenTiles, class TokensAt>
__device__ inline void add_chains(const Fragment (&weights)[kChunkSteps], TokensAt tokens_at,
                                  Accumulator (&sums)[kTokenTiles]) {
  Accumulator chains[kTokenTiles];
  run_chains(weights, tokens_at, chains);
#pragma unroll
  for (int n = 0; n < kTokenTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[n].values[i] = __fadd_rn(sums[n].values[i], chains[n].values[i]);
  }
}
// The sums of a tile's chunk: one chain a part, added left to right. `weights` holds part 0.
template <int kTokenTiles, class TokensAt>
__device__ inline void sum_chunk(const RouterView& router, int tile, int chunk, int num_steps, int lane,
                                 Fragment (&weights)[kChunkSteps], TokensAt tokens_at,
                                 Accumulator (&sums)[kTokenTiles]) {
  for (int part = 0; part < router.num_parts; ++part) {
    if (part > 0) load_weights(router, part, tile, chunk, num_steps, lane, weights);
    Accumulator chains[kTokenTiles];
    run_chains(weights, tokens_at, chains);
#pragma unroll
    for (int n = 0; n < kTokenTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        sums[n].values[i] = part == 0 ? chains[n].values[i] : __fadd_rn(sums[n].values[i], chains[n].values[i]);
    }
  }
}

// Tokens as copy_tokens lays them out.
template <int kTokens>
__device__ inline uint2 tokens_of_step(const std::uint16_t (&tokens)[kTokens][kSharedStride], int n, int s, int lane) {
  return *reinterpret_cast<const uint2*>(&tokens[n * kTileTokens + lane / 4][s * kStepWidth + 4 * (lane % 4)]);
}

}  // namespace samebits::cuda
