#include "oracle/emulate/prepared_input.h"

#include "oracle/emulate/fp32.h"
#include "oracle/emulate/tc256.h"
#include "oracle/tensors/bf16.h"

namespace samebits::oracle {
namespace {

// 1 / sqrt(mean of squares + eps).
float inverse_rms(std::span<const float> x, float eps) {
  std::vector<float> squares;
  for (const float value : x) squares.push_back(fmul_rn(value, value));
  const float mean = fdiv_rn(tc256::sum32(squares), static_cast<float>(x.size()));
  return tc256::rsqrt(fadd_rn(mean, eps));
}

float input_scale(const RouterSpec::Gate& gate, std::int64_t hidden_size) {
  switch (gate.input_scale_kind) {
    case InputScale::kFactor:
      return static_cast<float>(gate.input_scale);
    case InputScale::kRsqrtHiddenSize:
      return tc256::rsqrt(static_cast<float>(hidden_size));
    case InputScale::kRsqrtHiddenSizeBf16:
      return round_to_bf16(tc256::rsqrt(static_cast<float>(hidden_size)));
  }
  return 1.0f;
}

}  // namespace

std::vector<std::uint16_t> prepared_input(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t row) {
  const auto first = inputs.hidden_states.begin() + row * inputs.hidden_size;
  std::vector<std::uint16_t> bits(first, first + inputs.hidden_size);
  if (!prepares_input(spec)) return bits;

  std::vector<float> x;
  for (const std::uint16_t value : bits) x.push_back(bf16_to_fp32(value));
  if (spec.gate.input_norm == InputNorm::kRmsnormUnweighted) {
    const float r = inverse_rms(x, static_cast<float>(spec.gate.input_norm_eps.value()));
    for (float& value : x) value = fmul_rn(value, r);
  }
  if (spec.gate.input_scale_vector) {
    for (std::size_t k = 0; k < x.size(); ++k) x[k] = fmul_rn(x[k], inputs.input_scale_vector.at(k));
  }
  const float scale = input_scale(spec.gate, inputs.hidden_size);
  if (spec.gate.input_scale_kind != InputScale::kFactor || scale != 1.0f) {
    for (float& value : x) value = fmul_rn(value, scale);
  }
  for (std::size_t k = 0; k < x.size(); ++k) bits[k] = fp32_to_bf16(x[k]);
  return bits;
}

}  // namespace samebits::oracle
