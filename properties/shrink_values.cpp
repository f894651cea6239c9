#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <utility>

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
    return inputs_.hidden_states.size() + inputs_.gate_weight_bf16.size() + inputs_.gate_weight_fp32.size() +
           inputs_.linear_bias.size() + inputs_.selection_bias.size() + inputs_.router_logits.size();
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

  template <class F>
  void visit(std::size_t i, F f) const {
    const auto in = [&](auto& tensor) {
      if (i < tensor.size()) {
        f(tensor[i]);
        return true;
      }
      i -= tensor.size();
      return false;
    };
    (void)(in(inputs_.hidden_states) || in(inputs_.gate_weight_bf16) || in(inputs_.gate_weight_fp32) ||
           in(inputs_.linear_bias) || in(inputs_.selection_bias) || in(inputs_.router_logits));
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

bool has_small_data(const Case& c) {
  return c.description.data && count_numbers(c) <= kMaxExplicitNumbers;
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

}  // namespace

void add_value_passes(std::vector<Pass>& passes) {
  passes.push_back(explicit_tensors());
  passes.push_back(bf16_gate_weight());
  for (std::int64_t chunk = std::int64_t{1} << 14; chunk >= 1; chunk /= 2) passes.push_back(zero_values(chunk));
  for (std::int64_t chunk = std::int64_t{1} << 14; chunk >= 1; chunk /= 8) passes.push_back(simplify_values(chunk));
  passes.push_back(simplify_values(1));
}

}  // namespace samebits::properties
