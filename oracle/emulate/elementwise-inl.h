// exp, sigmoid, softplus, sqrt(softplus), tanh, log, log1p and rsqrt in operations that are correctly rounded
// everywhere: + - * / fma sqrt and integers. Their order and the coefficients are the contract; a change of either
// changes bits. No include guard on purpose: one inclusion per file and instruction set, nothing with external linkage.
//
// exp: x = n ln 2 + r with a two-part ln 2 (Cody and Waite), a polynomial of degree 5 in the tail, and the result kept
// as an unevaluated sum high + low that the other functions use. Largest errors over all inputs, in ulp of a normal
// result: exp 0.653, sigmoid 0.659, softplus 0.709, sqrt(softplus) 0.907, tanh 0.683, log 0.541, log1p 0.876, rsqrt
// 1.491.

#include <cstddef>
#include <cstdint>

#include "oracle/emulate/elementwise.h"

namespace samebits::oracle::elementwise {
namespace {

inline float from_bits(std::uint32_t bits) {
  float x;
  __builtin_memcpy(&x, &bits, sizeof x);
  return x;
}
inline std::uint32_t to_bits(float x) {
  std::uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof bits);
  return bits;
}
inline float fma_rn(float a, float b, float c) {
  return __builtin_fmaf(a, b, c);
}
inline float nan_result() {
  return from_bits(0x7fffffffu);
}
inline float power_of_two(int n) {
  return from_bits(static_cast<std::uint32_t>(n + 127) << 23);
}  // -126 <= n <= 127

// e^x as 2^exponent * (high + low), high being the sum rounded to fp32.
struct ScaledExp {
  int exponent;
  float high, low;
};

inline ScaledExp scaled_exp(float x) {            // |x| <= 105
  constexpr float kRoundToInteger = 12582912.0f;  // 1.5 * 2^23: leaves the integer in the low significand bits
  const float shifted = fma_rn(x, 0x1.715476p+0f, kRoundToInteger);
  const float n = shifted - kRoundToInteger;
  const float high_rest = fma_rn(n, -0x1.62e400p-1f, x);  // exact
  const float low_rest = n * -0x1.7f7d1cp-20f;
  const float r = high_rest + low_rest;
  const float r_error = (high_rest - r) + low_rest;
  float p = 0x1.a125dcp-13f;
  p = fma_rn(p, r, 0x1.6d442cp-10f);
  p = fma_rn(p, r, 0x1.1110e0p-7f);
  p = fma_rn(p, r, 0x1.5554e8p-5f);
  p = fma_rn(p, r, 0x1.555556p-3f);
  p = fma_rn(p, r, 0.5f);
  const float tail = fma_rn(r * r, p, r_error);  // e^r = 1 + r + tail
  const float sum = 1.0f + r;
  const float rest = (r - (sum - 1.0f)) + tail;
  const float high = sum + rest;
  const int exponent = static_cast<int>(to_bits(shifted) & 0x7fffffu) - 0x400000;
  return {exponent, high, rest - (high - sum)};
}

// y * 2^n in two factors, so that the result may be subnormal or overflow.
inline float scale_by_power(float y, int n) {
  const int half = n >> 1;
  return y * power_of_two(half) * power_of_two(n - half);
}

float exp(float x) {
  if (x != x) return nan_result();
  const float clamped = x > 90.0f ? 90.0f : x < -105.0f ? -105.0f : x;  // beyond: overflow, and below half of 2^-149
  const ScaledExp e = scaled_exp(clamped);
  return scale_by_power(e.high, e.exponent);
}

// e^-|x| for the functions of the form f(|x|), and the same unscaled. The scale stops at 2^-60: smaller values are used
// only through `unscaled`.
struct ExpOfMinusMagnitude {
  float z;  // -|x|, at least -105
  ScaledExp unscaled;
  float high, low;
};
inline ExpOfMinusMagnitude exp_of_minus_magnitude(float x) {
  const float magnitude = from_bits(to_bits(x) & 0x7fffffffu);
  const float z = magnitude > 105.0f ? -105.0f : -magnitude;
  const ScaledExp e = scaled_exp(z);
  const float scale = power_of_two(e.exponent < -60 ? -60 : e.exponent);
  return {z, e, e.high * scale, e.low * scale};
}

// 1 / (1 + e^-x) for x >= 0, e^x / (1 + e^x) below: one division, corrected by its own remainder.
float sigmoid(float x) {
  if (x != x) return nan_result();
  const ExpOfMinusMagnitude e = exp_of_minus_magnitude(x);
  const bool negative = x < 0.0f;
  if (negative && e.z < -40.0f) return scale_by_power(e.unscaled.high, e.unscaled.exponent);  // 1 + e^x is 1
  const float sum = 1.0f + e.high;
  const float sum_low = (e.high - (sum - 1.0f)) + e.low;
  const float numerator = negative ? e.high : 1.0f;
  const float numerator_low = negative ? e.low : 0.0f;
  const float quotient = numerator / sum;
  const float remainder = fma_rn(-quotient, sum, numerator) + fma_rn(-quotient, sum_low, numerator_low);
  const float inverse = negative ? 1.0f - quotient : quotient;  // 1 / (1 + e^-|x|)
  return fma_rn(remainder, inverse, quotient);
}

// log(1 + f) for f in [-0.3, 0.42] or of the form e^-|x|, f given in two parts, as 2 atanh(f / (2 + f)) in two parts.
struct TwoParts {
  float high, low;
};
inline TwoParts log1p_parts(float f, float f_low) {
  const float sum = 2.0f + f;
  const float sum_low = (f - (sum - 2.0f)) + f_low;
  const float w = f / sum;
  const float remainder = fma_rn(-w, sum, f) + fma_rn(-w, sum_low, f_low);
  const float w_low = remainder * fma_rn(w, -0.5f, 0.5f);
  const float w2 = w * w;
  float p = 0x1.dbbb3ap-4f;
  p = fma_rn(p, w2, 0x1.bc8828p-4f);
  p = fma_rn(p, w2, 0x1.24c94cp-3f);
  p = fma_rn(p, w2, 0x1.9998d4p-3f);
  p = fma_rn(p, w2, 0x1.555556p-2f);
  return {2.0f * w, 2.0f * fma_rn(w * w2, p, w_low)};
}

// a + b as a rounded sum and its exact error (TwoSum).
inline TwoParts two_sum(float a, float b) {
  const float sum = a + b;
  const float b_part = sum - a;
  return {sum, (a - (sum - b_part)) + (b - b_part)};
}

// log(1 + e^x) = max(x, 0) + log(1 + e^-|x|).
float softplus(float x) {
  if (x != x) return nan_result();
  const ExpOfMinusMagnitude e = exp_of_minus_magnitude(x);
  if (e.z < -40.0f) return x > 0.0f ? x : scale_by_power(e.unscaled.high, e.unscaled.exponent);
  const TwoParts log_part = log1p_parts(e.high, e.low);
  const TwoParts total = two_sum(x > 0.0f ? x : 0.0f, log_part.high);
  return total.high + (total.low + log_part.low);
}

float sqrt_softplus(float x) {
  if (x < -40.0f) return exp(0.5f * x);  // softplus is e^x there; its root needs no subnormal
  return __builtin_sqrtf(softplus(x));   // a NaN passes with its bits: see the caller
}

// (1 - e^-2|x|) / (1 + e^-2|x|), or an odd polynomial near 0, where the difference would cancel.
float tanh(float x) {
  if (x != x) return nan_result();
  const std::uint32_t sign = to_bits(x) & 0x80000000u;
  const float magnitude = from_bits(to_bits(x) ^ sign);
  float y;
  if (magnitude < 0.5f) {
    const float x2 = magnitude * magnitude;
    float p = -0x1.b40c68p-8f;
    p = fma_rn(p, x2, 0x1.5d01d2p-6f);
    p = fma_rn(p, x2, -0x1.b98c6ep-5f);
    p = fma_rn(p, x2, 0x1.110f2ap-3f);
    p = fma_rn(p, x2, -0x1.555552p-2f);
    y = fma_rn(magnitude * x2, p, magnitude);
  } else {
    const ExpOfMinusMagnitude e = exp_of_minus_magnitude(2.0f * magnitude);
    const float difference = 1.0f - e.high;
    const float difference_low = ((1.0f - difference) - e.high) - e.low;
    const float sum = 1.0f + e.high;
    const float sum_low = (e.high - (sum - 1.0f)) + e.low;
    const float quotient = difference / sum;
    const float remainder = fma_rn(-quotient, sum, difference) + fma_rn(-quotient, sum_low, difference_low);
    y = fma_rn(remainder, fma_rn(0.5f, quotient, 0.5f), quotient);  // 1 / (1 + e) is (1 + quotient) / 2
  }
  return from_bits(to_bits(y) | sign);
}

// log(x + x_low) + extra * ln 2 for a positive normal x, which is split as 2^n m with m in [1/sqrt 2, sqrt 2).
inline float log_of_normal(float x, float x_low, int extra) {
  constexpr std::uint32_t kRootHalf = 0x3f3504f3u;
  const std::int32_t offset = static_cast<std::int32_t>(to_bits(x) - kRootHalf);
  const int n = offset >> 23;
  const float m = from_bits((static_cast<std::uint32_t>(offset) & 0x7fffffu) + kRootHalf);
  const TwoParts log_m = log1p_parts(m - 1.0f, x_low * power_of_two(n > 126 ? -126 : -n));
  const float exponent = static_cast<float>(n + extra);
  const TwoParts total = two_sum(exponent * 0x1.62e400p-1f, log_m.high);  // the product is exact
  return total.high + (total.low + fma_rn(exponent, 0x1.7f7d1cp-20f, log_m.low));
}

float log(float x) {
  if (!(x >= 0.0f)) return nan_result();
  if (x == 0.0f) return -__builtin_inff();
  if (x == __builtin_inff()) return x;
  if (x < 0x1p-126f) return log_of_normal(x * 0x1p24f, 0.0f, -24);
  return log_of_normal(x, 0.0f, 0);
}

float log1p(float x) {
  if (!(x >= -1.0f)) return nan_result();
  if (x == -1.0f) return -__builtin_inff();
  if (x == __builtin_inff() || (x < 0x1p-25f && x > -0x1p-25f)) return x;
  const TwoParts sum = two_sum(1.0f, x);
  return log_of_normal(sum.high, sum.low, 0);
}

float rsqrt(float x) {
  return 1.0f / __builtin_sqrtf(x);  // a NaN passes with its bits: see the caller
}

// Only a loop that holds all of its body becomes one of vectors, so they are flattened.
__attribute__((flatten)) void exp_all(const float* __restrict x, std::size_t n, float* __restrict y) {
  for (std::size_t i = 0; i < n; ++i) y[i] = exp(x[i]);
}
__attribute__((flatten)) void sigmoid_all(const float* __restrict x, std::size_t n, float* __restrict y) {
  for (std::size_t i = 0; i < n; ++i) y[i] = sigmoid(x[i]);
}
__attribute__((flatten)) void sqrt_softplus_all(const float* __restrict x, std::size_t n, float* __restrict y) {
  for (std::size_t i = 0; i < n; ++i) y[i] = sqrt_softplus(x[i]);
}

constexpr Functions kFunctions = {exp,   sigmoid, softplus,    sqrt_softplus,    tanh, log, log1p,
                                  rsqrt, exp_all, sigmoid_all, sqrt_softplus_all};

}  // namespace
}  // namespace samebits::oracle::elementwise
