// The tensors of one case, row-major and contiguous.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace samebits::oracle {

// T rows, H hidden size. Experts are counted as in the spec: R compete, G have rows in the gate (ranked_experts and
// gate_rows of oracle/spec/router_spec.h); k is top_k without shared experts. A tensor is present exactly when the spec
// asks for it, unless said otherwise.
struct RouterInputs {
  std::int64_t num_tokens = 0;   // T
  std::int64_t hidden_size = 0;  // H; 0 when the case starts from given logits
  std::int64_t gate_rows = 0;    // G

  // Start of the pipeline: hidden_states and a gate weight, or given logits; never both.
  std::vector<std::uint16_t> hidden_states;     // [T, H] bf16 bits
  std::vector<std::uint16_t> gate_weight_bf16;  // [G, H] bf16 bits, or empty
  std::vector<float> gate_weight_fp32;          // [G, H], or empty
  // [T, G] finished logits: linear bias, rounding, temperature and softcap are already in them.
  std::vector<float> router_logits;

  std::vector<float> input_scale_vector;  // [H]; empty where logits are given
  std::vector<float> linear_bias;         // [G]
  std::vector<float> selection_bias;      // [row classes, R]: one row for each of selection.bias_variants
  std::vector<float> per_expert_scale;    // [G], by id
  std::vector<float> global_scale;        // [1]
  std::vector<std::int32_t> hash_table;   // [vocab_size, k], ids in [0, R), distinct in a row

  std::vector<std::int64_t> token_ids;  // [T] for hash_table; any value, outside [0, vocab_size) too
  bool token_ids_int32 = false;         // the router gets them as int32
  std::vector<std::int32_t> row_class;  // [T] index into the bias variants; empty: all 0; any value

  std::optional<std::int32_t> num_valid_rows;  // rows from here on are padding; clamped to [0, T]; absent: T

  bool from_logits() const { return hidden_size == 0; }
  std::int64_t valid_rows() const {
    if (!num_valid_rows) return num_tokens;
    const std::int64_t n = *num_valid_rows;
    return n < 0 ? 0 : n > num_tokens ? num_tokens : n;
  }
};

}  // namespace samebits::oracle
