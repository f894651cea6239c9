// One tensor-core step of the contract in integers: the sum of an fp32 accumulator and 16 products of bf16 values, with
// the parameters of sm_90 (docs/contract.md, Step). Any GPU.
#pragma once

#include <cstdint>

#include "kernels/plan/plan.h"

namespace samebits::cuda {

inline constexpr int kFractionBits = 25;     // of the fixed-point adder, below 2^emax
inline constexpr int kExponentFloor = -133;  // of emax
inline constexpr std::uint32_t kNaNBits = 0x7fffffffu;

// The 16 values that one side brings to a step, two in a word.
struct StepOperand {
  std::uint32_t words[kStepWidth / 2];

  __device__ std::uint32_t operator[](int i) const { return words[i / 2] >> (16 * (i % 2)) & 0xffffu; }
};

// values: 16-byte aligned.
__device__ inline StepOperand load_step_operand(const std::uint16_t* values) {
  const uint4 low = reinterpret_cast<const uint4*>(values)[0], high = reinterpret_cast<const uint4*>(values)[1];
  return {{low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w}};
}

// The result of a step that has a NaN or an Inf among its terms. Finite terms have no part in it.
__device__ inline std::uint32_t special_step(std::uint32_t c, const StepOperand& a, const StepOperand& b) {
  constexpr std::uint32_t kInf32 = 0x7f800000u, kInf16 = 0x7f80u;
  bool nan = (c & 0x7fffffffu) > kInf32;
  bool positive_inf = c == kInf32, negative_inf = c == (kInf32 | 0x80000000u);
  for (int i = 0; i < kStepWidth; ++i) {
    const std::uint32_t x = a[i] & 0x7fffu, y = b[i] & 0x7fffu;
    const bool inf = x == kInf16 || y == kInf16, negative = ((a[i] ^ b[i]) & 0x8000u) != 0;
    nan |= x > kInf16 || y > kInf16 || (inf && (x == 0 || y == 0));
    positive_inf |= inf && !negative;
    negative_inf |= inf && negative;
  }
  if (nan || (positive_inf && negative_inf)) return kNaNBits;
  return positive_inf ? kInf32 : kInf32 | 0x80000000u;
}

// sum * 2^(emax - 25) cut toward zero to fp32. A zero, also by underflow, is +0; 2^128 or more is Inf.
__device__ inline std::uint32_t cut_to_fp32(std::int64_t sum, int emax) {
  const std::uint32_t sign = sum < 0 ? 0x80000000u : 0u;
  // 16 products below 2^27 and an accumulator below 2^26.
  const auto magnitude = static_cast<std::uint32_t>(sum < 0 ? -sum : sum);
  if (magnitude == 0) return 0;
  const int leading_bit = 31 - __clz(static_cast<int>(magnitude));
  const int exponent = leading_bit + emax - kFractionBits;
  if (exponent > 127) return sign | 0x7f800000u;
  // The last place of the result in units of the sum: its 24th bit, or 2^-149. At most 9, by the floor of emax.
  const int last_place = max(exponent, -126) - 23 - (emax - kFractionBits);
  const std::uint32_t significand = last_place >= 0 ? magnitude >> last_place : magnitude << -last_place;
  if (significand == 0) return 0;
  const std::uint32_t field = exponent < -126 ? 0u : static_cast<std::uint32_t>(exponent + 127);
  return sign | field << 23 | (significand & 0x7fffffu);
}

// Bits of c + a[0] * b[0] + ... + a[15] * b[15].
__device__ inline std::uint32_t step(std::uint32_t c, const StepOperand& a, const StepOperand& b) {
  // A zero term takes the lowest exponent: it must not raise emax.
  std::uint32_t products[kStepWidth];
  int exponents[kStepWidth];
  const int c_field = static_cast<int>(c >> 23 & 255u);
  const std::uint32_t c_significand = (c & 0x7fffffu) | (c_field != 0 ? 0x800000u : 0u);
  const int c_exponent = c_significand != 0 ? max(c_field, 1) - 127 : kExponentFloor;
  int emax = max(c_exponent, kExponentFloor);
  bool special = c_field == 255;
#pragma unroll
  for (int i = 0; i < kStepWidth; ++i) {
    const std::uint32_t x = a[i], y = b[i];
    const int x_field = static_cast<int>(x >> 7 & 255u), y_field = static_cast<int>(y >> 7 & 255u);
    special |= x_field == 255 || y_field == 255;
    products[i] = ((x & 0x7fu) | (x_field != 0 ? 0x80u : 0u)) * ((y & 0x7fu) | (y_field != 0 ? 0x80u : 0u));
    exponents[i] = products[i] != 0 ? max(x_field, 1) + max(y_field, 1) - 254 : kExponentFloor;
    emax = max(emax, exponents[i]);
  }
  if (special) return special_step(c, a, b);

  // Magnitudes are cut toward zero to multiples of 2^(emax - 25), then signed. 16 products fit 32 bits.
  std::int32_t sum = 0;
#pragma unroll
  for (int i = 0; i < kStepWidth; ++i) {
    const auto cut = static_cast<std::int32_t>(products[i] << (kFractionBits - 14) >> min(emax - exponents[i], 31));
    sum += ((a[i] ^ b[i]) & 0x8000u) != 0 ? -cut : cut;
  }
  const auto cut = static_cast<std::int64_t>(c_significand << (kFractionBits - 23) >> min(emax - c_exponent, 31));
  return cut_to_fp32(sum + ((c & 0x80000000u) != 0 ? -cut : cut), emax);
}

}  // namespace samebits::cuda
