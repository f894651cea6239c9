#include <algorithm>
#include <array>
#include <utility>

#include "properties/shrink_edit.h"
#include "properties/shrink_passes.h"
#include "properties/spec_features.h"

namespace samebits::properties {
namespace {

using Positions = std::vector<std::int64_t>;

// Chunks of `chunk` positions in `size`; one chunk alone cannot be removed.
std::int64_t chunks(std::int64_t size, std::int64_t chunk) {
  return size > chunk ? (size + chunk - 1) / chunk : 0;
}

Positions without_chunk(std::int64_t size, std::int64_t chunk, std::int64_t index) {
  Positions rest;
  for (std::int64_t i = 0; i < size; ++i) {
    if (i / chunk != index) rest.push_back(i);
  }
  return rest;
}

std::int64_t group_size(const CaseDescription& d) {
  return d.num_experts / d.n_group;
}

// Experts at (groups) x (members inside each group).
std::optional<Case> keep_members(const Case& c, const Positions& groups, const Positions& members) {
  Positions positions;
  for (const std::int64_t group : groups) {
    for (const std::int64_t member : members) positions.push_back(group * group_size(c.description) + member);
  }
  return keep_experts(c, positions, static_cast<std::int64_t>(groups.size()));
}

Positions first(std::int64_t size) {
  return without_chunk(size, 1, -1);
}

Pass remove_rows(std::int64_t chunk) {
  return {
      [=](const Case& c) { return chunks(c.description.num_tokens, chunk); },
      [=](const Case& c, std::int64_t i) { return keep_rows(c, without_chunk(c.description.num_tokens, chunk, i)); }};
}

Pass remove_columns(std::int64_t chunk) {
  return {[=](const Case& c) { return chunks(c.description.hidden_size, chunk); },
          [=](const Case& c, std::int64_t i) {
            return keep_columns(c, without_chunk(c.description.hidden_size, chunk, i));
          }};
}

constexpr std::int64_t kLanes = 16;            // columns of a k16 step
constexpr std::int64_t kAllColumns = 1 << 30;  // a window larger than any H

// Columns of `lanes` neighbouring places in the k16 steps of one window of the generated tensors. The cancelling terms
// of the order-sensitive families have the same place in a window: removed together, they leave a sum of the same size.
Pass remove_lanes(std::int64_t window, std::int64_t lanes) {
  // The part of a window that the i-th present column belongs to.
  const auto part_of = [=](const CaseDescription& d, std::int64_t i) {
    const std::int64_t column = d.keep_columns.empty() ? i : d.keep_columns[static_cast<std::size_t>(i)];
    return column / window * (kLanes / lanes) + column % kLanes / lanes;
  };
  const auto present_parts = [=](const CaseDescription& d) {
    Positions parts;
    for (std::int64_t i = 0; i < d.hidden_size; ++i) parts.push_back(part_of(d, i));
    std::sort(parts.begin(), parts.end());
    parts.erase(std::unique(parts.begin(), parts.end()), parts.end());
    return parts;
  };
  return {[=](const Case& c) {
            const auto size = static_cast<std::int64_t>(present_parts(c.description).size());
            return size > 1 ? size : 0;
          },
          [=](const Case& c, std::int64_t index) {
            const CaseDescription& d = c.description;
            const std::int64_t removed = present_parts(d)[static_cast<std::size_t>(index)];
            Positions rest;
            for (std::int64_t i = 0; i < d.hidden_size; ++i) {
              if (part_of(d, i) != removed) rest.push_back(i);
            }
            return keep_columns(c, rest);
          }};
}

// The same members of every group; without groups, experts.
Pass remove_experts(std::int64_t chunk) {
  return {[=](const Case& c) { return chunks(group_size(c.description), chunk); },
          [=](const Case& c, std::int64_t i) {
            return keep_members(c, first(c.description.n_group), without_chunk(group_size(c.description), chunk, i));
          }};
}

Pass remove_groups(std::int64_t chunk) {
  return {[=](const Case& c) { return chunks(c.description.n_group, chunk); },
          [=](const Case& c, std::int64_t i) {
            return keep_members(c, without_chunk(c.description.n_group, chunk, i), first(group_size(c.description)));
          }};
}

Pass remove_plants(std::int64_t chunk) {
  const auto size = [](const Case& c) { return static_cast<std::int64_t>(c.description.plants.size()); };
  return {[=](const Case& c) { return (size(c) + chunk - 1) / chunk; },
          [=](const Case& c, std::int64_t i) {
            CaseDescription d = c.description;
            const std::int64_t end = std::min((i + 1) * chunk, size(c));
            d.plants.erase(d.plants.begin() + i * chunk, d.plants.begin() + end);
            return with_description(c, std::move(d));
          }};
}

// One edit of the description; it returns false when there is nothing to simplify.
Pass edit(bool (*simplify)(CaseDescription&)) {
  return {[](const Case&) { return std::int64_t{1}; },
          [=](const Case& c, std::int64_t) -> std::optional<Case> {
            CaseDescription d = c.description;
            if (!simplify(d)) return std::nullopt;
            return with_description(c, std::move(d));
          }};
}

// Values of a size that is `now`, the most drastic first.
std::array<std::int64_t, 3> smaller(std::int64_t now) {
  return {1, now / 2, now - 1};
}

// Where every group gives a share of its own, the share.
Pass smaller_top_k() {
  return {[](const Case&) { return std::int64_t{3}; },
          [](const Case& c, std::int64_t i) {
            const std::int64_t shares = selects_per_group(c.spec) ? c.description.n_group : 1;
            return with_top_k(c, smaller(c.description.top_k / shares)[static_cast<std::size_t>(i)] * shares);
          }};
}

// Zero or shared experts: all of them, then chunks.
using KeepExperts = std::optional<Case> (*)(const Case&, const Positions&);
Pass remove_kind(std::int64_t CaseDescription::*size, KeepExperts keep, std::int64_t chunk) {
  return {[=](const Case& c) {
            const std::int64_t now = c.description.*size;
            return now == 0 ? 0 : std::max<std::int64_t>(1, chunks(now, chunk));
          },
          [=](const Case& c, std::int64_t i) {
            const std::int64_t now = c.description.*size;
            return keep(c, now <= chunk ? Positions{} : without_chunk(now, chunk, i));
          }};
}
Pass remove_zero_experts(std::int64_t chunk) {
  return remove_kind(&CaseDescription::zero_experts, keep_zero_experts, chunk);
}
Pass remove_shared_experts(std::int64_t chunk) {
  return remove_kind(&CaseDescription::shared_in_gate, keep_shared_experts, chunk);
}

Pass smaller_vocabulary() {
  return {[](const Case& c) { return std::int64_t{c.description.vocab_size > 1 ? 3 : 0}; },
          [](const Case& c, std::int64_t i) {
            return c.description.data
                       ? with_used_vocabulary(c)
                       : with_vocabulary(c, smaller(c.description.vocab_size)[static_cast<std::size_t>(i)]);
          }};
}

Pass start_from_logits() {
  // Every row of every expert is computed once; past this size it is cheaper to remove rows first.
  constexpr std::int64_t kMaxProducts = std::int64_t{1} << 31;
  return {[](const Case& c) { return std::int64_t{c.description.stage == Stage::kFull}; },
          [](const Case& c, std::int64_t) -> std::optional<Case> {
            const CaseDescription& d = c.description;
            if (d.num_tokens * oracle::gate_rows(c.spec) * d.hidden_size > kMaxProducts) return std::nullopt;
            return from_finished_logits(c);
          }};
}

bool no_groups(CaseDescription& d) {
  d.topk_group = 1;
  return std::exchange(d.n_group, 1) != 1;
}
bool fewer_chosen_groups(CaseDescription& d) {
  if (d.topk_group == 1) return false;
  --d.topk_group;
  return true;
}
bool no_padding(CaseDescription& d) {
  if (!d.num_valid_rows) return false;
  d.num_valid_rows.reset();
  return true;
}
// Edits of the families, which explicit tensors do not have.
template <class T>
bool set(const CaseDescription& d, T& field, T value) {
  return !d.data && std::exchange(field, value) != value;
}
bool no_linear_bias(CaseDescription& d) {
  return set(d, d.linear_bias, BiasFamily::kZero);
}
bool no_selection_bias(CaseDescription& d) {
  return set(d, d.selection_bias, BiasFamily::kZero);
}
bool no_bias_offset(CaseDescription& d) {
  return set(d, d.bias_offset, 0.0f);
}
bool no_logits_offset(CaseDescription& d) {
  return set(d, d.logits_offset, 0.0f);
}
bool unit_scales(CaseDescription& d) {
  return set(d, d.scales, ScaleFamily::kUnit);
}
bool tokens_in_the_table(CaseDescription& d) {
  return set(d, d.tokens, TokenFamily::kUniform);
}
bool int64_token_ids(CaseDescription& d) {
  return d.data ? std::exchange(d.data->token_ids_int32, false) : set(d, d.token_ids_int32, false);
}
bool no_row_classes(CaseDescription& d) {
  if (d.data) return !std::exchange(d.data->row_class, {}).empty();
  std::erase_if(d.plants, [](const Plant& p) { return p.tensor == TensorId::kRowClass; });
  return set(d, d.row_classes, RowClassFamily::kAbsent);
}
bool bf16_gate_weight(CaseDescription& d) {
  return set(d, d.gate_weight_dtype, oracle::FloatType::kBf16);
}

}  // namespace

std::vector<Pass> shape_passes() {
  std::vector<Pass> passes;
  passes.push_back(start_from_logits());
  passes.push_back(edit(no_padding));
  // Chunks are powers of two: 256 columns are a chain of the contract and 16 a step, so that what remains keeps its
  // place in both as long as possible.
  constexpr std::int64_t kLargestChunk = std::int64_t{1} << 13, kManyRows = 4;
  for (std::int64_t chunk = kLargestChunk; chunk >= kManyRows; chunk /= 2) passes.push_back(remove_rows(chunk));
  // Columns before the last rows and all experts: while there are many logits, some of them still show a fault of which
  // each shows little. Not before all rows: a slow router would spend its evaluations on columns of many.
  for (std::int64_t lanes = kLanes / 2; lanes >= 1; lanes /= 2) passes.push_back(remove_lanes(kAllColumns, lanes));
  for (std::int64_t chunk = kLargestChunk; chunk >= 1; chunk /= 2) passes.push_back(remove_columns(chunk));
  for (std::int64_t window = 256 * kLanes; window > kLanes; window /= 2) {
    for (std::int64_t lanes = kLanes / 2; lanes >= 1; lanes /= 2) passes.push_back(remove_lanes(window, lanes));
  }
  passes.push_back(edit(no_groups));
  passes.push_back(smaller_top_k());
  passes.push_back(smaller_vocabulary());
  for (std::int64_t chunk = kLargestChunk; chunk >= 1; chunk /= 2) {
    if (chunk < kManyRows) passes.push_back(remove_rows(chunk));
    if (chunk <= 16) passes.push_back(remove_plants(chunk));
    passes.push_back(remove_groups(chunk));
    passes.push_back(remove_experts(chunk));
    passes.push_back(remove_zero_experts(chunk));
    passes.push_back(remove_shared_experts(chunk));
  }
  passes.push_back(edit(fewer_chosen_groups));
  for (const auto simplify : {no_row_classes, tokens_in_the_table, int64_token_ids, unit_scales, no_linear_bias,
                              no_selection_bias, no_bias_offset, no_logits_offset, bf16_gate_weight}) {
    passes.push_back(edit(simplify));
  }
  return passes;
}

}  // namespace samebits::properties
