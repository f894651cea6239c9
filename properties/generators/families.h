// Values of the tensor families of case.h, before plants.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "properties/case.h"

namespace samebits::properties {

// Positions of the generated tensors that a case keeps, in order.
struct Kept {
  std::vector<std::int64_t> rows, columns;
  std::vector<std::int64_t> experts;  // [G]
  std::vector<std::int64_t> ranked;   // [R], the first of these: those that compete
};

std::vector<std::uint16_t> generate_hidden_states(const CaseDescription& description, const Kept& kept);
// Exactly one of the two, as gate_weight_dtype says.
std::vector<std::uint16_t> generate_gate_weight_bf16(const Case& c, const Kept& kept);
std::vector<float> generate_gate_weight_fp32(const Case& c, const Kept& kept);
std::vector<float> generate_linear_bias(const CaseDescription& description, const Kept& kept);
// [classes, R]. Classes have values of their own, one bias_spread further up each.
std::vector<float> generate_selection_bias(const Case& c, const Kept& kept);
// kInputScaleVector over the columns, kPerExpertScale over the experts, kGlobalScale: one value.
std::vector<float> generate_scale(const CaseDescription& description, TensorId tensor, const Kept& kept);
std::vector<float> generate_router_logits(const Case& c, const Kept& kept);

// [vocab_size, k]: for each token the k kept experts of least random rank, which (data_key, token, expert) gives; so
// neither vocab_size nor experts that are not among them matter.
std::vector<std::int32_t> generate_hash_table(const CaseDescription& description, const Kept& kept);
std::vector<std::int64_t> generate_token_ids(const CaseDescription& description, const Kept& kept);
std::vector<std::int32_t> generate_row_class(const Case& c, const Kept& kept);

// H as the families see it.
std::int64_t generated_hidden_size(const CaseDescription& description);

// Whether given logits of this spec are bf16 values (nothing follows the rounding of the logits).
bool rounds_logits_to_bf16(const oracle::RouterSpec& spec);

}  // namespace samebits::properties
