// exp, sigmoid, softplus, sqrt(softplus), tanh, log, log1p, rsqrt, sum32 and softmax with the bits of the contract:
// each is a fixed list of correctly rounded operations, in this order, with these coefficients. Plain C++; compiled per
// target for its fused multiply-add. Largest errors over all 2^32 inputs, in ulp, subnormal results included: exp 0.77,
// sigmoid 0.77, softplus 0.77, sqrt(softplus) 0.91, tanh 0.69, log 0.55, log1p 0.88, rsqrt 1.50.
#include "kernels/cpu/simd.h"
#include "kernels/cpu/simd_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/elementwise_simd.cpp"
#include <hwy/foreach_target.h>
// After foreach_target.h.
#include <hwy/highway.h>

#include <limits>

#include "kernels/common/bits.h"

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

// (2 atanh(w) - 2w) / (2 w^3) as a polynomial in w2 = w^2.
HWY_INLINE float atanh_polynomial(float w2) {
  float p = 0x1.dbbb3ap-4f;
  p = fma(p, w2, 0x1.bc8828p-4f);
  p = fma(p, w2, 0x1.24c94cp-3f);
  p = fma(p, w2, 0x1.9998d4p-3f);
  return fma(p, w2, 0x1.555556p-2f);
}

// A number as an unevaluated sum.
struct TwoParts {
  float high, low;
};

// a + b and what its rounding lost (TwoSum).
HWY_INLINE TwoParts two_sum(float a, float b) {
  const float sum = a + b, b_part = sum - a;
  return {sum, (a - (sum - b_part)) + (b - b_part)};
}

// log(1 + f + f_low) = 2 atanh(w), w = f / (2 + f).
HWY_INLINE TwoParts log1p_parts(float f, float f_low) {
  const float d = 2.0f + f, d_low = (f - (d - 2.0f)) + f_low;
  const float w = f / d;
  const float remainder = fma(-w, d, f) + fma(-w, d_low, f_low);
  const float w_low = remainder * fma(w, -0.5f, 0.5f);
  const float w2 = w * w;
  return {2.0f * w, 2.0f * fma(w * w2, atanh_polynomial(w2), w_low)};
}

// log(1 + e^x) = max(x, 0) + log(1 + e^-|x|).
HWY_INLINE float softplus_of(float x) {
  const float z = negative_argument(x);
  const ExpParts e = exp_parts(z);
  const float power = bounded_power(e.n);
  const TwoParts log = log1p_parts(e.high * power, e.low * power);
  const TwoParts sum = two_sum(x > 0.0f ? x : 0.0f, log.high);
  float y = sum.high + (sum.low + log.low);
  if (z < -40.0f) y = x > 0.0f ? x : scale(e.high, e.n);
  return x == x ? y : from_bits(kNaNBits);
}

// Below -40 e^(x/2), so that no subnormal softplus is formed.
HWY_INLINE float sqrt_softplus_of(float x) {
  if (x < -40.0f) return exp_of(0.5f * x);
  const float y = __builtin_sqrtf(softplus_of(x));
  return x == x ? y : from_bits(kNaNBits);
}

// Near 0 an odd polynomial; else (1 - e^z) / (1 + e^z), z = -2|x|, with the quotient corrected by its remainder.
HWY_INLINE float tanh_of(float x) {
  const float a = from_bits(to_bits(x) & ~kSignBit);
  float y;
  if (a < 0.5f) {
    const float a2 = a * a;
    float p = -0x1.b40c68p-8f;
    p = fma(p, a2, 0x1.5d01d2p-6f);
    p = fma(p, a2, -0x1.b98c6ep-5f);
    p = fma(p, a2, 0x1.110f2ap-3f);
    p = fma(p, a2, -0x1.555552p-2f);
    y = fma(a * a2, p, a);
  } else {
    const ExpParts e = exp_parts(a <= 52.5f ? -2.0f * a : -105.0f);
    const float power = bounded_power(e.n), high = e.high * power, low = e.low * power;
    const float n = 1.0f - high, n_low = ((1.0f - n) - high) - low;
    const float d = 1.0f + high, d_low = (high - (d - 1.0f)) + low;
    const float q = n / d;
    const float remainder = fma(-q, d, n) + fma(-q, d_low, n_low);
    y = fma(remainder, fma(0.5f, q, 0.5f), q);
  }
  return x == x ? from_bits(to_bits(y) | (to_bits(x) & kSignBit)) : from_bits(kNaNBits);
}

// x = 2^n * m, m about 1, for a normal x > 0.
struct LogArgument {
  int n;
  float m;
};

HWY_INLINE LogArgument log_argument(float x) {
  constexpr std::int32_t kSqrtHalfBits = 0x3f3504f3;
  const std::int32_t i = static_cast<std::int32_t>(to_bits(x)) - kSqrtHalfBits;
  return {i >> 23, from_bits(static_cast<std::uint32_t>((i & 0x7fffff) + kSqrtHalfBits))};
}

// n ln 2 + log(1 + f + f_low).
HWY_INLINE float log_sum(int n, float f, float f_low) {
  constexpr float kLn2High = 0x1.62e400p-1f, kLn2Low = 0x1.7f7d1cp-20f;
  const TwoParts log = log1p_parts(f, f_low);
  const float power = static_cast<float>(n);
  const TwoParts sum = two_sum(power * kLn2High, log.high);
  return sum.high + (sum.low + fma(power, kLn2Low, log.low));
}

HWY_INLINE float log_of(float x) {
  if (!(x >= 0.0f)) return from_bits(kNaNBits);
  if (x == 0.0f) return -kInf;
  if (x == kInf) return kInf;
  const bool subnormal = x < 0x1p-126f;
  const LogArgument argument = log_argument(subnormal ? x * 0x1p24f : x);
  return log_sum(subnormal ? argument.n - 24 : argument.n, argument.m - 1.0f, 0.0f);
}

HWY_INLINE float log1p_of(float x) {
  if (!(x >= -1.0f)) return from_bits(kNaNBits);
  if (x == -1.0f) return -kInf;
  if (x == kInf) return kInf;
  if (from_bits(to_bits(x) & ~kSignBit) < 0x1p-25f) return x;
  const TwoParts sum = two_sum(1.0f, x);
  const LogArgument argument = log_argument(sum.high);
  return log_sum(argument.n, argument.m - 1.0f, sum.low * power_of_two(-(argument.n < 126 ? argument.n : 126)));
}

HWY_INLINE float rsqrt_of(float x) {
  return canonical(1.0f / __builtin_sqrtf(x));
}

void apply_elementwise(Elementwise f, const float* x, std::int64_t n, float* y) {
  const auto apply = [&](auto function) HWY_ATTR {
    for (std::int64_t i = 0; i < n; ++i) y[i] = function(x[i]);
  };
  switch (f) {
    case Elementwise::kExp:
      return apply([](float v) HWY_ATTR { return exp_of(v); });
    case Elementwise::kSigmoid:
      return apply([](float v) HWY_ATTR { return sigmoid_of(v); });
    case Elementwise::kSoftplus:
      return apply([](float v) HWY_ATTR { return softplus_of(v); });
    case Elementwise::kSqrtSoftplus:
      return apply([](float v) HWY_ATTR { return sqrt_softplus_of(v); });
    case Elementwise::kTanh:
      return apply([](float v) HWY_ATTR { return tanh_of(v); });
    case Elementwise::kLog:
      return apply([](float v) HWY_ATTR { return log_of(v); });
    case Elementwise::kLog1p:
      return apply([](float v) HWY_ATTR { return log1p_of(v); });
    case Elementwise::kRsqrt:
      return apply([](float v) HWY_ATTR { return rsqrt_of(v); });
  }
}

// The order of a warp: lane l adds terms l, l + 32, ...; then five exchanges of all lanes.
float sum32(const float* x, std::int64_t n) {
  constexpr std::int64_t kWarp = 32;
  float lanes[kWarp];
  for (std::int64_t lane = 0; lane < kWarp; ++lane) lanes[lane] = lane < n ? x[lane] : 0.0f;
  std::int64_t first = kWarp;
  for (; first + kWarp <= n; first += kWarp) {
    for (std::int64_t lane = 0; lane < kWarp; ++lane) lanes[lane] += x[first + lane];
  }
  for (std::int64_t i = first; i < n; ++i) lanes[i - first] += x[i];
  for (std::int64_t distance = kWarp / 2; distance > 0; distance /= 2) {
    for (std::int64_t lane = 0; lane < distance; ++lane) lanes[lane] += lanes[lane + distance];
  }
  return canonical(lanes[0]);
}

void softmax(const float* x, std::int64_t n, float* y) {
  float largest = -kInf;
  for (std::int64_t i = 0; i < n; ++i) largest = x[i] > largest ? x[i] : largest;
  for (std::int64_t i = 0; i < n; ++i) {
    if (is_nan(x[i]) || largest == -kInf) {
      y[i] = 0.0f;
    } else if (largest == kInf) {
      y[i] = x[i] == kInf ? 1.0f : 0.0f;
    } else if (x[i] == -kInf) {  // nearly every expert of a pass of sparsemixer
      y[i] = 0.0f;
    } else {
      y[i] = exp_of(x[i] - largest);
    }
  }
  const float sum = sum32(y, n);
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
HWY_EXPORT(sum32);
HWY_EXPORT(softmax);
HWY_EXPORT(arithmetic_is_right);

void apply_elementwise(Elementwise f, const float* x, std::int64_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(apply_elementwise)(f, x, n, y);
}

float sum32(const float* x, std::int64_t n) {
  return HWY_DYNAMIC_DISPATCH(sum32)(x, n);
}

void softmax(const float* x, std::int64_t n, float* y) {
  HWY_DYNAMIC_DISPATCH(softmax)(x, n, y);
}

bool arithmetic_is_right() {
  return HWY_DYNAMIC_DISPATCH(arithmetic_is_right)();
}

}  // namespace samebits::cpu
#endif
