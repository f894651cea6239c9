#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <utility>
#include <vector>

#include "oracle/tensors/bf16.h"
#include "properties/shrink_edit.h"
#include "properties/shrink_passes.h"

namespace samebits::properties {
namespace {

using oracle::RouterInputs;

constexpr std::uint32_t kNaN = 0x7fffffffu;
constexpr std::uint32_t kOne = 0x3f800000u;

// All values of explicit tensors as one sequence of fp32 bits.
class Values {
 public:
  explicit Values(RouterInputs& inputs) : inputs_(inputs) {}

  std::size_t size() const {
    std::size_t total = 0;
    each_tensor([&](const auto& tensor) {
      total += tensor.size();
      return false;
    });
    return total;
  }
  std::uint32_t get(std::size_t i) const {
    std::uint32_t bits = 0;
    visit(i, [&](auto& value) { bits = read(value); });
    return bits;
  }
  void set(std::size_t i, std::uint32_t bits) {
    visit(i, [&](auto& value) { write(value, bits); });
  }

 private:
  static std::uint32_t read(std::uint16_t value) { return static_cast<std::uint32_t>(value) << 16; }
  static std::uint32_t read(float value) { return std::bit_cast<std::uint32_t>(value); }
  static void write(std::uint16_t& value, std::uint32_t bits) { value = static_cast<std::uint16_t>(bits >> 16); }
  static void write(float& value, std::uint32_t bits) { value = std::bit_cast<float>(bits); }

  // The tensors of numbers, until f returns true.
  template <class F>
  void each_tensor(F f) const {
    RouterInputs& in = inputs_;
    (void)(f(in.hidden_states) || f(in.gate_weight_bf16) || f(in.gate_weight_fp32) || f(in.input_scale_vector) ||
           f(in.linear_bias) || f(in.selection_bias) || f(in.per_expert_scale) || f(in.global_scale) ||
           f(in.router_logits));
  }

  template <class F>
  void visit(std::size_t i, F f) const {
    each_tensor([&](auto& tensor) {
      if (i < tensor.size()) {
        f(tensor[i]);
        return true;
      }
      i -= tensor.size();
      return false;
    });
  }

  RouterInputs& inputs_;
};

bool is_nan(std::uint32_t bits) {
  return (bits & 0x7fffffffu) > 0x7f800000u;
}
bool is_finite(std::uint32_t bits) {
  return (bits & 0x7f800000u) != 0x7f800000u;
}

int significant_bits(std::uint32_t bits) {
  const std::uint32_t fraction = bits & 0x7fffffu;
  return fraction == 0 ? 1 : 24 - std::countr_zero(fraction);
}

// How far a value is from simple. Every change of a value must lower its complexity, so shrinking of values ends.
int complexity(std::uint32_t bits) {
  if (bits == 0) return 0;
  if (bits == kOne) return 1;
  if (bits == (kOne | 0x80000000u)) return 2;
  // NaN as a bf16 tensor holds it counts as canonical.
  if (is_nan(bits)) return bits == kNaN || bits == (kNaN & 0xffff0000u) ? 5 : 40;
  if (!is_finite(bits)) return 5;
  const float value = std::bit_cast<float>(bits);
  if (value != 0.0f && std::fabs(value) <= 16.0f && value == std::trunc(value)) return 3;
  return 4 + significant_bits(bits);
}

// Truncates to `count` significant bits of a normal value.
std::uint32_t with_significant_bits(std::uint32_t bits, int count) {
  return bits & ~((std::uint32_t{1} << (24 - count)) - 1);
}

constexpr int kForms = 8;

// Simpler forms of a value, the simplest first.
std::uint32_t simpler_form(std::uint32_t bits, std::int64_t form) {
  const std::uint32_t sign = bits & 0x80000000u;
  if (form == 0) return kOne;
  if (form == 1) return kOne | sign;
  if (is_nan(bits)) return kNaN;
  if (!is_finite(bits)) return bits;
  const float value = std::bit_cast<float>(bits);
  if (form == 2) return std::fabs(value) <= 16.0f ? std::bit_cast<std::uint32_t>(std::nearbyint(value)) : bits;
  constexpr std::array<int, kForms> kBits = {0, 0, 0, 1, 2, 4, 8, 16};
  return with_significant_bits(bits, kBits[static_cast<std::size_t>(form)]);
}

// Positions of values whose complexity is above `limit`.
std::vector<std::size_t> positions_above(RouterInputs inputs, int limit) {
  const Values values(inputs);
  std::vector<std::size_t> positions;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (complexity(values.get(i)) > limit) positions.push_back(i);
  }
  return positions;
}

std::int64_t count_chunks(const Case& c, int limit, std::int64_t chunk) {
  if (!has_small_data(c)) return 0;
  const auto size = static_cast<std::int64_t>(positions_above(*c.description.data, limit).size());
  return (size + chunk - 1) / chunk;
}

// `c` with replace(bits) at the values of one chunk above the limit; nothing when that changes no value.
template <class Replace>
std::optional<Case> replace_chunk(const Case& c, int limit, std::int64_t chunk, std::int64_t index, Replace replace) {
  Case out = c;
  Values values(*out.description.data);
  const std::vector<std::size_t> positions = positions_above(*c.description.data, limit);
  bool changed = false;
  const std::size_t begin = static_cast<std::size_t>(index * chunk);
  for (std::size_t i = begin; i < positions.size() && i < begin + static_cast<std::size_t>(chunk); ++i) {
    const std::uint32_t bits = values.get(positions[i]);
    const std::uint32_t simpler = replace(bits);
    if (complexity(simpler) >= complexity(bits)) continue;
    values.set(positions[i], simpler);
    changed = true;
  }
  if (!changed) return std::nullopt;
  return out;
}

Pass zero_values(std::int64_t chunk) {
  return {
      [=](const Case& c) { return count_chunks(c, 0, chunk); },
      [=](const Case& c, std::int64_t i) { return replace_chunk(c, 0, chunk, i, [](std::uint32_t) { return 0u; }); }};
}

Pass simplify_values(std::int64_t chunk) {
  return {[=](const Case& c) { return count_chunks(c, 1, chunk) * kForms; },
          [=](const Case& c, std::int64_t i) {
            return replace_chunk(c, 1, chunk, i / kForms,
                                 [=](std::uint32_t bits) { return simpler_form(bits, i % kForms); });
          }};
}

// Token id or class 0 for one row.
template <class Ids>
Pass zero_ids(Ids RouterInputs::*ids) {
  return {[=](const Case& c) {
            return has_small_data(c) ? static_cast<std::int64_t>(((*c.description.data).*ids).size()) : std::int64_t{0};
          },
          [=](const Case& c, std::int64_t i) -> std::optional<Case> {
            Case out = c;
            auto& id = ((*out.description.data).*ids)[static_cast<std::size_t>(i)];
            if (std::exchange(id, 0) == 0) return std::nullopt;
            return out;
          }};
}

Pass explicit_tensors() {
  return {[](const Case& c) { return std::int64_t{!c.description.data && count_numbers(c) <= kMaxExplicitNumbers}; },
          [](const Case& c, std::int64_t) -> std::optional<Case> { return with_explicit_tensors(c); }};
}

Pass bf16_gate_weight() {
  return {
      [](const Case& c) { return std::int64_t{c.description.data && !c.description.data->gate_weight_fp32.empty()}; },
      [](const Case& c, std::int64_t) -> std::optional<Case> {
        Case out = c;
        RouterInputs& data = *out.description.data;
        for (const float value : data.gate_weight_fp32) data.gate_weight_bf16.push_back(oracle::fp32_to_bf16(value));
        data.gate_weight_fp32.clear();
        return out;
      }};
}

// Columns that hold a value other than +0, in the hidden states or in the gate weight.
std::vector<std::int64_t> used_columns(const RouterInputs& inputs) {
  std::vector<std::int64_t> columns;
  const auto H = static_cast<std::size_t>(inputs.hidden_size);
  const auto used = [&](const auto& tensor, std::size_t column) {
    for (std::size_t i = column; i < tensor.size(); i += H) {
      if (tensor[i] != 0) return true;
    }
    return false;
  };
  for (std::size_t column = 0; column < H; ++column) {
    if (used(inputs.hidden_states, column) || used(inputs.gate_weight_bf16, column) ||
        used(inputs.gate_weight_fp32, column)) {
      columns.push_back(static_cast<std::int64_t>(column));
    }
  }
  return columns;
}

template <class T>
std::vector<T> moved(const std::vector<T>& tensor, std::int64_t width, const std::vector<std::int64_t>& columns,
                     std::int64_t stride) {
  const std::int64_t new_width = static_cast<std::int64_t>(columns.size()) * stride;
  const std::int64_t rows = static_cast<std::int64_t>(tensor.size()) / width;
  std::vector<T> out(static_cast<std::size_t>(rows * new_width));
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      out[static_cast<std::size_t>(row * new_width + static_cast<std::int64_t>(i) * stride)] =
          tensor[static_cast<std::size_t>(row * width + columns[i])];
    }
  }
  return out;
}

// Where the order of additions matters, a column alone cannot be removed without moving others into another step or
// chunk. So all used columns move at once, each to the start of its own 1, 2, 4, .. 256 columns.
Pass respace_columns() {
  constexpr int kStrides = 9;
  return {[](const Case& c) {
            return std::int64_t{has_small_data(c) && c.description.stage == Stage::kFull ? kStrides : 0};
          },
          [](const Case& c, std::int64_t i) -> std::optional<Case> {
            const std::vector<std::int64_t> columns = used_columns(*c.description.data);
            const std::int64_t stride = std::int64_t{1} << i;
            const std::int64_t H = c.description.hidden_size;
            const std::int64_t new_size = static_cast<std::int64_t>(columns.size()) * stride;
            if (columns.empty() || new_size >= H) return std::nullopt;
            CaseDescription d = c.description;
            d.hidden_size = d.data->hidden_size = new_size;
            d.data->hidden_states = moved(d.data->hidden_states, H, columns, stride);
            d.data->gate_weight_bf16 = moved(d.data->gate_weight_bf16, H, columns, stride);
            d.data->gate_weight_fp32 = moved(d.data->gate_weight_fp32, H, columns, stride);
            d.data->input_scale_vector = moved(d.data->input_scale_vector, H, columns, stride);
            return with_description(c, std::move(d));
          }};
}

}  // namespace

bool has_small_data(const Case& c) {
  return c.description.data && count_numbers(c) <= kMaxExplicitNumbers;
}

std::int64_t total_complexity(const Case& c) {
  RouterInputs inputs = *c.description.data;
  const Values values(inputs);
  std::int64_t total = 0;
  for (std::size_t i = 0; i < values.size(); ++i) total += complexity(values.get(i));
  return total;
}

std::vector<Pass> value_passes() {
  std::vector<Pass> passes;
  passes.push_back(explicit_tensors());
  passes.push_back(bf16_gate_weight());
  passes.push_back(one_of_the_chosen());
  passes.push_back(ranks_for_values());
  for (std::int64_t chunk = std::int64_t{1} << 14; chunk >= 1; chunk /= 2) passes.push_back(zero_values(chunk));
  for (std::int64_t chunk = std::int64_t{1} << 14; chunk >= 1; chunk /= 8) passes.push_back(simplify_values(chunk));
  passes.push_back(simplify_values(1));
  passes.push_back(respace_columns());
  passes.push_back(zero_ids(&RouterInputs::token_ids));
  passes.push_back(zero_ids(&RouterInputs::row_class));
  return passes;
}

}  // namespace samebits::properties
