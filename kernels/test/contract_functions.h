// tanh, log, log1p and rsqrt once more, written from docs/contract.md: one statement of it a line, nothing shared with
// the code under test.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace samebits::cpu::test {

inline constexpr float kContractInf = std::numeric_limits<float>::infinity();

inline float contract_nan() {
  return std::bit_cast<float>(0x7fffffffu);
}

// e^z, z <= 0, in two parts as sigmoid forms them: the power of two is not below 2^-60.
inline void contract_exp_parts(float z, float& high, float& low) {
  const float t = std::fmaf(z, 0x1.715476p+0f, 12582912.0f), n = t - 12582912.0f;
  const float reduced_high = std::fmaf(n, -0x1.62e400p-1f, z), reduced_low = n * -0x1.7f7d1cp-20f;
  const float r = reduced_high + reduced_low, r_low = (reduced_high - r) + reduced_low;
  float p = 0x1.a125dcp-13f;
  for (const float c : {0x1.6d442cp-10f, 0x1.1110e0p-7f, 0x1.5554e8p-5f, 0x1.555556p-3f, 0.5f}) p = std::fmaf(p, r, c);
  const float q = std::fmaf(r * r, p, r_low), s = 1.0f + r, e = (r - (s - 1.0f)) + q;
  const float sum = s + e;
  const float power = std::ldexp(1.0f, std::max(static_cast<int>(n), -60));
  high = sum * power;
  low = (e - (sum - s)) * power;
}

inline float contract_tanh(float x) {
  if (std::isnan(x)) return contract_nan();
  const float a = std::fabs(x);
  if (a < 0.5f) {
    const float a2 = a * a;
    float p = -0x1.b40c68p-8f;
    for (const float c : {0x1.5d01d2p-6f, -0x1.b98c6ep-5f, 0x1.110f2ap-3f, -0x1.555552p-2f}) p = std::fmaf(p, a2, c);
    return std::copysign(std::fmaf(a * a2, p, a), x);
  }
  float high = 0, low = 0;
  contract_exp_parts(a > 52.5f ? -105.0f : -2 * a, high, low);
  const float n = 1 - high, n1 = ((1 - n) - high) - low;
  const float d = 1 + high, d1 = (high - (d - 1)) + low;
  const float q = n / d, r = std::fmaf(-q, d, n) + std::fmaf(-q, d1, n1);
  return std::copysign(std::fmaf(r, std::fmaf(0.5f, q, 0.5f), q), x);
}

// x normal and positive; f1 is given for the exponent n of x.
template <class Low>
float contract_log_of_parts(float x, float t, Low f1_of) {
  const auto i = static_cast<std::int32_t>(std::bit_cast<std::uint32_t>(x) - 0x3f3504f3u);
  const std::int32_t n = i >> 23;
  const float m = std::bit_cast<float>(static_cast<std::uint32_t>((i & 0x7fffff) + 0x3f3504f3));
  const float f = m - 1, f1 = f1_of(n);
  const float s = 2 + f, s1 = (f - (s - 2)) + f1, w = f / s;
  const float r = std::fmaf(-w, s, f) + std::fmaf(-w, s1, f1), w1 = r * std::fmaf(w, -0.5f, 0.5f), w2 = w * w;
  float p = 0x1.dbbb3ap-4f;
  for (const float c : {0x1.bc8828p-4f, 0x1.24c94cp-3f, 0x1.9998d4p-3f, 0x1.555556p-2f}) p = std::fmaf(p, w2, c);
  const float high = 2 * w, low = 2 * std::fmaf(w * w2, p, w1);
  const float big_n = static_cast<float>(n) + t, b = big_n * 0x1.62e400p-1f, u = b + high, v = u - b;
  const float e = (b - (u - v)) + (high - v);
  return u + (e + std::fmaf(big_n, 0x1.7f7d1cp-20f, low));
}

inline float contract_log(float x) {
  if (std::isnan(x) || x < 0) return contract_nan();
  if (x == 0) return -kContractInf;
  if (x == kContractInf) return x;
  const auto zero = [](std::int32_t) { return 0.0f; };
  return std::isnormal(x) ? contract_log_of_parts(x, 0.0f, zero) : contract_log_of_parts(x * 0x1p24f, -24.0f, zero);
}

inline float contract_log1p(float x) {
  if (std::isnan(x) || x < -1) return contract_nan();
  if (x == -1) return -kContractInf;
  if (x == kContractInf || std::fabs(x) < 0x1p-25f) return x;
  const float u = 1 + x, v = u - 1, c = (1 - (u - v)) + (x - v);
  return contract_log_of_parts(u, 0.0f, [c](std::int32_t n) { return c * std::ldexp(1.0f, -std::min(n, 126)); });
}

inline float contract_rsqrt(float x) {
  const float y = 1 / std::sqrt(x);
  return std::isnan(y) ? contract_nan() : y;
}

}  // namespace samebits::cpu::test
