#include "properties/shrink_edit.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "oracle/emulate/tc256.h"
#include "oracle/spec/validate.h"
#include "properties/spec_features.h"

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

// A table [*, k] for the first `top_k` columns and the experts that stay. The place of one that is removed goes to the
// lowest that the row does not have.
std::vector<std::int32_t> part_of_table(const std::vector<std::int32_t>& table, std::int64_t k, std::int64_t top_k,
                                        const Positions& ranked) {
  std::vector<std::int32_t> out;
  const auto width = static_cast<std::size_t>(k), columns = static_cast<std::size_t>(top_k);
  for (std::size_t first = 0; first + width <= table.size(); first += width) {
    std::vector<std::int32_t> row(columns, -1);
    for (std::size_t i = 0; i < columns; ++i) {
      const auto found = std::lower_bound(ranked.begin(), ranked.end(), table[first + i]);
      if (found != ranked.end() && *found == table[first + i])
        row[i] = static_cast<std::int32_t>(found - ranked.begin());
    }
    std::int32_t next = 0;
    for (std::int32_t& id : row) {
      if (id >= 0) continue;
      while (std::find(row.begin(), row.end(), next) != row.end()) ++next;
      id = next;
    }
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

// Rows, rows of the gate and columns of explicit tensors; `d` has the sizes that follow.
oracle::RouterInputs part(const Case& c, const CaseDescription& d, const Positions& rows, const Positions& experts,
                          const Positions& columns) {
  const oracle::RouterInputs& in = *c.description.data;
  const std::int64_t H = in.hidden_size, gate_rows = in.gate_rows, num_ranked = oracle::ranked_experts(c.spec);
  const Positions ranked(experts.begin(), std::lower_bound(experts.begin(), experts.end(), num_ranked));
  oracle::RouterInputs out;
  out.num_tokens = static_cast<std::int64_t>(rows.size());
  out.gate_rows = static_cast<std::int64_t>(experts.size());
  out.hidden_size = static_cast<std::int64_t>(columns.size());
  out.hidden_states = part(in.hidden_states, H, rows, columns);
  out.gate_weight_bf16 = part(in.gate_weight_bf16, H, experts, columns);
  out.gate_weight_fp32 = part(in.gate_weight_fp32, H, experts, columns);
  out.input_scale_vector = part(in.input_scale_vector, H, {0}, columns);
  out.linear_bias = part(in.linear_bias, gate_rows, {0}, experts);
  out.selection_bias = part(in.selection_bias, num_ranked,
                            all_positions(static_cast<std::int64_t>(in.selection_bias.size()) / num_ranked), ranked);
  out.per_expert_scale = part(in.per_expert_scale, gate_rows, {0}, experts);
  out.global_scale = in.global_scale;
  out.router_logits = part(in.router_logits, gate_rows, rows, experts);
  out.hash_table = part_of_table(in.hash_table, oracle::top_k(c.spec), d.top_k, ranked);
  out.token_ids = part(in.token_ids, 1, rows, {0});
  out.token_ids_int32 = in.token_ids_int32;
  out.row_class = part(in.row_class, 1, rows, {0});
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

// All rows of the gate, but of the `size` rows from `first` on only those at `positions`.
Positions with_part(const Case& c, std::int64_t first, std::int64_t size, const Positions& positions) {
  Positions rows = all_positions(first);
  for (const std::int64_t position : positions) rows.push_back(first + position);
  for (std::int64_t row = first + size; row < oracle::gate_rows(c.spec); ++row) rows.push_back(row);
  return rows;
}

// Rows of the gate, counted in `d` already. Groups must stay equally large.
std::optional<Case> keep_gate_rows(const Case& c, CaseDescription d, const Positions& positions) {
  if (d.num_experts == 0 || d.n_group < 1 || d.num_experts % d.n_group != 0) return std::nullopt;
  const std::int64_t group_size = d.num_experts / d.n_group;
  if (selects_per_group(c.spec)) {
    const std::int64_t share = c.description.top_k / c.description.n_group;
    d.topk_group = d.n_group;
    d.top_k = d.n_group * std::min(share, group_size);
  } else {
    d.topk_group = std::min(d.topk_group, d.n_group);
    d.top_k = std::min(d.top_k, d.topk_group * group_size + d.zero_experts);
  }
  if (d.data) {
    d.data = part(c, d, all_positions(d.num_tokens), positions, all_positions(d.hidden_size));
  } else {
    d.keep_experts = composed(d.keep_experts, positions);
  }
  return with_description(c, std::move(d));
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
    d.data = part(c, d, positions, all_positions(d.data->gate_rows), all_positions(d.hidden_size));
  } else {
    d.keep_rows = composed(d.keep_rows, positions);
  }
  return with_description(c, std::move(d));
}

std::optional<Case> keep_experts(const Case& c, const Positions& positions, std::int64_t n_group) {
  CaseDescription d = c.description;
  d.num_experts = static_cast<std::int64_t>(positions.size());
  d.n_group = n_group;
  return keep_gate_rows(c, std::move(d), with_part(c, 0, c.description.num_experts, positions));
}

std::optional<Case> keep_zero_experts(const Case& c, const Positions& positions) {
  CaseDescription d = c.description;
  d.zero_experts = static_cast<std::int64_t>(positions.size());
  return keep_gate_rows(c, std::move(d),
                        with_part(c, c.description.num_experts, c.description.zero_experts, positions));
}

std::optional<Case> keep_shared_experts(const Case& c, const Positions& positions) {
  CaseDescription d = c.description;
  d.shared_in_gate = static_cast<std::int64_t>(positions.size());
  return keep_gate_rows(c, std::move(d),
                        with_part(c, oracle::ranked_experts(c.spec), c.description.shared_in_gate, positions));
}

std::optional<Case> with_top_k(const Case& c, std::int64_t top_k) {
  if (top_k < 1 || top_k >= c.description.top_k) return std::nullopt;
  CaseDescription d = c.description;
  d.top_k = top_k;
  if (d.data) {
    d.data = part(c, d, all_positions(d.num_tokens), all_positions(d.data->gate_rows), all_positions(d.hidden_size));
  }
  return with_description(c, std::move(d));
}

std::optional<Case> with_vocabulary(const Case& c, std::int64_t size) {
  if (c.description.data || size < 1 || size >= c.description.vocab_size) return std::nullopt;
  CaseDescription d = c.description;
  d.vocab_size = size;
  return with_description(c, std::move(d));
}

std::optional<Case> with_used_vocabulary(const Case& c) {
  if (!c.description.data || c.description.vocab_size == 0) return std::nullopt;
  CaseDescription d = c.description;
  const std::int64_t vocab = d.vocab_size;
  Positions used;
  for (const std::int64_t id : d.data->token_ids) {
    if (id >= 0 && id < vocab && std::find(used.begin(), used.end(), id) == used.end()) used.push_back(id);
  }
  if (used.empty()) used.push_back(0);
  if (used == all_positions(vocab)) return std::nullopt;
  d.vocab_size = static_cast<std::int64_t>(used.size());
  for (std::int64_t& id : d.data->token_ids) {
    if (id == vocab) id = d.vocab_size;  // just past the end
    const auto found = std::find(used.begin(), used.end(), id);
    if (id < vocab && found != used.end()) id = found - used.begin();
  }
  d.data->hash_table = part(c.description.data->hash_table, d.top_k, used, all_positions(d.top_k));
  return with_description(c, std::move(d));
}

std::optional<Case> keep_columns(const Case& c, const Positions& positions) {
  if (positions.empty() || c.description.stage != Stage::kFull) return std::nullopt;
  CaseDescription d = c.description;
  d.hidden_size = static_cast<std::int64_t>(positions.size());
  if (d.data) {
    d.data = part(c, d, all_positions(d.num_tokens), all_positions(d.data->gate_rows), positions);
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
  d.data->input_scale_vector.clear();
  d.data->hidden_size = 0;
  d.hidden_size = 0;
  d.stage = Stage::kFromLogits;
  out.spec = apply_shape(c.spec, d);
  return out;
}

std::int64_t count_numbers(const Case& c) {
  const CaseDescription& d = c.description;
  const bool full = d.stage == Stage::kFull;
  const std::int64_t gate_rows = oracle::gate_rows(c.spec), H = d.hidden_size;
  const std::int64_t classes = static_cast<std::int64_t>(c.spec.selection.bias_variants.size());
  std::int64_t count = d.num_tokens * (full ? H : gate_rows) + (full ? gate_rows * H : 0);
  if (full && c.spec.gate.input_scale_vector) count += H;
  if (c.spec.gate.linear_bias != oracle::BiasType::kNone) count += gate_rows;
  if (c.spec.selection.bias != oracle::BiasType::kNone) count += classes * oracle::ranked_experts(c.spec);
  if (c.spec.weights.per_expert_scale) count += gate_rows;
  return count + d.vocab_size * d.top_k;
}

}  // namespace samebits::properties
