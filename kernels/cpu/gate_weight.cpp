#include "kernels/cpu/gate_weight.h"

#include <algorithm>
#include <cmath>

#include "kernels/common/bits.h"

namespace samebits::cpu {
namespace {

// The upper 16 bits of x. A NaN stays one even if its payload is in the lower bits only.
std::uint16_t truncate_to_bf16(float x) {
  return is_nan(x) ? std::uint16_t{0x7fff} : static_cast<std::uint16_t>(to_bits(x) >> 16);
}

// part 0, 1 or 2 of an fp32 weight. The remainders are exact; below 2^-110 the last bits do not fit and are dropped.
std::uint16_t part_of(float w, int part) {
  if (!std::isfinite(w)) return part == 0 ? truncate_to_bf16(w) : std::uint16_t{0};
  std::uint16_t bits = truncate_to_bf16(w);
  for (int i = 0; i < part; ++i) {
    w -= bf16_to_float(bits);
    bits = truncate_to_bf16(w);
  }
  return bits;
}

}  // namespace

GateWeight::GateWeight(const samebits_tensor& tensor)
    : hidden_size_(tensor.cols),
      gate_rows_(tensor.rows),
      num_tiles_((tensor.rows + kTileExperts - 1) / kTileExperts),
      padded_hidden_size_((tensor.cols + kStepWidth - 1) / kStepWidth * kStepWidth),
      num_parts_(tensor.dtype == SAMEBITS_FP32 ? 3 : 1),
      words_(static_cast<std::size_t>(num_parts_ * num_tiles_ * padded_hidden_size_ * kTileWords)) {
  for (int part = 0; part < num_parts_; ++part) {
    for (std::int64_t tile = 0; tile < num_tiles_; ++tile) {
      // A step at a time, so that the columns that the experts of a tile share stay in the cache.
      for (std::int64_t k = 0; k < padded_hidden_size_; k += kStepWidth) pack(tensor, part, tile, k);
    }
  }
}

// The kStepWidth columns from `first` on of the experts of a tile.
void GateWeight::pack(const samebits_tensor& tensor, int part, std::int64_t tile, std::int64_t first) {
  const std::int64_t count = std::min(kStepWidth, hidden_size_ - first);
  for (std::int64_t lane = tile * kTileExperts; lane < (tile + 1) * kTileExperts; ++lane) {
    const std::int64_t begin = std::min(lane, gate_rows_ - 1) * tensor.row_stride + first;
    std::uint16_t bits[kStepWidth] = {};
    if (tensor.dtype == SAMEBITS_FP32) {
      const float* values = static_cast<const float*>(tensor.data) + begin;
      for (std::int64_t k = 0; k < count; ++k) bits[k] = part_of(values[k], part);
    } else {
      std::copy_n(static_cast<const std::uint16_t*>(tensor.data) + begin, count, bits);
    }
    std::uint16_t* words = column(part, tile, first) + word_of_expert(lane);
    for (std::int64_t k = 0; k < kStepWidth; ++k, words += kTileWords) {
      words[0] = bits[k];
      words[kTileExperts] = static_cast<std::uint16_t>(packed_exponent(bits[k]));
    }
  }
}

}  // namespace samebits::cpu
