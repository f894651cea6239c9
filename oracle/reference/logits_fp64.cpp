#include <bit>
#include <cmath>

#include "oracle/reference/answer.h"
#include "oracle/reference/arithmetic.h"
#include "oracle/tensors/bf16.h"

namespace samebits::oracle {
namespace {

// The steps of prepared_input in double, and one rounding to bf16 where there are steps.
std::vector<double> prepared_input_fp64(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t row) {
  const auto hidden = static_cast<std::size_t>(inputs.hidden_size);
  std::vector<double> x(hidden);
  double squares = 0;
  for (std::size_t k = 0; k < hidden; ++k) {
    x[k] = bf16_to_fp32(inputs.hidden_states[static_cast<std::size_t>(row) * hidden + k]);
    squares += x[k] * x[k];
  }
  if (!prepares_input(spec)) return x;
  const RouterSpec::Gate& gate = spec.gate;
  const double size = static_cast<double>(hidden);
  double factor = static_cast<float>(gate.input_scale);
  if (gate.input_scale_kind != InputScale::kFactor) factor = 1 / std::sqrt(size);
  if (gate.input_scale_kind == InputScale::kRsqrtHiddenSizeBf16) factor = ArithmeticOf<double>::round_to_bf16(factor);
  if (gate.input_norm == InputNorm::kRmsnormUnweighted) {
    factor /= std::sqrt(squares / size + static_cast<double>(static_cast<float>(gate.input_norm_eps.value())));
  }
  for (std::size_t k = 0; k < hidden; ++k) {
    const double scale = gate.input_scale_vector ? factor * static_cast<double>(inputs.input_scale_vector[k]) : factor;
    x[k] = ArithmeticOf<double>::round_to_bf16(x[k] * scale);
  }
  return x;
}

}  // namespace

std::vector<double> logits_fp64(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t row) {
  const std::size_t experts = static_cast<std::size_t>(inputs.gate_rows);
  std::vector<double> logits(experts);
  if (inputs.from_logits()) {
    for (std::size_t e = 0; e < experts; ++e)
      logits[e] = inputs.router_logits[static_cast<std::size_t>(row) * experts + e];
    return logits;
  }
  const std::size_t hidden = static_cast<std::size_t>(inputs.hidden_size);
  const std::vector<double> x = prepared_input_fp64(spec, inputs, row);
  for (std::size_t e = 0; e < experts; ++e) {
    double logit = 0;
    for (std::size_t k = 0; k < hidden; ++k) {
      const float w = inputs.gate_weight_fp32.empty() ? bf16_to_fp32(inputs.gate_weight_bf16[e * hidden + k])
                                                      : inputs.gate_weight_fp32[e * hidden + k];
      logit += x[k] * static_cast<double>(w);
    }
    if (spec.gate.linear_bias != BiasType::kNone) {
      const float bias = inputs.linear_bias[e];
      logit += static_cast<double>(spec.gate.linear_bias == BiasType::kBf16 ? round_to_bf16(bias) : bias);
    }
    if (spec.gate.logits_dtype == FloatType::kBf16) logit = ArithmeticOf<double>::round_to_bf16(logit);
    logit /= static_cast<double>(static_cast<float>(spec.logits.temperature));
    if (spec.logits.softcap) {
      const double cap = static_cast<float>(*spec.logits.softcap);
      logit = cap * std::tanh(logit / cap);
    }
    logits[e] = logit;
  }
  return logits;
}

std::int64_t ulp_distance(float a, float b) {
  // Order of the number line as integers: magnitude bits, negated below zero, so that both zeros are 0.
  const auto position = [](float x) {
    const std::int64_t magnitude = std::bit_cast<std::uint32_t>(x) & 0x7fffffffu;
    return std::signbit(x) ? -magnitude : magnitude;
  };
  const std::int64_t distance = position(a) - position(b);
  return distance < 0 ? -distance : distance;
}

}  // namespace samebits::oracle
