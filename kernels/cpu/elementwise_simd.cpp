// exp, sigmoid, softplus, sqrt(softplus) and softmax with the bits of the contract: each is a fixed list of correctly
// rounded operations, in this order, with these coefficients. Plain C++; compiled per target for its fused
// multiply-add. Largest errors over all 2^32 inputs, in ulp: exp 0.77, sigmoid 0.77, softplus 0.77, sqrt(softplus)
// 0.91.
#include "kernels/cpu/simd.h"
#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise_simd.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include <limits>

#include "kernels/cpu/bits.h"

HWY_BEFORE_NAMESPACE();
namespace samebits::cpu {
namespace HWY_NAMESPACE {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

HWY_INLINE float fma(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}

// 2^n for -126 <= n <= 127.
HWY_INLINE float power_of_two(int n) {
  return from_bits(static_cast<std::uint32_t>(n + 127) << 23);
}

// y * 2^n in two steps, so that neither factor leaves the range of fp32.
HWY_INLINE float scale(float y, int n) {
  const int half = n >> 1;
  return (y * power_of_two(half)) * power_of_two(n - half);
}

// e^x = 2^n * (high + low), high the nearest to the sum.
struct ExpParts {
  int n;
  float high, low;
};

// |x| <= 105. Cody-Waite reduction by ln 2 in two parts, then a polynomial of degree 7 whose first two terms are exact.
HWY_INLINE ExpParts exp_parts(float x) {
  constexpr float kLog2E = 0x1.715476p+0f, kLn2High = 0x1.62e400p-1f, kLn2Low = 0x1.7f7d1cp-20f;
  constexpr float kToInteger = 12582912.0f;  // 1.5 * 2^23: a sum with it is rounded to an integer
  const float t = fma(x, kLog2E, kToInteger);
  const float n = t - kToInteger;
  const float reduced_high = fma(n, -kLn2High, x);  // exact
  const float reduced_low = n * -kLn2Low;
  const float r = reduced_high + reduced_low;
  const float r_error = (reduced_high - r) + reduced_low;
  float p = 0x1.a125dcp-13f;
  p = fma(p, r, 0x1.6d442cp-10f);
  p = fma(p, r, 0x1.1110e0p-7f);
  p = fma(p, r, 0x1.5554e8p-5f);
  p = fma(p, r, 0x1.555556p-3f);
  p = fma(p, r, 0.5f);
  const float q = fma(r * r, p, r_error);  // e^r = 1 + r + q
  const float s = 1.0f + r;
  const float e = (r - (s - 1.0f)) + q;
  const float high = s + e;
  return {static_cast<int>(to_bits(t) & 0x7fffffu) - 0x400000, high, e - (high - s)};
}

// -|x|, at least -105; NaN gives 0.
HWY_INLINE float negative_argument(float x) {
  const float magnitude = from_bits(to_bits(x) & ~kSignBit);
  const float z = magnitude > 105.0f ? -105.0f : -magnitude;
  return z == z ? z : 0.0f;
}

// 2^-60 stands for smaller powers: 1 + e^z and 2 + e^z do not see the difference, and no product underflows.
HWY_INLINE float bounded_power(int n) {
  return power_of_two(n < -60 ? -60 : n);
}

HWY_INLINE float exp_of(float x) {
  float c = x > 90.0f ? 90.0f : x;
  c = c < -105.0f ? -105.0f : c;
  const ExpParts e = exp_parts(c == c ? c : 0.0f);
  const float y = scale(e.high, e.n);
  return x == x ? y : from_bits(kNaNBits);
}

HWY_INLINE float sigmoid_of(float x) {
  const float z = negative_argument(x);
  const ExpParts e = exp_parts(z);
  const bool negative = x < 0.0f;
  const float power = bounded_power(e.n), high = e.high * power, low = e.low * power;
  const float sum = 1.0f + high, sum_low = (high - (sum - 1.0f)) + low;
  const float numerator = negative ? high : 1.0f, numerator_low = negative ? low : 0.0f;
  const float q = numerator / sum;
  const float remainder = fma(-q, sum, numerator) + fma(-q, sum_low, numerator_low);
  const float inverse = negative ? 1.0f - q : q;  // of the sum, near enough for a correction
  const float corrected = fma(remainder, inverse, q);
  const float y = negative && z < -40.0f ? scale(e.high, e.n) : corrected;  // there 1 + e^x rounds to 1
  return x == x ? y : from_bits(kNaNBits);
}

// log(1 + e^x) = max(x, 0) + 2 atanh(w), w = e / (2 + e), e = e^-|x|.
HWY_INLINE float softplus_of(float x) {
  const float z = negative_argument(x);
  const ExpParts e = exp_parts(z);
  const float power = bounded_power(e.n), high = e.high * power, low = e.low * power;
  const float d = 2.0f + high, d_low = (high - (d - 2.0f)) + low;
  const float w = high / d;
  const float remainder = fma(-w, d, high) + fma(-w, d_low, low);
  const float w_low = remainder * fma(w, -0.5f, 0.5f);
  const float w2 = w * w;
  float p = 0x1.dbbb3ap-4f;
  p = fma(p, w2, 0x1.bc8828p-4f);
  p = fma(p, w2, 0x1.24c94cp-3f);
  p = fma(p, w2, 0x1.9998d4p-3f);
  p = fma(p, w2, 0x1.555556p-2f);
  const float log_high = 2.0f * w, log_low = 2.0f * fma(w * w2, p, w_low);
  const float base = x > 0.0f ? x : 0.0f;
  const float s = base + log_high, s_minus_base = s - base;  // TwoSum
  const float error = (base - (s - s_minus_base)) + (log_high - s_minus_base);
  float y = s + (error + log_low);
  if (z < -40.0f) y = x > 0.0f ? x : scale(e.high, e.n);
  return x == x ? y : from_bits(kNaNBits);
}

// Below -40 e^(x/2), so that no subnormal softplus is formed.
HWY_INLINE float sqrt_softplus_of(float x) {
  if (x < -40.0f) return exp_of(0.5f * x);
  const float y = __builtin_sqrtf(softplus_of(x));
  return x == x ? y : from_bits(kNaNBits);
}

void apply_elementwise(Elementwise f, const float* x, std::int64_t n, float* y) {
  switch (f) {
    case Elementwise::kExp:
      for (std::int64_t i = 0; i < n; ++i) y[i] = exp_of(x[i]);
      break;
    case Elementwise::kSigmoid:
      for (std::int64_t i = 0; i < n; ++i) y[i] = sigmoid_of(x[i]);
      break;
    case Elementwise::kSoftplus:
      for (std::int64_t i = 0; i < n; ++i) y[i] = softplus_of(x[i]);
      break;
    case Elementwise::kSqrtSoftplus:
      for (std::int64_t i = 0; i < n; ++i) y[i] = sqrt_softplus_of(x[i]);
      break;
  }
}

// Sum in the order of a warp: lane l adds terms l, l + 32, ...; then five exchanges of all lanes.
float warp_sum(const float* x, std::int64_t n) {
  constexpr std::int64_t kWarp = 32;
  float lanes[kWarp];
  for (std::int64_t lane = 0; lane < kWarp; ++lane) {
    lanes[lane] = lane < n ? x[lane] : 0.0f;
    for (std::int64_t i = lane + kWarp; i < n; i += kWarp) lanes[lane] += x[i];
  }
  for (std::int64_t distance = kWarp / 2; distance > 0; distance /= 2) {
    for (std::int64_t lane = 0; lane < distance; ++lane) lanes[lane] += lanes[lane + distance];
  }
  return lanes[0];
}

void softmax(const float* x, std::int64_t n, float* y) {
  float largest = -kInf;
  for (std::int64_t i = 0; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  for (std::int64_t i = 0; i < n; ++i) {
    if (is_nan(x[i]) || largest == -kInf) {
      y[i] = 0.0f;
    } else if (largest == kInf) {
      y[i] = x[i] == kInf ? 1.0f : 0.0f;
    } else {
      y[i] = exp_of(x[i] - largest);
    }
  }
  const float sum = warp_sum(y, n);
  for (std::int64_t i = 0; i < n; ++i) {
    if (is_nan(x[i])) {
      y[i] = from_bits(kNaNBits);
    } else if (largest != -kInf) {
      y[i] = y[i] / sum;
    }
  }
}

// (1 + 2^-12)^2 - (1 + 2^-11) is 0 with two roundings and 2^-24 with one.
bool arithmetic_is_right() {
  const volatile float a = 1.0f + 0x1p-12f, b = 1.0f + 0x1p-12f, c = -(1.0f + 0x1p-11f);
  const float a_value = a, b_value = b, c_value = c;
  return a_value * b_value + c_value == 0.0f && fma(a_value, b_value, c_value) == 0x1p-24f;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace samebits::cpu
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace samebits::cpu {

HWY_EXPORT(apply_elementwise);
HWY_EXPORT(softmax);
HWY_EXPORT(arithmetic_is_right);

void apply_elementwise(Elementwise f, const float* x, std::int64_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(apply_elementwise)(f, x, n, y);
}

void softmax(const float* x, std::int64_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(softmax)(x, n, y);
}

bool arithmetic_is_right() {
  return HWY_DYNAMIC_DISPATCH(arithmetic_is_right)();
}

}  // namespace samebits::cpu
#endif
