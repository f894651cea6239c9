#include "kernels/cpu/log_space.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/common/bits.h"
#include "kernels/cpu/simd.h"

namespace samebits::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// out[i] = min(z, 0) - log1p(exp(-|z|)).
void log_sigmoid(const float* logits, std::int64_t n, float* out) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = -std::fabs(logits[i]);
  apply_elementwise(Elementwise::kExp, out, n, out);
  apply_elementwise(Elementwise::kLog1p, out, n, out);
  for (std::int64_t i = 0; i < n; ++i) out[i] = (logits[i] < 0.0f ? logits[i] : 0.0f) - out[i];
}

}  // namespace

bool log_space_weights(const float* logits, std::int64_t n, float scale, float* terms, float* weights) {
  float* const logs = weights;
  log_sigmoid(logits, n, logs);
  float largest = -kInf;
  for (std::int64_t i = 0; i < n; ++i) largest = logs[i] > largest ? logs[i] : largest;
  if (largest == -kInf) {
    std::fill_n(weights, n, 0.0f);
    return false;
  }
  for (std::int64_t i = 0; i < n; ++i) logs[i] -= largest;
  apply_elementwise(Elementwise::kExp, logs, n, terms);
  for (std::int64_t i = 0; i < n; ++i) terms[i] = is_nan(terms[i]) ? 0.0f : terms[i];
  const float log_sum = apply_elementwise(Elementwise::kLog, sum32(terms, n));
  for (std::int64_t i = 0; i < n; ++i) logs[i] -= log_sum;
  apply_elementwise(Elementwise::kExp, logs, n, weights);
  for (std::int64_t i = 0; i < n; ++i) weights[i] = is_nan(weights[i]) ? 0.0f : weights[i] * scale;
  return true;
}

}  // namespace samebits::cpu
