// Twelve kinds of operands for tensor-core steps, each aimed at one clause of the model.
#pragma once

#include <cstdint>

#include "kernels/test/random_bits.h"

namespace samebits::cpu::test {

enum class Category {
  kNormal,
  kWideExponents,    // over +-20
  kFullRange,        // every finite bf16 exponent
  kCancellation,     // pairs a*b and -a*b, some one ulp apart
  kSubnormal,        // subnormal operands, products and results
  kZerosBesideHuge,  // zeros of both signs with huge partners: they must not raise emax
  kNonFinite,        // Inf and NaN among normal values and zeros
  kOverflow,         // results around 2^128, products beyond it that cancel
  kAlignmentLimit,   // few non-zeros, exponents apart by about 25
  kUnderflow,        // zeros and products below 2^-149
  kCarries,          // same sign, largest significands
  kFloor,            // products of exponent -180 .. -126, where emax has its floor
};
inline constexpr int kNumCategories = 12;

inline std::uint16_t bf16_of(std::uint64_t sign, std::int64_t exponent, std::uint64_t fraction) {
  return static_cast<std::uint16_t>((sign & 1) << 15 | static_cast<std::uint64_t>(exponent + 127) << 7 |
                                    (fraction & 127));
}

// Operand k of one side (0: row, 1: expert) of dot product `index`.
inline std::uint16_t operand(Category category, int side, std::uint64_t index, std::int64_t k) {
  const auto column = static_cast<std::uint64_t>(k);
  const std::uint64_t bits =
      draw(index * 2 + static_cast<std::uint64_t>(side), column * 16 + static_cast<std::uint64_t>(category));
  const std::uint64_t sign = bits >> 63, fraction = bits & 127, choice = (bits >> 8) & 0xffff;
  const auto pick = [&](std::int64_t low, std::int64_t count) {
    return low + static_cast<std::int64_t>((bits >> 24) % static_cast<std::uint64_t>(count));
  };
  const auto column_choice = [&](std::uint64_t n) { return draw(column / 16 * 7 + 1, column) % n; };
  const auto zero = static_cast<std::uint16_t>(sign << 15);
  switch (category) {
    case Category::kNormal:
      return upper_half(draw_normal(bits, 0));
    case Category::kWideExponents:
      return bf16_of(sign, pick(-20, 41), fraction);
    case Category::kFullRange:
      return bf16_of(sign, pick(-127, choice % 16 == 0 ? 255 : 180), fraction);
    case Category::kCancellation: {
      const std::uint64_t pair = draw(index * 2 + static_cast<std::uint64_t>(side), column / 2 * 16 + 3);
      const std::uint64_t flip = side == 1 && k % 2 == 1 ? 1 : 0;
      const std::uint64_t ulp = k % 2 == 1 && choice % 4 == 0 ? 1 : 0;
      return bf16_of((pair >> 63) ^ flip, -6 + static_cast<std::int64_t>((pair >> 24) % 13), (pair & 127) ^ ulp);
    }
    case Category::kSubnormal:
      if (column_choice(3) == 2) return bf16_of(sign, pick(-76, 16), fraction);
      return column_choice(3) == static_cast<std::uint64_t>(side)
                 ? static_cast<std::uint16_t>(zero | (fraction >> (choice % 8)) | (choice % 4 == 0 ? 0x80 : 0))
                 : bf16_of(sign, pick(-30, 36), fraction);
    case Category::kZerosBesideHuge:
      if (choice % 8 < 4) return zero;
      return choice % 8 == 4 ? bf16_of(sign, pick(103, 25), fraction) : bf16_of(sign, pick(-87, 90), fraction);
    case Category::kNonFinite:
      if (choice % 128 == 0) return static_cast<std::uint16_t>(zero | 0x7f80);
      if (choice % 128 == 1) return static_cast<std::uint16_t>(zero | 0x7f80 | fraction | 1);
      return choice % 16 == 2 ? zero : upper_half(draw_normal(bits, 0));
    case Category::kOverflow: {
      if (index % 2 == 0)
        return side == 0 ? bf16_of(sign, pick(48, 8), fraction) : bf16_of(sign, pick(66, 9), fraction);
      const std::uint64_t pair = draw(index * 2 + static_cast<std::uint64_t>(side), column / 2 * 16 + 7);
      return bf16_of((pair >> 63) ^ (side == 1 && k % 2 == 1 ? 1 : 0),
                     56 + static_cast<std::int64_t>((pair >> 24) % 12), (pair & 127) ^ (choice % 32 == 0 ? 1 : 0));
    }
    case Category::kAlignmentLimit:
      if (column_choice(16) == 0) return bf16_of(sign, 0, fraction);
      return column_choice(4) != 0 ? (side == 0 ? zero : bf16_of(sign, 0, 0)) : bf16_of(sign, -pick(9, 9), fraction);
    case Category::kUnderflow:
      if (index % 3 == 0) return zero;
      return choice % 2 == 0  ? zero
             : index % 3 == 1 ? bf16_of(sign, pick(-80, 10), fraction)
                              : static_cast<std::uint16_t>(zero | fraction);
    case Category::kCarries:
      return bf16_of(index, choice % 2 == 0 ? 0 : static_cast<std::int64_t>(index / 2 % 2), 120 | (fraction & 7));
    case Category::kFloor:
      return choice % 16 == 0 ? zero : bf16_of(sign, -60 - 6 * side - pick(0, 16), fraction);
  }
  return 0;
}

// Accumulators of the same kinds.
inline std::uint32_t accumulator(Category category, std::uint64_t index) {
  const std::uint64_t bits = draw(index, 1000 + static_cast<std::uint64_t>(category));
  const auto sign = static_cast<std::uint32_t>(bits >> 63) << 31;
  const auto fraction = static_cast<std::uint32_t>(bits & 0x7fffff);
  const auto field = [&](std::uint64_t low, std::uint64_t count) {
    return sign | static_cast<std::uint32_t>(low + (bits >> 24) % count) << 23 | fraction;
  };
  if ((bits >> 56) % 4 == 0) return sign;
  switch (category) {
    case Category::kFullRange:
      return field(0, 255);
    case Category::kSubnormal:
    case Category::kFloor:
    case Category::kUnderflow:
      return (bits >> 58) % 2 == 0 ? sign | fraction >> ((bits >> 24) % 23) : field(0, 12);
    case Category::kZerosBesideHuge:
      return field(0, 140);
    case Category::kNonFinite:
      return (bits >> 58) % 32 == 0 ? sign | 0x7f800000u | ((bits >> 24) % 2 == 0 ? fraction : 0u) : field(120, 12);
    case Category::kOverflow:
      return field(240, 15);
    default:
      return field(94, 61);
  }
}

}  // namespace samebits::cpu::test
