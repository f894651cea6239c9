// Values of the tensor families of case.h, before plants.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "properties/case.h"

namespace samebits::properties {

// Positions of the generated tensors that a case keeps, in order.
struct Kept {
  std::vector<std::int64_t> rows, experts, columns;
};

std::vector<std::uint16_t> generate_hidden_states(const CaseDescription& description, const Kept& kept);
// Exactly one of the two, as gate_weight_dtype says.
std::vector<std::uint16_t> generate_gate_weight_bf16(const Case& c, const Kept& kept);
std::vector<float> generate_gate_weight_fp32(const Case& c, const Kept& kept);
std::vector<float> generate_bias(const CaseDescription& description, TensorId tensor, const Kept& kept);
std::vector<float> generate_router_logits(const Case& c, const Kept& kept);

// H as the families see it.
std::int64_t generated_hidden_size(const CaseDescription& description);

// Whether given logits of this spec are bf16 values (nothing follows the rounding of the logits).
bool rounds_logits_to_bf16(const oracle::RouterSpec& spec);

}  // namespace samebits::properties
