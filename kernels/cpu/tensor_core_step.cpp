#include "kernels/cpu/tensor_core_step.h"

#include <algorithm>
#include <bit>

#include "kernels/common/bits.h"
#include "kernels/cpu/gate_weight.h"

namespace samebits::cpu {
namespace {

constexpr int kFractionBits = 25;     // of the fixed-point adder, below 2^emax
constexpr int kExponentFloor = -133;  // of emax
constexpr int kProducts = static_cast<int>(kStepWidth);

// The result of a step that has a NaN or an Inf among its operands. Finite terms have no part in it.
std::uint32_t special_step(std::uint32_t c, const std::uint16_t* a, std::ptrdiff_t a_stride, const std::uint16_t* b,
                           std::ptrdiff_t b_stride) {
  constexpr int kInf = 0x7f80;  // of bf16
  bool nan = (c & ~kSignBit) > kInfBits;
  bool inf[2] = {c == kInfBits, c == (kInfBits | kSignBit)};  // by sign
  for (int i = 0; i < kProducts; ++i) {
    const std::uint16_t a_i = a[i * a_stride], b_i = b[i * b_stride];
    const int x = a_i & 0x7fff, y = b_i & 0x7fff;
    if (x > kInf || y > kInf || (x == kInf && y == 0) || (y == kInf && x == 0)) {
      nan = true;
    } else if (x == kInf || y == kInf) {
      inf[(a_i ^ b_i) >> 15] = true;
    }
  }
  if (nan || (inf[0] && inf[1])) return kNaNBits;
  return inf[0] ? kInfBits : kInfBits | kSignBit;
}

// sum * 2^unit_exponent rounded toward zero to fp32; zero, also by underflow, is +0, and 2^128 or more is Inf.
std::uint32_t round_toward_zero(std::int64_t sum, int unit_exponent) {
  const std::uint32_t sign = sum < 0 ? kSignBit : 0u;
  const std::uint64_t magnitude = static_cast<std::uint64_t>(sum < 0 ? -sum : sum);
  if (magnitude == 0) return 0;
  const int exponent = unit_exponent + 63 - std::countl_zero(magnitude);
  if (exponent > 127) return sign | kInfBits;
  const int shift = std::max(exponent, -126) - 23 - unit_exponent;  // to units of the last place of the result
  const std::uint64_t significand = shift >= 64 ? 0 : shift >= 0 ? magnitude >> shift : magnitude << -shift;
  if (significand == 0) return 0;
  const std::uint32_t field = exponent < -126 ? 0u : static_cast<std::uint32_t>(exponent + 127);
  return sign | (field << 23) | (static_cast<std::uint32_t>(significand) & 0x7fffffu);
}

}  // namespace

std::uint32_t tensor_core_step(std::uint32_t c, const std::uint16_t* a, std::ptrdiff_t a_stride, const std::uint16_t* b,
                               std::ptrdiff_t b_stride) {
  // Magnitudes in units of 2^(exponent - kFractionBits), and signs (0 or -1); the last term is the accumulator.
  std::int64_t magnitudes[kProducts + 1], signs[kProducts + 1];
  int exponents[kProducts + 1];
  int emax = kExponentFloor;
  const int c_field = static_cast<int>((c >> 23) & 255);
  bool special = c_field == 255;
  for (int i = 0; i < kProducts; ++i) {
    const int x = a[i * a_stride], y = b[i * b_stride];
    const int x_field = (x >> 7) & 255, y_field = (y >> 7) & 255;
    special |= (x_field == 255) | (y_field == 255);
    const int product = ((x & 0x7f) | (x_field != 0 ? 0x80 : 0)) * ((y & 0x7f) | (y_field != 0 ? 0x80 : 0));
    magnitudes[i] = static_cast<std::int64_t>(product) << (kFractionBits - 14);
    signs[i] = -((x ^ y) >> 15);
    exponents[i] = std::max(x_field, 1) + std::max(y_field, 1) - 254;
    emax = std::max(emax, product != 0 ? exponents[i] : kExponentFloor);
  }
  if (special) return special_step(c, a, a_stride, b, b_stride);

  const std::int64_t significand = static_cast<std::int64_t>(c & 0x7fffffu) | (c_field != 0 ? 0x800000 : 0);
  magnitudes[kProducts] = significand << (kFractionBits - 23);
  signs[kProducts] = (c & kSignBit) != 0 ? -1 : 0;
  exponents[kProducts] = std::max(c_field, 1) - 127;
  emax = std::max(emax, significand != 0 ? exponents[kProducts] : kExponentFloor);

  std::int64_t sum = 0;
  for (int i = 0; i <= kProducts; ++i) {
    // Cut toward zero: the magnitude is shifted, then it gets its sign. A zero term may have any exponent.
    const std::int64_t cut = magnitudes[i] >> std::clamp(emax - exponents[i], 0, 62);
    sum += (cut ^ signs[i]) - signs[i];
  }
  return round_toward_zero(sum, emax - kFractionBits);
}

}  // namespace samebits::cpu
