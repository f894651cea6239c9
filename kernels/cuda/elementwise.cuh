// exp, sigmoid, softplus, sqrt(softplus), tanh, log, log1p and rsqrt with the bits of the contract: each is a fixed
// list of correctly rounded operations, in this order, with these coefficients.
#pragma once

#include <cstdint>

#include "kernels/cuda/bf16.cuh"

namespace samebits::cuda {

namespace detail {

inline constexpr float kLog2E = 0x1.715476p+0f, kLn2High = 0x1.62e400p-1f, kLn2Low = 0x1.7f7d1cp-20f;

// 2^n for -126 <= n <= 127.
__device__ __forceinline__ float power_of_two(int n) {
  return from_bits(static_cast<std::uint32_t>(n + 127) << 23);
}

// y * 2^n in two steps, so that neither factor leaves the range of fp32.
__device__ __forceinline__ float scale(float y, int n) {
  const int half = n >> 1;
  return fmul(fmul(y, power_of_two(half)), power_of_two(n - half));
}

// e^x = 2^n * (high + low), high the nearest to the sum.
struct ExpParts {
  int n;
  float high, low;
};

// e^(x - n ln 2) for the integer n nearest to x / ln 2, |x| <= 105. Reduction by ln 2 in two parts, then a polynomial
// of degree 7 whose first two terms are exact.
struct Sum {
  float high, low;
};
__device__ __forceinline__ Sum exp_sum(float x, float n) {
  const float reduced_high = ffma(n, -kLn2High, x);  // exact
  const float reduced_low = fmul(n, -kLn2Low);
  const float r = fadd(reduced_high, reduced_low);
  const float r_error = fadd(fsub(reduced_high, r), reduced_low);
  float p = 0x1.a125dcp-13f;
  p = ffma(p, r, 0x1.6d442cp-10f);
  p = ffma(p, r, 0x1.1110e0p-7f);
  p = ffma(p, r, 0x1.5554e8p-5f);
  p = ffma(p, r, 0x1.555556p-3f);
  p = ffma(p, r, 0.5f);
  const float q = ffma(fmul(r, r), p, r_error);  // e^r = 1 + r + q
  const float s = fadd(1.0f, r);
  const float e = fadd(fsub(r, fsub(s, 1.0f)), q);
  const float high = fadd(s, e);
  return {high, fsub(e, fsub(high, s))};
}
__device__ __forceinline__ ExpParts exp_parts(float x) {
  constexpr float kToInteger = 12582912.0f;  // 1.5 * 2^23: a sum with it is rounded to an integer
  const float t = ffma(x, kLog2E, kToInteger);
  const Sum sum = exp_sum(x, fsub(t, kToInteger));
  return {static_cast<int>(to_bits(t) & 0x7fffffu) - 0x400000, sum.high, sum.low};
}

// e^x as one sum. 2^-60 stands for smaller powers: 1 + e^x and 2 + e^x do not see the difference, and no product
// underflows.
__device__ __forceinline__ Sum bounded_exp(const ExpParts& e) {
  const float power = power_of_two(e.n < -60 ? -60 : e.n);
  return {fmul(e.high, power), fmul(e.low, power)};
}

// a + (x.high + x.low), |a| no less than the rest.
__device__ __forceinline__ Sum add_to(float a, Sum x) {
  const float sum = fadd(a, x.high);
  return {sum, fadd(fsub(x.high, fsub(sum, a)), x.low)};
}

// n / d where all of n, d, n / d lie between 2^-100 and 2^100, or n is 0: the division of fdiv without its test for
// other values, which would keep divisions from overlapping.
__device__ __forceinline__ float normal_quotient(float n, float d) {
  float r;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(d));
  r = ffma(r, ffma(-d, r, 1.0f), r);
  const float q = fmul(n, r);
  return ffma(r, ffma(-d, q, n), q);
}

// n - q d for q near n / d.
__device__ __forceinline__ float remainder(float q, Sum d, Sum n) {
  return fadd(ffma(-q, d.high, n.high), ffma(-q, d.low, n.low));
}

// a + b and what the sum lost.
__device__ __forceinline__ Sum two_sum(float a, float b) {
  const float sum = fadd(a, b), b_part = fsub(sum, a);
  return {sum, fadd(fsub(a, fsub(sum, b_part)), fsub(b, b_part))};
}

// -|x|, at least -105; NaN gives 0.
__device__ __forceinline__ float negative_argument(float x) {
  const float m = magnitude(x), z = m > 105.0f ? -105.0f : -m;
  return is_nan(z) ? 0.0f : z;
}

// 2 atanh(n / d).
__device__ __forceinline__ Sum twice_atanh(Sum n, Sum d) {
  const float w = normal_quotient(n.high, d.high);
  const float w_low = fmul(remainder(w, d, n), ffma(w, -0.5f, 0.5f));
  const float w2 = fmul(w, w);
  float p = 0x1.dbbb3ap-4f;
  p = ffma(p, w2, 0x1.bc8828p-4f);
  p = ffma(p, w2, 0x1.24c94cp-3f);
  p = ffma(p, w2, 0x1.9998d4p-3f);
  p = ffma(p, w2, 0x1.555556p-2f);
  return {fmul(2.0f, w), fmul(2.0f, ffma(fmul(w, w2), p, w_low))};
}

// x = 2^n * m, m about 1, for a normal x > 0.
struct LogArgument {
  int n;
  float m;
};
__device__ __forceinline__ LogArgument log_argument(float x) {
  constexpr std::int32_t kSqrtHalfBits = 0x3f3504f3;
  const std::int32_t i = static_cast<std::int32_t>(to_bits(x)) - kSqrtHalfBits;
  return {i >> 23, from_bits(static_cast<std::uint32_t>((i & 0x7fffff) + kSqrtHalfBits))};
}

// n ln 2 + log(1 + f), log(1 + f) = 2 atanh(f / (2 + f)).
__device__ __forceinline__ float log_sum(int n, Sum f) {
  const Sum log = twice_atanh(f, add_to(2.0f, f));
  const float power = __int2float_rn(n);
  const Sum sum = two_sum(fmul(power, kLn2High), log.high);
  return fadd(sum.high, fadd(sum.low, ffma(power, kLn2Low, log.low)));
}

}  // namespace detail

__device__ __forceinline__ float exp_of(float x) {
  float c = x > 90.0f ? 90.0f : x;
  c = c < -105.0f ? -105.0f : c;
  const detail::ExpParts e = detail::exp_parts(is_nan(c) ? 0.0f : c);
  const float y = detail::scale(e.high, e.n);
  return is_nan(x) ? from_bits(kNaNBits) : y;
}

// |x| up to 40: the functions below leave out what other arguments need.
__device__ __forceinline__ bool is_near(float x) {
  return magnitude(x) <= 40.0f;
}
__device__ __forceinline__ detail::Sum near_exp(float x) {  // e^-|x|
  const detail::ExpParts e = detail::exp_parts(-magnitude(x));
  const float power = detail::power_of_two(e.n);
  return {fmul(e.high, power), fmul(e.low, power)};
}
__device__ __forceinline__ float near_sigmoid_of(float x) {
  const detail::Sum power = near_exp(x);
  const bool negative = x < 0.0f;
  const detail::Sum n = negative ? power : detail::Sum{1.0f, 0.0f}, d = detail::add_to(1.0f, power);
  const float q = detail::normal_quotient(n.high, d.high);
  const float inverse = negative ? fsub(1.0f, q) : q;  // of d, near enough for a correction
  return ffma(detail::remainder(q, d, n), inverse, q);
}
__device__ __forceinline__ float near_sqrt_softplus_of(float x) {
  const detail::Sum power = near_exp(x);
  const detail::Sum log = detail::twice_atanh(power, detail::add_to(2.0f, power));
  const detail::Sum sum = detail::two_sum(x > 0.0f ? x : 0.0f, log.high);
  return fsqrt(fadd(sum.high, fadd(sum.low, log.low)));
}

__device__ __forceinline__ float sigmoid_of(float x) {
  const float z = detail::negative_argument(x);
  const detail::ExpParts e = detail::exp_parts(z);
  const detail::Sum power = detail::bounded_exp(e);
  const bool negative = x < 0.0f;
  const detail::Sum n = negative ? power : detail::Sum{1.0f, 0.0f}, d = detail::add_to(1.0f, power);
  const float q = detail::normal_quotient(n.high, d.high);
  const float inverse = negative ? fsub(1.0f, q) : q;  // of d, near enough for a correction
  float y = ffma(detail::remainder(q, d, n), inverse, q);
  if (negative && z < -40.0f) y = detail::scale(e.high, e.n);  // there 1 + e^x rounds to 1
  return is_nan(x) ? from_bits(kNaNBits) : y;
}

// log(1 + e^x) = max(x, 0) + 2 atanh(e / (2 + e)), e = e^-|x|.
__device__ __forceinline__ float softplus_of(float x) {
  const float z = detail::negative_argument(x);
  const detail::ExpParts e = detail::exp_parts(z);
  const detail::Sum power = detail::bounded_exp(e);
  const detail::Sum log = detail::twice_atanh(power, detail::add_to(2.0f, power));
  const detail::Sum sum = detail::two_sum(x > 0.0f ? x : 0.0f, log.high);
  float y = fadd(sum.high, fadd(sum.low, log.low));
  if (z < -40.0f) y = x > 0.0f ? x : detail::scale(e.high, e.n);
  return is_nan(x) ? from_bits(kNaNBits) : y;
}

// Below -40 e^(x/2), so that no subnormal softplus is formed.
__device__ __forceinline__ float sqrt_softplus_of(float x) {
  if (x < -40.0f) return exp_of(fmul(0.5f, x));
  return canonical(fsqrt(softplus_of(x)));
}

// Near 0 an odd polynomial; else (1 - e^z) / (1 + e^z), z = -2|x|, with the quotient corrected by its remainder.
__device__ __forceinline__ float tanh_of(float x) {
  const float a = magnitude(x);
  float y;
  if (a < 0.5f) {
    const float a2 = fmul(a, a);
    float p = -0x1.b40c68p-8f;
    p = ffma(p, a2, 0x1.5d01d2p-6f);
    p = ffma(p, a2, -0x1.b98c6ep-5f);
    p = ffma(p, a2, 0x1.110f2ap-3f);
    p = ffma(p, a2, -0x1.555552p-2f);
    y = ffma(fmul(a, a2), p, a);
  } else {
    const detail::Sum e = detail::bounded_exp(detail::exp_parts(a <= 52.5f ? fmul(-2.0f, a) : -105.0f));
    const float n_high = fsub(1.0f, e.high);
    const detail::Sum n{n_high, fsub(fsub(fsub(1.0f, n_high), e.high), e.low)}, d = detail::add_to(1.0f, e);
    const float q = detail::normal_quotient(n.high, d.high);
    y = ffma(detail::remainder(q, d, n), ffma(0.5f, q, 0.5f), q);
  }
  return is_nan(x) ? from_bits(kNaNBits) : from_bits(to_bits(y) | (to_bits(x) & kSignBit));
}

__device__ __forceinline__ float log_of(float x) {
  if (!(x >= 0.0f)) return from_bits(kNaNBits);
  if (x == 0.0f) return -infinity();
  if (x == infinity()) return x;
  const bool subnormal = x < 0x1p-126f;
  const detail::LogArgument argument = detail::log_argument(subnormal ? fmul(x, 0x1p24f) : x);
  return detail::log_sum(subnormal ? argument.n - 24 : argument.n, {fsub(argument.m, 1.0f), 0.0f});
}

__device__ __forceinline__ float log1p_of(float x) {
  if (!(x >= -1.0f)) return from_bits(kNaNBits);
  if (x == -1.0f) return -infinity();
  if (x == infinity() || magnitude(x) < 0x1p-25f) return x;
  const detail::Sum u = detail::two_sum(1.0f, x);
  const detail::LogArgument argument = detail::log_argument(u.high);
  const float power = detail::power_of_two(-(argument.n < 126 ? argument.n : 126));
  return detail::log_sum(argument.n, {fsub(argument.m, 1.0f), fmul(u.low, power)});
}

__device__ __forceinline__ float rsqrt_of(float x) {
  return canonical(fdiv(1.0f, fsqrt(x)));
}

}  // namespace samebits::cuda
