#include "oracle/emulate/gate_weight.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <stdexcept>

#include "oracle/tensors/bf16.h"

namespace samebits::oracle {

std::array<std::uint16_t, 3> split_fp32(float w) {
  if (!std::isfinite(w)) return {fp32_to_bf16(w), 0, 0};
  std::array<std::uint16_t, 3> parts{};
  for (std::uint16_t& part : parts) {
    part = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(w) >> 16);
    w -= bf16_to_fp32(part);  // exact: the low bits of w
  }
  return parts;
}

std::int16_t chain_exponent(std::uint16_t bits) {
  const int magnitude = bits & 0x7fff;
  if (magnitude == 0) return fast_chain::kZeroExponent;
  if (magnitude >= 0x7f80) return fast_chain::kSpecialExponent;
  return static_cast<std::int16_t>((magnitude < 0x80 ? 1 : magnitude >> 7) - 127);
}

PackedGateWeight::PackedGateWeight(const RouterInputs& inputs)
    : hidden_size_(inputs.hidden_size),
      padded_hidden_size_((inputs.hidden_size + 15) / 16 * 16),
      gate_rows_(inputs.gate_rows),
      num_groups_((inputs.gate_rows + fast_chain::kColumns - 1) / fast_chain::kColumns) {
  const bool fp32 = !inputs.gate_weight_fp32.empty();
  const std::size_t elements = static_cast<std::size_t>(gate_rows_ * hidden_size_);
  const std::size_t found = fp32 ? inputs.gate_weight_fp32.size() : inputs.gate_weight_bf16.size();
  if (found != elements) {
    throw std::invalid_argument("gate_weight: found " + std::to_string(found) + " elements; allowed: " +
                                std::to_string(elements) + ", [G, H] = [" + std::to_string(gate_rows_) + ", " +
                                std::to_string(hidden_size_) + "]; give a row for each id");
  }
  parts_.resize(fp32 ? 3 : 1);
  ExponentRow zeros;
  zeros.fill(fast_chain::kZeroExponent);
  for (Part& part : parts_) {
    const std::size_t rows = static_cast<std::size_t>(num_groups_ * padded_hidden_size_);
    part.values.resize(rows);
    part.exponents.assign(rows, zeros);
  }
  // In blocks of k, so that the rows that the experts of a group share stay in the cache.
  constexpr std::int64_t kBlock = 32;
  for (std::int64_t first = 0; first < gate_rows_; first += fast_chain::kColumns) {
    const std::int64_t last = std::min(first + fast_chain::kColumns, gate_rows_);
    for (std::int64_t block = 0; block < hidden_size_; block += kBlock) {
      const std::int64_t end = std::min(block + kBlock, hidden_size_);
      for (std::int64_t n = first; n < last; ++n) {
        for (std::int64_t k = block; k < end; ++k) {
          const std::size_t i = static_cast<std::size_t>(n * hidden_size_ + k);
          if (fp32) {
            const auto split = split_fp32(inputs.gate_weight_fp32[i]);
            for (int part = 0; part < 3; ++part) put(part, n, k, split[static_cast<std::size_t>(part)]);
          } else {
            put(0, n, k, inputs.gate_weight_bf16[i]);
          }
        }
      }
    }
  }
}

void PackedGateWeight::put(int part, std::int64_t expert, std::int64_t k, std::uint16_t bits) {
  Part& p = parts_[static_cast<std::size_t>(part)];
  const std::size_t row = index(expert / fast_chain::kColumns, k);
  const std::size_t column = static_cast<std::size_t>(expert % fast_chain::kColumns);
  p.values[row][column] = bf16_to_fp32(bits);
  p.exponents[row][column] = chain_exponent(bits);
}

}  // namespace samebits::oracle
