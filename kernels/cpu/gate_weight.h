// The gate weight, packed for the SIMD logits step.
//
// Tiles of 32 experts. Inside a tile, column k of H (padded to a multiple of 16 with +0) is 64 16-bit words: the bf16
// values of the 32 experts, then their exponents. Experts are interleaved (0, 16, 1, 17, ...), so that the even 16-bit
// lanes of any vector, shifted up, are fp32 values of consecutive experts, and so are the odd lanes, masked. The lanes
// of a last, partial tile repeat the last expert: they cost nothing extra, whatever the data.
//
// An fp32 weight is the sum of three bf16 parts, each cut off (not rounded) from what the parts before it left; each
// part is packed like a bf16 weight.
#pragma once

#include <cstdint>
#include <vector>

#include "samebits/samebits.h"

namespace samebits::cpu {

inline constexpr std::int64_t kStepWidth = 16;    // products of one tensor-core step
inline constexpr std::int64_t kChunkWidth = 256;  // columns of one chain
inline constexpr std::int64_t kTileExperts = 32;
inline constexpr std::int64_t kTileWords = 2 * kTileExperts;  // per column of H

// Packed exponents: max(E, 1) for the biased field E, but far below any sum of two exponents for a zero operand (which
// must never be the maximum), and far above for Inf and NaN.
inline constexpr int kZeroExponent = -4096;
inline constexpr int kSpecialExponent = 8192;

constexpr int packed_exponent(std::uint16_t bf16) {
  const int field = (bf16 >> 7) & 255;
  if ((bf16 & 0x7fff) == 0) return kZeroExponent;
  return field == 255 ? kSpecialExponent : (field == 0 ? 1 : field);
}

// Word of expert `e` among the 32 values of its tile.
constexpr std::int64_t word_of_expert(std::int64_t e) {
  const std::int64_t in_tile = e % kTileExperts;
  return in_tile < kTileExperts / 2 ? 2 * in_tile : 2 * (in_tile - kTileExperts / 2) + 1;
}

class GateWeight {
 public:
  // tensor: [G, H] of dtype BF16 or FP32 in host memory.
  explicit GateWeight(const samebits_tensor& tensor);

  std::int64_t hidden_size() const { return hidden_size_; }
  std::int64_t gate_rows() const { return gate_rows_; }
  std::int64_t num_tiles() const { return num_tiles_; }
  int num_parts() const { return num_parts_; }  // 1 for bf16, 3 for fp32
  // Words of column k of a tile; the columns after it follow without a gap.
  const std::uint16_t* column(int part, std::int64_t tile, std::int64_t k) const {
    return words_.data() + ((part * num_tiles_ + tile) * padded_hidden_size_ + k) * kTileWords;
  }

 private:
  void pack(const samebits_tensor& tensor, int part, std::int64_t tile, std::int64_t first);
  std::uint16_t* column(int part, std::int64_t tile, std::int64_t k) {
    return const_cast<std::uint16_t*>(static_cast<const GateWeight*>(this)->column(part, tile, k));
  }

  std::int64_t hidden_size_, gate_rows_, num_tiles_, padded_hidden_size_;
  int num_parts_;
  std::vector<std::uint16_t> words_;
};

}  // namespace samebits::cpu
