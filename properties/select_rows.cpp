#include <algorithm>
#include <bit>
#include <cstddef>
#include <stdexcept>
#include <string>

#include "properties/run.h"

namespace samebits::properties {
namespace {

// Both signs, so that sums of them meet Inf - Inf as well as overflow.
constexpr std::uint32_t kNanBits = 0x7fc00000u;
constexpr std::uint32_t kInfBits = 0x7f800000u;
constexpr std::uint32_t kHugeBits = 0x7f7f0000u;  // the largest finite bf16, exact in fp32 too

std::uint32_t replacement_bits(RowReplacement replacement, std::size_t column) {
  const std::uint32_t sign = column % 2 == 0 ? 0u : 0x80000000u;
  switch (replacement) {
    case RowReplacement::kNaN:
      return kNanBits | sign;
    case RowReplacement::kInf:
      return kInfBits | sign;
    case RowReplacement::kHuge:
    case RowReplacement::kKeep:
      break;
  }
  return kHugeBits | sign;
}

}  // namespace

oracle::RouterInputs select_rows(const oracle::RouterInputs& inputs, const RunRequest& request) {
  oracle::RouterInputs selected = only_rows(inputs, request);
  selected.gate_weight_bf16 = inputs.gate_weight_bf16;
  selected.gate_weight_fp32 = inputs.gate_weight_fp32;
  selected.input_scale_vector = inputs.input_scale_vector;
  selected.linear_bias = inputs.linear_bias;
  selected.selection_bias = inputs.selection_bias;
  selected.per_expert_scale = inputs.per_expert_scale;
  selected.global_scale = inputs.global_scale;
  selected.hash_table = inputs.hash_table;
  return selected;
}

oracle::RouterInputs only_rows(const oracle::RouterInputs& inputs, const RunRequest& request) {
  if (!request.replace.empty() && request.replace.size() != request.rows.size()) {
    throw std::invalid_argument("run " + request.id + ": replace has " + std::to_string(request.replace.size()) +
                                " entries for " + std::to_string(request.rows.size()) +
                                " rows; give one per row or none");
  }
  oracle::RouterInputs selected;
  selected.num_tokens = static_cast<std::int64_t>(request.rows.size());
  selected.hidden_size = inputs.hidden_size;
  selected.gate_rows = inputs.gate_rows;
  selected.token_ids_int32 = inputs.token_ids_int32;
  selected.num_valid_rows = request.num_valid_rows;

  const bool from_logits = inputs.from_logits();
  const auto width = static_cast<std::size_t>(from_logits ? inputs.gate_rows : inputs.hidden_size);
  if (from_logits) {
    selected.router_logits.resize(request.rows.size() * width);
  } else {
    selected.hidden_states.resize(request.rows.size() * width);
  }

  for (std::size_t r = 0; r < request.rows.size(); ++r) {
    const std::int64_t row = request.rows[r];
    if (row < 0 || row >= inputs.num_tokens) {
      throw std::invalid_argument("run " + request.id + ": row " + std::to_string(row) + " of a case with " +
                                  std::to_string(inputs.num_tokens) + " rows; allowed are 0 to T - 1");
    }
    // A replaced row keeps both.
    if (!inputs.token_ids.empty()) selected.token_ids.push_back(inputs.token_ids[static_cast<std::size_t>(row)]);
    if (!inputs.row_class.empty()) selected.row_class.push_back(inputs.row_class[static_cast<std::size_t>(row)]);
    const std::size_t from = static_cast<std::size_t>(row) * width;
    const std::size_t to = r * width;
    const RowReplacement replacement = request.replace.empty() ? RowReplacement::kKeep : request.replace[r];
    if (replacement == RowReplacement::kKeep) {
      if (from_logits) {
        std::copy_n(&inputs.router_logits[from], width, &selected.router_logits[to]);
      } else {
        std::copy_n(&inputs.hidden_states[from], width, &selected.hidden_states[to]);
      }
      continue;
    }
    for (std::size_t i = 0; i < width; ++i) {
      const std::uint32_t bits = replacement_bits(replacement, i);
      if (from_logits) {
        selected.router_logits[to + i] = std::bit_cast<float>(bits);
      } else {
        selected.hidden_states[to + i] = static_cast<std::uint16_t>(bits >> 16);
      }
    }
  }
  return selected;
}

}  // namespace samebits::properties
