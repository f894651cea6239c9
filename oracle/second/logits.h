// From the tensors of a row to its finished logits.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "oracle/second/ball.h"
#include "oracle/second/functions.h"
#include "oracle/second/row.h"

namespace samebits::second {

// The H values that the gate reads: bf16 hidden states, or what input norm, scale vector and scale make of them,
// rounded to bf16; bit for bit.
std::vector<std::uint16_t> contract_input(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t row);

// x / rms(x) * v * s over the reals, rounded to bf16, with a bound of the errors of fp32.
std::vector<Ball> published_input(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t row);

// The gate weight in bf16 operands: itself, or w = w1 + w2 + w3 for fp32 weights, each part the remainder cut toward
// zero to bf16; a weight that is not finite is (w, 0, 0).
class Gate {
 public:
  // [G, H] of the case, which must outlive the gate.
  explicit Gate(const RouterInputs& inputs);
  bool is_fp32() const { return !inputs_.gate_weight_fp32.empty(); }
  std::size_t num_parts() const { return is_fp32() ? parts_.size() : 1; }
  std::span<const std::uint16_t> part(std::int64_t expert, std::size_t part) const;
  std::span<const float> fp32_weights(std::int64_t expert) const;
  const RouterInputs& inputs() const { return inputs_; }

 private:
  const RouterInputs& inputs_;
  std::array<std::vector<std::uint16_t>, 3> parts_;  // [G, H] each; empty for bf16 weights
};

// The finished logit of each of `experts`, bit for bit: tensor-core steps in chunks of 256, folded left to right, then
// linear bias, bf16 rounding, temperature and softcap. tanh is taken from `functions`; `row` is a prepared input.
std::vector<float> contract_logits(const RouterSpec& spec, const Gate& gate, std::span<const std::uint16_t> row,
                                   std::span<const std::int64_t> experts, const Functions& functions);

// The logits of the published router: exact dot products, with bounds of what tensor-core steps may make of them, and
// the same last steps. Output [G].
std::vector<Ball> published_logits(const RouterSpec& spec, const Gate& gate, std::span<const std::uint16_t> row);

}  // namespace samebits::second
