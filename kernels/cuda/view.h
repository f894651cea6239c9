// What kernels read: a router and a call as plain structs of sizes and device pointers, passed by value.
#pragma once

#include <cstdint>

#include "kernels/plan/plan.h"
#include "samebits/samebits.h"

namespace samebits::cuda {

// A router after creation. Sizes E, R, G, k, K as in samebits.h; H the hidden size, Hp = padded_hidden_size(H),
// Gp = G rounded up to kGateRowPad.
inline constexpr int kGateRowPad = 16;

struct RouterView {
  samebits_router_spec spec;  // enumerations and constants of the spec
  std::int32_t hidden_size, padded_hidden_size, num_chunks, num_parts;
  std::int32_t ranked_experts, gate_rows, padded_gate_rows, top_k, columns;

  // The gate weight in the layout of each form of the logits; rows from G to Gp and columns from H to Hp are +0.
  const std::uint16_t* weight_rows;       // plain: [parts][Gp][Hp] bf16
  const std::uint16_t* weight_fragments;  // decode: see logits/decode.h
  const std::uint16_t* weight_tiles;      // prefill: see logits/prefill.h

  const float* linear_bias;         // [G] as it is added, or null
  const float* selection_bias;      // [num_bias_variants, R] as it is added, or null
  const float* input_scale_vector;  // [H] or null
  float input_scale;                // 1: none
  const float* per_expert_scale;    // [G] or null
  const float* global_scale;        // [1] or null
  const std::int32_t* hash_table;   // [hash_vocab_size, k], checked at creation, or null
};

// One call. Rows from *num_valid_rows on (clamped to [0, T]; null: T) are padding.
struct CallView {
  std::int64_t num_tokens;  // T
  const std::int32_t* num_valid_rows;
  const void* token_ids;  // [T] int32 or int64, or null
  bool token_ids_int64;
  const std::int32_t* row_class;  // [T] or null: all 0

  // What the gate reads: 16-byte aligned rows of Hp (H where it is a multiple of 16) bf16 values. Either the caller's
  // hidden states or the prepared rows of the workspace.
  const std::uint16_t* input;
  std::int64_t input_stride;  // elements, a multiple of 8

  // Between logits and selection: parts of the sum of each logit, to be added left to right. sums[t][p][g] with
  // p < num_sums and g < Gp: num_sums = num_chunks where chunks are computed apart, 1 where they were folded already.
  float* sums;
  std::int32_t num_sums;
  // Given logits instead (samebits_route_from_logits): finished, [T, G].
  const float* given_logits;
  std::int64_t given_logits_stride;

  // Outputs; null where not wanted.
  void* topk_ids;  // [T, K]
  bool ids_int64;
  std::int64_t ids_stride;
  void* topk_weights;  // [T, K]
  bool weights_bf16;
  std::int64_t weights_stride;
  float* router_logits;  // [T, G]
  std::int64_t router_logits_stride;
  std::int32_t* slot_ids;  // [T * K] for the bookkeeping, -1: none; null where it is not, or reads topk_ids
};

// Rows that are not padding.
SAMEBITS_HOST_DEVICE inline std::int64_t clamp_rows(std::int64_t num_valid_rows, std::int64_t num_tokens) {
  return num_valid_rows < 0 ? 0 : num_valid_rows > num_tokens ? num_tokens : num_valid_rows;
}

}  // namespace samebits::cuda
