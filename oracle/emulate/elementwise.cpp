#include "oracle/emulate/elementwise.h"

#include <stdexcept>
#include <string>
#include <vector>

#include "oracle/emulate/fp32.h"
#include "oracle/emulate/tc256.h"

namespace samebits::oracle {
namespace elementwise {
namespace {

std::vector<Isa> find_isas() {
  std::vector<Isa> isas;
#if defined(__x86_64__)
  const bool has_fma = __builtin_cpu_supports("fma");
  if (has_fma && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    isas.push_back({"avx512", &hardware_avx512});
  }
  if (has_fma) isas.push_back({"fma", &hardware_fma});
#endif
  isas.push_back({"portable", &portable});
  return isas;
}

}  // namespace

std::span<const Isa> available_isas() {
  static const std::vector<Isa> isas = find_isas();
  return isas;
}

}  // namespace elementwise

namespace tc256 {
namespace {

const elementwise::Functions& functions() {
  static const elementwise::Functions& fastest = *elementwise::available_isas().front().functions;
  return fastest;
}

using OfMany = void (*)(const float* x, std::size_t n, float* y);

void apply(OfMany function, std::span<const float> x, std::span<float> y) {
  if (x.size() != y.size()) {
    throw std::invalid_argument("found room for " + std::to_string(y.size()) + " results of " +
                                std::to_string(x.size()) + " values; allowed: as many");
  }
  function(x.data(), x.size(), y.data());
}

}  // namespace

void exp(std::span<const float> x, std::span<float> y) {
  apply(functions().exp_all, x, y);
}
void sigmoid(std::span<const float> x, std::span<float> y) {
  apply(functions().sigmoid_all, x, y);
}
void sqrt_softplus(std::span<const float> x, std::span<float> y) {
  apply(functions().sqrt_softplus_all, x, y);
  for (float& value : y) value = one_nan(value);
}

float exp(float x) {
  return functions().exp(x);
}
float sigmoid(float x) {
  return functions().sigmoid(x);
}
float softplus(float x) {
  return functions().softplus(x);
}
float sqrt_softplus(float x) {
  return one_nan(functions().sqrt_softplus(x));
}
float tanh(float x) {
  return functions().tanh(x);
}
float log(float x) {
  return functions().log(x);
}
float log1p(float x) {
  return functions().log1p(x);
}
float rsqrt(float x) {
  return one_nan(functions().rsqrt(x));
}

float sum32(std::span<const float> values) {
  constexpr std::size_t kLanes = 32;
  float lanes[kLanes] = {};  // a lane without terms is +0
  for (std::size_t i = 0; i < values.size(); ++i) {
    float& lane = lanes[i % kLanes];
    lane = i < kLanes ? one_nan(values[i]) : fadd_rn(lane, values[i]);
  }
  // After the exchange at distance d every pair of lanes holds the same sum, so lane 0 may stand for all.
  for (std::size_t d = kLanes / 2; d > 0; d /= 2) {
    for (std::size_t l = 0; l < d; ++l) lanes[l] = fadd_rn(lanes[l], lanes[l + d]);
  }
  return lanes[0];
}

}  // namespace tc256
}  // namespace samebits::oracle
