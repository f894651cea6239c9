#include "oracle/emulate/elementwise.h"

#include "oracle/emulate/fp32.h"
#include "oracle/emulate/tc256.h"

namespace samebits::oracle::tc256 {
namespace {

const elementwise::Functions& functions() {
#if defined(__x86_64__)
  static const bool has_fma = __builtin_cpu_supports("fma");
  if (has_fma) return elementwise::hardware_fma;
#endif
  return elementwise::portable;
}

}  // namespace

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

}  // namespace samebits::oracle::tc256
