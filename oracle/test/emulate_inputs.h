// Cases of random hidden states and gate weights for the tests of logits.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <numeric>
#include <vector>

#include "oracle/tensors/router_inputs.h"
#include "oracle/test/emulate_categories.h"

namespace samebits::oracle::test {

inline RouterInputs random_inputs(Category category, std::int64_t tokens, std::int64_t hidden, std::int64_t experts) {
  Operands operands(static_cast<std::uint64_t>(hidden * 31 + experts));
  RouterInputs inputs;
  inputs.num_tokens = tokens;
  inputs.hidden_size = hidden;
  inputs.gate_rows = experts;
  Bits16 row, column;
  for (std::int64_t i = 0; i < std::max(tokens, experts); ++i) {
    operands.fill(category, static_cast<std::size_t>(hidden), row, column);
    if (i < tokens) inputs.hidden_states.insert(inputs.hidden_states.end(), row.begin(), row.end());
    if (i < experts) inputs.gate_weight_bf16.insert(inputs.gate_weight_bf16.end(), column.begin(), column.end());
  }
  return inputs;
}

inline void use_fp32_weights(RouterInputs& inputs) {
  std::uint32_t low = 1;
  for (const std::uint16_t w : inputs.gate_weight_bf16) {
    low = low * 1664525u + 1013904223u;
    inputs.gate_weight_fp32.push_back(std::bit_cast<float>((std::uint32_t{w} << 16) | (low >> 16)));
  }
  inputs.gate_weight_bf16.clear();
}

inline std::vector<std::int64_t> all_rows(const RouterInputs& inputs) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(inputs.num_tokens));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

inline std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float v : values) bits.push_back(std::bit_cast<std::uint32_t>(v));
  return bits;
}

}  // namespace samebits::oracle::test
