#include "kernels/logits/pack.h"

#include <algorithm>
#include <bit>
#include <cassert>

#include "kernels/cuda/view.h"
#include "kernels/logits/decode.h"

namespace samebits::cuda {
namespace {

// Integers, so that the caller's floating-point environment (flushing of subnormals) cannot matter.

// The upper 16 bits of an fp32 weight. A NaN stays one even if its payload is in the lower bits only.
std::uint16_t upper_part(std::uint32_t bits) {
  return (bits & 0x7fffffffu) > 0x7f800000u ? std::uint16_t{0x7fff} : static_cast<std::uint16_t>(bits >> 16);
}

// What is left of a finite w when its upper part is taken away: exact in fp32.
std::uint32_t remainder_of(std::uint32_t bits) {
  const std::uint32_t sign = bits & 0x80000000u, significand = bits & 0xffffu;
  if (significand == 0) return 0;
  const int field = std::max(static_cast<int>(bits >> 23 & 255), 1);
  // significand * 2^(field - 150), with its leading bit moved to bit 23 as far as the exponents go.
  const int shift = std::min(std::countl_zero(significand) - 8, field - 1);
  const std::uint32_t shifted = significand << shift;
  if (shifted < 0x800000u) return sign | shifted;
  return sign | static_cast<std::uint32_t>(field - shift) << 23 | (shifted & 0x7fffffu);
}

// Part 0, 1 or 2 of an fp32 weight.
std::uint16_t part_of(std::uint32_t bits, int part) {
  if ((bits & 0x7f800000u) == 0x7f800000u) return part == 0 ? upper_part(bits) : std::uint16_t{0};
  for (int i = 0; i < part; ++i) bits = remainder_of(bits);
  return upper_part(bits);
}

}  // namespace

std::vector<std::uint16_t> split_rows(const samebits_tensor& gate_weight, std::int64_t gate_rows,
                                      std::int64_t hidden_size) {
  const int parts = num_parts(gate_weight.dtype);
  const std::int64_t rows = round_up(gate_rows, kGateRowPad), columns = padded_hidden_size(hidden_size);
  std::vector<std::uint16_t> out(static_cast<std::size_t>(parts * rows * columns));
  for (int part = 0; part < parts; ++part) {
    for (std::int64_t g = 0; g < gate_rows; ++g) {
      std::uint16_t* to = out.data() + (part * rows + g) * columns;
      const std::int64_t from = g * gate_weight.row_stride;
      if (gate_weight.dtype == SAMEBITS_FP32) {
        const float* weights = static_cast<const float*>(gate_weight.data) + from;
        std::transform(weights, weights + hidden_size, to,
                       [part](float w) { return part_of(std::bit_cast<std::uint32_t>(w), part); });
      } else {
        const std::uint16_t* weights = static_cast<const std::uint16_t*>(gate_weight.data) + from;
        std::copy(weights, weights + hidden_size, to);
      }
    }
  }
  return out;
}

std::vector<std::uint16_t> pack_fragments(const std::vector<std::uint16_t>& rows, std::int64_t parts,
                                          std::int64_t padded_gate_rows, std::int64_t padded_hidden_size) {
  assert(static_cast<std::int64_t>(rows.size()) == parts * padded_gate_rows * padded_hidden_size);
  assert(padded_gate_rows % kTileExperts == 0 && padded_hidden_size % kStepWidth == 0);
  std::vector<std::uint16_t> out(rows.size());
  std::uint16_t* to = out.data();
  // Tiles of all parts follow one another, as their rows do.
  for (std::int64_t tile = 0; tile < parts * padded_gate_rows / kTileExperts; ++tile) {
    for (std::int64_t k = 0; k < padded_hidden_size; k += kStepWidth) {
      for (int lane = 0; lane < kFragmentLanes; ++lane) {
        for (int i = 0; i < kLaneValues; ++i) {
          const FragmentPlace place = fragment_place(lane, i);
          const std::int64_t row = tile * kTileExperts + place.expert;
          *to++ = rows[static_cast<std::size_t>(row * padded_hidden_size + k + place.column)];
        }
      }
    }
  }
  return out;
}

}  // namespace samebits::cuda
