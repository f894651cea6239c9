#include "oracle/exact/dot.h"

#include <array>
#include <cmath>

#include "oracle/tensors/bf16.h"

namespace samebits::oracle {

Dot dot(std::span<const double> x, std::span<const double> w) {
  constexpr std::size_t kLanes = 8;  // independent sums, so that the additions overlap
  std::array<double, kLanes> sum{}, total{}, terms{};
  const auto add = [&](std::size_t lane, double t) {
    sum[lane] += t;
    total[lane] += std::fabs(t);
    terms[lane] += t != 0 ? 1 : 0;
  };
  const std::size_t whole = x.size() / kLanes * kLanes;
  for (std::size_t k = 0; k < whole; k += kLanes) {
    for (std::size_t l = 0; l < kLanes; ++l) add(l, x[k + l] * w[k + l]);
  }
  for (std::size_t k = whole; k < x.size(); ++k) add(k - whole, x[k] * w[k]);

  Dot result;
  for (std::size_t l = 0; l < kLanes; ++l) {
    result.value += sum[l];
    result.total += total[l];
    result.terms += terms[l];
  }
  result.depth = static_cast<double>(whole / kLanes + 1 + kLanes);
  return result;
}

std::vector<double> gate_weight_row(const RouterInputs& inputs, std::int64_t expert) {
  const auto hidden = static_cast<std::size_t>(inputs.hidden_size);
  const std::size_t first = static_cast<std::size_t>(expert) * hidden;
  std::vector<double> row(hidden);
  if (inputs.gate_weight_fp32.empty()) {
    for (std::size_t k = 0; k < hidden; ++k) row[k] = bf16_to_fp32(inputs.gate_weight_bf16[first + k]);
  } else {
    for (std::size_t k = 0; k < hidden; ++k) row[k] = inputs.gate_weight_fp32[first + k];
  }
  return row;
}

double linear_bias(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t expert) {
  if (spec.gate.linear_bias == BiasType::kNone) return 0.0;
  const float bias = inputs.linear_bias[static_cast<std::size_t>(expert)];
  return spec.gate.linear_bias == BiasType::kBf16 ? round_to_bf16(bias) : bias;
}

}  // namespace samebits::oracle
