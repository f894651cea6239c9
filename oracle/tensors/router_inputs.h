// The tensors of one case, row-major and contiguous.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace samebits::oracle {

struct RouterInputs {
  std::int64_t num_tokens = 0;   // T
  std::int64_t hidden_size = 0;  // H; 0 when the case starts from given logits
  std::int64_t num_experts = 0;  // E

  // Start of the pipeline: hidden_states and a gate weight, or given logits; never both.
  std::vector<std::uint16_t> hidden_states;     // [T, H] bf16 bits
  std::vector<std::uint16_t> gate_weight_bf16;  // [E, H] bf16 bits, or empty
  std::vector<float> gate_weight_fp32;          // [E, H], or empty
  std::vector<float> linear_bias;               // [E], present exactly when the spec has gate.linear_bias
  std::vector<float> selection_bias;            // [E], present exactly when the spec has selection.bias
  // [T, E] finished logits: linear bias, rounding, temperature and softcap are already in them.
  std::vector<float> router_logits;

  std::optional<std::int32_t> num_valid_rows;  // rows from here on are padding; clamped to [0, T]; absent: T

  bool from_logits() const { return hidden_size == 0; }
  std::int64_t valid_rows() const {
    if (!num_valid_rows) return num_tokens;
    const std::int64_t n = *num_valid_rows;
    return n < 0 ? 0 : n > num_tokens ? num_tokens : n;
  }
};

}  // namespace samebits::oracle
