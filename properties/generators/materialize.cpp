#include <numeric>
#include <stdexcept>
#include <string>
#include <tuple>

#include "oracle/tensors/bf16.h"
#include "properties/case.h"
#include "properties/generators/families.h"

namespace samebits::properties {
namespace {

using oracle::BiasType;
using oracle::RouterInputs;

[[noreturn]] void contradiction(const std::string& message) {
  throw std::invalid_argument("case description: " + message);
}

void require(bool condition, const char* message) {
  if (!condition) contradiction(message);
}

void require_size(const char* name, std::int64_t found, std::int64_t wanted) {
  if (found != wanted) {
    contradiction(std::string(name) + " is " + std::to_string(found) + ", but the case needs " +
                  std::to_string(wanted));
  }
}

void require_kept(const char* name, const std::vector<std::int64_t>& kept, std::int64_t size, std::int64_t generated) {
  if (kept.empty()) return;
  require_size(name, static_cast<std::int64_t>(kept.size()), size);
  for (const std::int64_t position : kept) {
    if (position < 0 || (generated > 0 && position >= generated)) {
      contradiction(std::string(name) + " holds " + std::to_string(position) +
                    ", which is outside the generated tensor");
    }
  }
}

void check(const Case& c) {
  const CaseDescription& d = c.description;
  const bool full = d.stage == Stage::kFull;
  require(d.num_tokens >= 0, "num_tokens is negative; it must be 0 or more");
  require(d.num_experts >= 1, "num_experts must be 1 or more");
  require(full == (d.hidden_size > 0), "hidden_size must be positive at stage full and 0 at stage from_logits");
  require(c.spec.shape.num_experts == d.num_experts && c.spec.shape.top_k == d.top_k,
          "num_experts or top_k differs from the spec's");
  require(!full || c.spec.shape.hidden_size == d.hidden_size, "hidden_size differs from the spec's");
  require_kept("keep_rows", d.keep_rows, d.num_tokens, 0);
  require_kept("keep_experts", d.keep_experts, d.num_experts, 0);
  require_kept("keep_columns", d.keep_columns, d.hidden_size, d.generated_hidden_size);
  require(d.generated_hidden_size == 0 || d.generated_hidden_size >= d.hidden_size,
          "generated_hidden_size is smaller than hidden_size");
  require(d.keep_columns.empty() || d.generated_hidden_size > 0, "keep_columns needs generated_hidden_size");
}

RouterInputs explicit_inputs(const Case& c) {
  const CaseDescription& d = c.description;
  require(d.plants.empty() && d.keep_rows.empty() && d.keep_experts.empty() && d.keep_columns.empty(),
          "explicit tensors come with plants or keep lists; write the values into the tensors");
  RouterInputs inputs = *d.data;
  const std::int64_t T = d.num_tokens, E = d.num_experts, H = d.hidden_size;
  const auto size = [](const auto& values) { return static_cast<std::int64_t>(values.size()); };
  require_size("num_tokens of the tensors", inputs.num_tokens, T);
  require_size("num_experts of the tensors", inputs.gate_rows, E);
  require_size("hidden_size of the tensors", inputs.hidden_size, H);
  require_size("size of hidden_states", size(inputs.hidden_states), T * H);
  require_size("size of gate_weight", size(inputs.gate_weight_bf16) + size(inputs.gate_weight_fp32), E * H);
  require(inputs.gate_weight_bf16.empty() || inputs.gate_weight_fp32.empty(), "gate_weight is given twice");
  require_size("size of router_logits", size(inputs.router_logits), H == 0 ? T * E : 0);
  require_size("size of linear_bias", size(inputs.linear_bias), c.spec.gate.linear_bias == BiasType::kNone ? 0 : E);
  require_size("size of selection_bias", size(inputs.selection_bias), c.spec.selection.bias == BiasType::kNone ? 0 : E);
  require(!inputs.num_valid_rows || inputs.num_valid_rows == d.num_valid_rows,
          "num_valid_rows of the tensors differs from the description's");
  inputs.num_valid_rows = d.num_valid_rows;
  return inputs;
}

void write(std::uint32_t bits, std::uint16_t& out) {
  out = static_cast<std::uint16_t>(bits >> 16);
}
void write(std::uint32_t bits, float& out) {
  out = std::bit_cast<float>(bits);
}

// Writes a plant into every kept element that it names.
template <class T>
void plant(const Plant& p, const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& columns,
           std::vector<T>& tensor) {
  for (std::size_t r = 0; r < rows.size(); ++r) {
    if (p.row >= 0 && p.row != rows[r]) continue;
    for (std::size_t column = 0; column < columns.size(); ++column) {
      if (p.column < 0 || p.column == columns[column]) write(p.bits, tensor[r * columns.size() + column]);
    }
  }
}

void apply(const Plant& p, const Kept& kept, RouterInputs& inputs) {
  switch (p.tensor) {
    case TensorId::kHiddenStates:
      require(!inputs.from_logits(), "a plant names hidden_states, but the case starts from logits");
      return plant(p, kept.rows, kept.columns, inputs.hidden_states);
    case TensorId::kGateWeight:
      require(!inputs.from_logits(), "a plant names gate_weight, but the case starts from logits");
      return inputs.gate_weight_fp32.empty() ? plant(p, kept.experts, kept.columns, inputs.gate_weight_bf16)
                                             : plant(p, kept.experts, kept.columns, inputs.gate_weight_fp32);
    case TensorId::kLinearBias:
      require(!inputs.linear_bias.empty(), "a plant names linear_bias, but the spec has none");
      return plant(p, {0}, kept.experts, inputs.linear_bias);
    case TensorId::kSelectionBias:
      require(!inputs.selection_bias.empty(), "a plant names selection_bias, but the spec has none");
      return plant(p, {0}, kept.experts, inputs.selection_bias);
    case TensorId::kRouterLogits:
      require(inputs.from_logits(), "a plant names router_logits, but the case starts from hidden states");
      return plant(p, kept.rows, kept.experts, inputs.router_logits);
  }
}

std::vector<std::int64_t> kept_or_all(const std::vector<std::int64_t>& keep, std::int64_t size) {
  if (!keep.empty()) return keep;
  std::vector<std::int64_t> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  return all;
}

}  // namespace

oracle::RouterSpec apply_shape(const oracle::RouterSpec& spec, const CaseDescription& description) {
  oracle::RouterSpec shaped = spec;
  if (description.stage == Stage::kFull) shaped.shape.hidden_size = description.hidden_size;
  shaped.shape.num_experts = description.num_experts;
  shaped.shape.top_k = description.top_k;
  shaped.selection.n_group = description.n_group;
  shaped.selection.topk_group = description.topk_group;
  if (description.n_group == 1) {
    shaped.selection.group_score = oracle::GroupScore::kNone;
    shaped.selection.group_mask = oracle::GroupMask::kNone;
  }
  return shaped;
}

RouterInputs materialize(const Case& c) {
  check(c);
  const CaseDescription& d = c.description;
  if (d.data) return explicit_inputs(c);

  const Kept kept{kept_or_all(d.keep_rows, d.num_tokens), kept_or_all(d.keep_experts, d.num_experts),
                  kept_or_all(d.keep_columns, d.hidden_size)};
  RouterInputs inputs;
  inputs.num_tokens = d.num_tokens;
  inputs.hidden_size = d.hidden_size;
  inputs.gate_rows = d.num_experts;
  inputs.num_valid_rows = d.num_valid_rows;
  if (d.stage == Stage::kFull) {
    inputs.hidden_states = generate_hidden_states(d, kept);
    if (d.gate_weight_dtype == oracle::FloatType::kFp32) {
      inputs.gate_weight_fp32 = generate_gate_weight_fp32(c, kept);
    } else {
      inputs.gate_weight_bf16 = generate_gate_weight_bf16(c, kept);
    }
  } else {
    inputs.router_logits = generate_router_logits(c, kept);
  }
  if (c.spec.gate.linear_bias != BiasType::kNone) inputs.linear_bias = generate_bias(d, TensorId::kLinearBias, kept);
  if (c.spec.selection.bias != BiasType::kNone) {
    inputs.selection_bias = generate_bias(d, TensorId::kSelectionBias, kept);
  }
  for (const Plant& p : d.plants) apply(p, kept, inputs);
  return inputs;
}

}  // namespace samebits::properties
