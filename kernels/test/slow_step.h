// A second tensor-core step, written from the model in docs/contract.md and not from the code under test: no shifts, no
// integers, but double arithmetic in which every operation here is exact.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace samebits::cpu::test {

struct SlowNumber {
  double significand;  // in [0, 2), with its sign; 0 exactly for a zero
  int exponent;        // raw: that of the field, not of the leading bit
  bool nan, inf, zero;
};

inline SlowNumber slow_number(float x) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(x);
  const int exponent = std::max(static_cast<int>(bits >> 23 & 255), 1) - 127;
  const bool finite = std::isfinite(x);
  return {finite ? std::ldexp(static_cast<double>(x), -exponent) : 0.0, exponent, std::isnan(x), std::isinf(x),
          x == 0.0f};
}

inline float slow_round_toward_zero(double value) {
  if (std::fabs(value) >= 0x1p128)
    return std::copysign(std::numeric_limits<float>::infinity(), static_cast<float>(value));
  float nearest = static_cast<float>(value);
  if (std::fabs(static_cast<double>(nearest)) > std::fabs(value)) nearest = std::nextafterf(nearest, 0.0f);
  return nearest == 0.0f ? 0.0f : nearest;
}

inline std::uint32_t slow_step(std::uint32_t c_bits, const std::uint16_t* a, const std::uint16_t* b) {
  const SlowNumber c = slow_number(std::bit_cast<float>(c_bits));
  SlowNumber x[16], y[16];
  bool nan = c.nan, plus = c.inf && c_bits >> 31 == 0, minus = c.inf && c_bits >> 31 == 1;
  int emax = -133;
  if (!c.zero) emax = std::max(emax, c.exponent);
  for (int i = 0; i < 16; ++i) {
    x[i] = slow_number(std::bit_cast<float>(std::uint32_t{a[i]} << 16));
    y[i] = slow_number(std::bit_cast<float>(std::uint32_t{b[i]} << 16));
    const bool negative = ((a[i] ^ b[i]) & 0x8000) != 0;
    if (x[i].nan || y[i].nan || (x[i].inf && y[i].zero) || (y[i].inf && x[i].zero)) nan = true;
    if ((x[i].inf || y[i].inf) && !negative) plus = true;
    if ((x[i].inf || y[i].inf) && negative) minus = true;
    if (!x[i].zero && !y[i].zero) emax = std::max(emax, x[i].exponent + y[i].exponent);
  }
  if (nan || (plus && minus)) return 0x7fffffffu;
  if (plus) return 0x7f800000u;
  if (minus) return 0xff800000u;
  double sum = std::trunc(std::ldexp(c.significand, c.exponent - emax + 25));
  for (int i = 0; i < 16; ++i) {
    const int exponent = x[i].exponent + y[i].exponent - emax + 25;
    if (!x[i].zero && !y[i].zero) sum += std::trunc(std::ldexp(x[i].significand * y[i].significand, exponent));
  }
  return std::bit_cast<std::uint32_t>(slow_round_toward_zero(std::ldexp(sum, emax - 25)));
}

// Chunks of 256 from +0, added left to right; the row is padded to steps of 16 with +0 on both sides.
inline float slow_logit(const std::uint16_t* row, const std::uint16_t* weight, std::int64_t hidden_size) {
  float sum = 0.0f;
  for (std::int64_t chunk = 0; chunk < hidden_size; chunk += 256) {
    std::uint32_t c = 0;
    for (std::int64_t k = chunk; k < std::min<std::int64_t>(chunk + 256, hidden_size); k += 16) {
      std::uint16_t a[16] = {}, b[16] = {};
      for (std::int64_t i = 0; i < std::min<std::int64_t>(16, hidden_size - k); ++i)
        a[i] = row[k + i], b[i] = weight[k + i];
      c = slow_step(c, a, b);
    }
    const float part = std::bit_cast<float>(c);
    sum = chunk == 0 ? part : sum + part;
    if (std::isnan(sum)) sum = std::bit_cast<float>(0x7fffffffu);
  }
  return sum;
}

}  // namespace samebits::cpu::test
