// What one row reads beside its hidden states or logits.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "oracle/spec/router_spec.h"
#include "oracle/tensors/router_inputs.h"

namespace samebits::second {

using oracle::RouterInputs;
using oracle::RouterSpec;

// Views into the tensors of a case. R experts compete; G have ids.
struct Row {
  std::span<const float> selection_bias;    // [R] of the row's class, or empty
  std::span<const float> per_expert_scale;  // [G] or empty
  std::optional<float> global_scale;
  std::span<const std::int32_t> table_ids;  // [k] of the row's token, or empty
  bool has_answer = true;                   // false: no such row class, or no such token in the table
};

// `row` is in [0, T); the tensors are complete for the spec.
Row row_of(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t row);

}  // namespace samebits::second
