#include <bit>
#include <numeric>
#include <stdexcept>
#include <string>
#include <tuple>

#include "oracle/tensors/bf16.h"
#include "properties/case.h"
#include "properties/generators/families.h"
#include "properties/spec_features.h"

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

void require_at_least(const char* name, std::int64_t found, std::int64_t least) {
  if (found < least) {
    contradiction(std::string(name) + " is " + std::to_string(found) + "; it must be " + std::to_string(least) +
                  " or more");
  }
}

void require_kept(const char* name, const std::vector<std::int64_t>& kept, std::int64_t size, std::int64_t generated) {
  if (kept.empty()) return;
  require_size(name, static_cast<std::int64_t>(kept.size()), size);
  for (const std::int64_t position : kept) {
    if (position < 0 || (generated > 0 && position >= generated)) {
      contradiction(std::string(name) + " holds " + std::to_string(position) +
                    "; it must be from 0 to below the size of the generated tensor");
    }
  }
}

void check(const Case& c) {
  const CaseDescription& d = c.description;
  const bool full = d.stage == Stage::kFull;
  require_at_least("num_tokens", d.num_tokens, 0);
  require_at_least("num_experts", d.num_experts, 1);
  require(full == (d.hidden_size > 0), "hidden_size must be positive at stage full and 0 at stage from_logits");
  require_size("num_experts of the spec", c.spec.shape.num_experts.value_or(0), d.num_experts);
  require_size("top_k of the spec", c.spec.shape.top_k.value_or(0), d.top_k);
  require_at_least("num_experts + zero_experts", d.num_experts + d.zero_experts, d.top_k);
  require_size("zero_experts of the spec", c.spec.special.zero_experts, d.zero_experts);
  require_size("shared_in_gate of the spec", oracle::shared_in_gate(c.spec), d.shared_in_gate);
  const bool table = has_table(c.spec);
  require(table == (d.vocab_size > 0), "vocab_size must be positive exactly when the spec selects by hash_table");
  if (table) require_size("vocab_size of the spec", c.spec.hash.vocab_size.value_or(0), d.vocab_size);
  if (full) require_size("hidden_size of the spec", c.spec.shape.hidden_size.value_or(0), d.hidden_size);
  require_kept("keep_rows", d.keep_rows, d.num_tokens, 0);
  require_kept("keep_experts", d.keep_experts, oracle::gate_rows(c.spec), 0);
  require_kept("keep_columns", d.keep_columns, d.hidden_size, d.generated_hidden_size);
  if (d.generated_hidden_size != 0) {
    require_at_least("generated_hidden_size", d.generated_hidden_size, d.hidden_size);
  }
  require(d.keep_columns.empty() || d.generated_hidden_size > 0, "keep_columns needs generated_hidden_size");
}

RouterInputs explicit_inputs(const Case& c) {
  const CaseDescription& d = c.description;
  require(d.plants.empty() && d.keep_rows.empty() && d.keep_experts.empty() && d.keep_columns.empty(),
          "explicit tensors come with plants or keep lists; write the values into the tensors");
  RouterInputs inputs = *d.data;
  const std::int64_t T = d.num_tokens, H = d.hidden_size;
  const std::int64_t gate_rows = oracle::gate_rows(c.spec), ranked = oracle::ranked_experts(c.spec);
  const auto size = [](const auto& values) { return static_cast<std::int64_t>(values.size()); };
  require_size("num_tokens of the tensors", inputs.num_tokens, T);
  require_size("gate_rows of the tensors", inputs.gate_rows, gate_rows);
  require_size("hidden_size of the tensors", inputs.hidden_size, H);
  require_size("size of hidden_states", size(inputs.hidden_states), T * H);
  require_size("size of gate_weight", size(inputs.gate_weight_bf16) + size(inputs.gate_weight_fp32), gate_rows * H);
  require(inputs.gate_weight_bf16.empty() || inputs.gate_weight_fp32.empty(), "gate_weight is given twice");
  require_size("size of router_logits", size(inputs.router_logits), H == 0 ? T * gate_rows : 0);
  require_size("size of input_scale_vector", size(inputs.input_scale_vector), c.spec.gate.input_scale_vector ? H : 0);
  require_size("size of linear_bias", size(inputs.linear_bias),
               c.spec.gate.linear_bias == BiasType::kNone ? 0 : gate_rows);
  const bool bias = c.spec.selection.bias != BiasType::kNone;
  require_size("size of selection_bias", size(inputs.selection_bias),
               bias ? size(c.spec.selection.bias_variants) * ranked : 0);
  require_size("size of per_expert_scale", size(inputs.per_expert_scale),
               c.spec.weights.per_expert_scale ? gate_rows : 0);
  require_size("size of global_scale", size(inputs.global_scale), c.spec.weights.global_scale ? 1 : 0);
  const bool table = has_table(c.spec);
  require_size("size of hash_table", size(inputs.hash_table), d.vocab_size * d.top_k);
  require_size("size of token_ids", size(inputs.token_ids), table ? T : 0);
  if (!inputs.row_class.empty()) require_size("size of row_class", size(inputs.row_class), bias ? T : 0);
  require(!inputs.num_valid_rows || inputs.num_valid_rows == d.num_valid_rows,
          "num_valid_rows of the tensors differs from the description's");
  inputs.num_valid_rows = d.num_valid_rows;
  return inputs;
}

std::vector<std::int64_t> first_positions(std::int64_t size) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  return all;
}

void write(std::uint32_t bits, std::int32_t& out) {
  out = static_cast<std::int32_t>(bits);
}
void write(std::uint32_t bits, std::int64_t& out) {
  out = static_cast<std::int32_t>(bits);
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
      return plant(p, first_positions(static_cast<std::int64_t>(inputs.selection_bias.size() / kept.ranked.size())),
                   kept.ranked, inputs.selection_bias);
    case TensorId::kRouterLogits:
      require(inputs.from_logits(), "a plant names router_logits, but the case starts from hidden states");
      return plant(p, kept.rows, kept.experts, inputs.router_logits);
    case TensorId::kInputScaleVector:
      require(!inputs.input_scale_vector.empty(), "a plant names input_scale_vector, but the case has none");
      return plant(p, {0}, kept.columns, inputs.input_scale_vector);
    case TensorId::kPerExpertScale:
      require(!inputs.per_expert_scale.empty(), "a plant names per_expert_scale, but the spec has none");
      return plant(p, {0}, kept.experts, inputs.per_expert_scale);
    case TensorId::kGlobalScale:
      require(!inputs.global_scale.empty(), "a plant names global_scale, but the spec has none");
      return plant(p, {0}, {0}, inputs.global_scale);
    case TensorId::kTokenIds:
      require(inputs.token_ids.size() == kept.rows.size(), "a plant names token_ids, but the spec has no hash table");
      return plant(p, kept.rows, {0}, inputs.token_ids);
    case TensorId::kRowClass:
      require(inputs.row_class.size() == kept.rows.size(), "a plant names row_class, but the case has none");
      return plant(p, kept.rows, {0}, inputs.row_class);
  }
}

std::vector<std::int64_t> kept_or_all(const std::vector<std::int64_t>& keep, std::int64_t size) {
  return keep.empty() ? first_positions(size) : keep;
}

Kept kept_positions(const CaseDescription& d) {
  const std::int64_t ranked = d.num_experts + d.zero_experts;
  Kept kept{kept_or_all(d.keep_rows, d.num_tokens),
            kept_or_all(d.keep_columns, d.hidden_size),
            kept_or_all(d.keep_experts, ranked + d.shared_in_gate),
            {}};
  kept.ranked.assign(kept.experts.begin(), kept.experts.begin() + ranked);
  return kept;
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
  shaped.special.zero_experts = description.zero_experts;
  if (description.zero_experts == 0) shaped.special.zero_type = oracle::ZeroType::kNone;
  if (shaped.special.shared_mode == oracle::SharedMode::kInGate) {
    shaped.special.shared_experts = description.shared_in_gate;
    if (description.shared_in_gate == 0) shaped.special.shared_mode = oracle::SharedMode::kOutsideRouter;
  }
  if (has_table(spec)) shaped.hash.vocab_size = description.vocab_size;
  return shaped;
}

RouterInputs materialize(const Case& c) {
  check(c);
  const CaseDescription& d = c.description;
  if (d.data) return explicit_inputs(c);

  const Kept kept = kept_positions(d);
  RouterInputs inputs;
  inputs.num_tokens = d.num_tokens;
  inputs.hidden_size = d.hidden_size;
  inputs.gate_rows = oracle::gate_rows(c.spec);
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
  if (c.spec.gate.input_scale_vector && d.stage == Stage::kFull) {
    inputs.input_scale_vector = generate_scale(d, TensorId::kInputScaleVector, kept);
  }
  if (c.spec.gate.linear_bias != BiasType::kNone) inputs.linear_bias = generate_linear_bias(d, kept);
  if (c.spec.selection.bias != BiasType::kNone) {
    inputs.selection_bias = generate_selection_bias(c, kept);
    inputs.row_class = generate_row_class(c, kept);
  }
  if (c.spec.weights.per_expert_scale) inputs.per_expert_scale = generate_scale(d, TensorId::kPerExpertScale, kept);
  if (c.spec.weights.global_scale) inputs.global_scale = generate_scale(d, TensorId::kGlobalScale, kept);
  if (has_table(c.spec)) {
    inputs.hash_table = generate_hash_table(d, kept);
    inputs.token_ids = generate_token_ids(d, kept);
    inputs.token_ids_int32 = d.token_ids_int32;
  }
  for (const Plant& p : d.plants) apply(p, kept, inputs);
  return inputs;
}

}  // namespace samebits::properties
