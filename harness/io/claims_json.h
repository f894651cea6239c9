// Claims in the words of the C ABI, as JSON: for reports and result files. For sources only.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "properties/claims.h"

namespace samebits::harness {

// What oracle::parse_arithmetic takes, for messages.
inline constexpr const char* kArithmetics = "tc256, fp32-any-order, bf16-logits, fp32-depth:D with D from 1 to 1048576";

nlohmann::ordered_json claims_to_json(const properties::Claims& claims);
// Throws std::invalid_argument for unknown fields, words or types. Missing fields claim nothing.
properties::Claims claims_from_json(const nlohmann::json& value);
// "tc256, batch_invariant, ties lowest_index, order key_desc_then_index, logits, bookkeeping"
std::string claims_line(const properties::Claims& claims);

}  // namespace samebits::harness
