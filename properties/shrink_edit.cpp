#include "properties/shrink_edit.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "oracle/emulate/tc256.h"
#include "oracle/spec/validate.h"

namespace samebits::properties {
namespace {

using Positions = std::vector<std::int64_t>;

std::vector<std::int64_t> all_positions(std::int64_t size) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(size));
  std::iota(all.begin(), all.end(), std::int64_t{0});
  return all;
}

// Rows and columns of a matrix [*, width]; an absent tensor stays absent.
template <class T>
std::vector<T> part(const std::vector<T>& matrix, std::int64_t width, const Positions& rows, const Positions& columns) {
  std::vector<T> out;
  if (matrix.empty()) return out;
  out.reserve(rows.size() * columns.size());
  for (const std::int64_t row : rows) {
    for (const std::int64_t column : columns) out.push_back(matrix[static_cast<std::size_t>(row * width + column)]);
  }
  return out;
}

oracle::RouterInputs part(const oracle::RouterInputs& in, const Positions& rows, const Positions& experts,
                          const Positions& columns) {
  const std::int64_t E = in.gate_rows, H = in.hidden_size;
  oracle::RouterInputs out;
  out.num_tokens = static_cast<std::int64_t>(rows.size());
  out.gate_rows = static_cast<std::int64_t>(experts.size());
  out.hidden_size = static_cast<std::int64_t>(columns.size());
  out.hidden_states = part(in.hidden_states, H, rows, columns);
  out.gate_weight_bf16 = part(in.gate_weight_bf16, H, experts, columns);
  out.gate_weight_fp32 = part(in.gate_weight_fp32, H, experts, columns);
  out.linear_bias = part(in.linear_bias, E, {0}, experts);
  out.selection_bias = part(in.selection_bias, E, {0}, experts);
  out.router_logits = part(in.router_logits, E, rows, experts);
  return out;
}

// The positions in the generated tensor; empty when they are its first ones, because values do not depend on sizes.
Positions composed(const Positions& kept, const Positions& positions) {
  Positions out = positions;
  if (!kept.empty()) {
    for (std::int64_t& position : out) position = kept[static_cast<std::size_t>(position)];
  }
  if (out == all_positions(static_cast<std::int64_t>(out.size()))) out.clear();
  return out;
}

}  // namespace

std::optional<Case> with_description(const Case& c, CaseDescription description) {
  Case out{c.spec_name, c.variant, apply_shape(c.spec, description), std::move(description)};
  if (!oracle::find_problems(out.spec).empty()) return std::nullopt;
  return out;
}

std::optional<Case> keep_rows(const Case& c, const Positions& positions) {
  if (positions.empty()) return std::nullopt;
  CaseDescription d = c.description;
  d.num_tokens = static_cast<std::int64_t>(positions.size());
  if (d.num_valid_rows && *d.num_valid_rows > 0 && *d.num_valid_rows <= c.description.num_tokens) {
    const std::int64_t valid = *d.num_valid_rows;
    d.num_valid_rows =
        static_cast<std::int32_t>(std::count_if(positions.begin(), positions.end(), [&](auto p) { return p < valid; }));
  }
  if (d.data) {
    d.data = part(*d.data, positions, all_positions(d.num_experts), all_positions(d.hidden_size));
  } else {
    d.keep_rows = composed(d.keep_rows, positions);
  }
  return with_description(c, std::move(d));
}

std::optional<Case> keep_experts(const Case& c, const Positions& positions, std::int64_t n_group) {
  const auto num_experts = static_cast<std::int64_t>(positions.size());
  if (num_experts == 0 || n_group < 1 || num_experts % n_group != 0) return std::nullopt;
  CaseDescription d = c.description;
  d.num_experts = num_experts;
  d.n_group = n_group;
  d.topk_group = std::min(d.topk_group, n_group);
  d.top_k = std::min(d.top_k, d.topk_group * (num_experts / n_group));
  if (d.data) {
    d.data = part(*d.data, all_positions(d.num_tokens), positions, all_positions(d.hidden_size));
  } else {
    d.keep_experts = composed(d.keep_experts, positions);
  }
  return with_description(c, std::move(d));
}

std::optional<Case> keep_columns(const Case& c, const Positions& positions) {
  if (positions.empty() || c.description.stage != Stage::kFull) return std::nullopt;
  CaseDescription d = c.description;
  d.hidden_size = static_cast<std::int64_t>(positions.size());
  if (d.data) {
    d.data = part(*d.data, all_positions(d.num_tokens), all_positions(d.num_experts), positions);
  } else {
    if (d.generated_hidden_size == 0) d.generated_hidden_size = c.description.hidden_size;
    d.keep_columns = composed(d.keep_columns, positions);
  }
  return with_description(c, std::move(d));
}

Case with_explicit_tensors(const Case& c) {
  Case out = c;
  CaseDescription& d = out.description;
  d.data = materialize(c);
  d.data->num_valid_rows.reset();  // the description's counts
  d.plants.clear();
  d.keep_rows.clear();
  d.keep_experts.clear();
  d.keep_columns.clear();
  d.generated_hidden_size = 0;
  return out;
}

Case from_finished_logits(const Case& c) {
  Case out = with_explicit_tensors(c);
  CaseDescription& d = out.description;
  d.data->router_logits = oracle::tc256_logits(c.spec, *d.data, all_positions(d.num_tokens));
  d.data->hidden_states.clear();
  d.data->gate_weight_bf16.clear();
  d.data->gate_weight_fp32.clear();
  d.data->hidden_size = 0;
  d.hidden_size = 0;
  d.stage = Stage::kFromLogits;
  out.spec = apply_shape(c.spec, d);
  return out;
}

std::int64_t count_numbers(const Case& c) {
  const CaseDescription& d = c.description;
  const std::int64_t width = d.stage == Stage::kFull ? d.hidden_size : d.num_experts;
  const std::int64_t gate = d.stage == Stage::kFull ? d.num_experts * d.hidden_size : 0;
  const std::int64_t biases = (c.spec.gate.linear_bias != oracle::BiasType::kNone ? d.num_experts : 0) +
                              (c.spec.selection.bias != oracle::BiasType::kNone ? d.num_experts : 0);
  return d.num_tokens * width + gate + biases;
}

}  // namespace samebits::properties
