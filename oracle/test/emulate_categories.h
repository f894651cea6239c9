// Operands of dot products in the twelve regions where models of a tensor core part: each has its own way to go wrong.
//
// The distributions are those on which rival models were counted against an H200 (see emulate_rivals_test.cpp): dots
// come in tiles, and what a tile decides (its number, and a pattern over the 16 positions of a step) holds for all of
// its dots.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <random>
#include <vector>

#include "oracle/tensors/bf16.h"

namespace samebits::oracle::test {

enum class Category {
  kNormal,
  kWideExponents,
  kFullRange,
  kCancellation,
  kSubnormal,
  kZerosBesideHuge,
  kNonFinite,
  kOverflowEdge,
  kAlignmentLimit,
  kZerosOnly,
  kSameSignMaximal,
  kFloorRegion,
};
inline constexpr int kNumCategories = 12;

using Bits16 = std::vector<std::uint16_t>;

class Operands {
 public:
  static constexpr std::uint32_t kNumTiles = 768;

  explicit Operands(std::uint64_t seed) : random_(seed) {}

  void start_tile(std::uint32_t number) {
    tile_ = number;
    for (std::uint32_t& choice : pattern_) choice = below(12);
  }

  // A row and a column of `length` bf16 values for one category, in the current tile.
  void fill_in_tile(Category category, std::size_t length, Bits16& row, Bits16& column) {
    row.resize(length);
    column.resize(length);
    row_sign_ = sign16();
    column_sign_ = sign16();
    for (std::size_t k = 0; k < length; ++k) pair(category, k, row, column);
    first_product_ = length == 0 ? 0.0f : bf16_to_fp32(row[0]) * bf16_to_fp32(column[0]);
  }
  void fill(Category category, std::size_t length, Bits16& row, Bits16& column) {
    start_tile(below(kNumTiles));
    fill_in_tile(category, length, row, column);
  }

  // An accumulator near the products of the last row and column.
  std::uint32_t accumulator(Category category) {
    const std::uint32_t quarter = below(4);
    switch (category) {
      case Category::kNormal:
        return std::bit_cast<std::uint32_t>(4.0f * normal());
      case Category::kWideExponents:
        return fp32(97, 157);
      case Category::kFullRange:
        return fp32(0, 254);
      case Category::kCancellation:  // minus the first product, or one bit off
        if (quarter < 2) return quarter == 0 ? 0 : fp32(107, 136);
        return std::bit_cast<std::uint32_t>(-first_product_) ^ below(2);
      case Category::kSubnormal:
        return quarter == 0 ? sign32() : quarter == 1 ? subnormal32() : fp32(0, 11);
      case Category::kZerosBesideHuge:
        return quarter < 2 ? sign32() : fp32(0, 139);
      case Category::kNonFinite: {
        const std::uint32_t special = below(64);
        return special > 1 ? std::bit_cast<std::uint32_t>(normal())
                           : sign32() | 0x7f800000u | (special == 0 ? 0 : 1 + below((1u << 23) - 1));
      }
      case Category::kOverflowEdge:
        return quarter < 2 ? fp32(254, 254) : fp32(240, 254);
      case Category::kAlignmentLimit:
        return quarter == 0 ? sign32() : fp32(93, 130);
      case Category::kZerosOnly:
        return quarter == 0 ? sign32() | below(8) : sign32();
      case Category::kSameSignMaximal: {
        const std::uint32_t sign = static_cast<std::uint32_t>(row_sign_ ^ column_sign_) << 16;
        if (tile_ % 2 == 1) return sign | ((127 + below(2)) << 23) | 0x7fffffu;
        return sign | ((126 + below(8)) << 23) | below(1u << 23);
      }
      case Category::kFloorRegion:
        return quarter == 0 ? subnormal32() : sign32();
    }
    return 0;
  }

  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }

 private:
  std::uint16_t sign16() { return static_cast<std::uint16_t>(below(2) << 15); }
  std::uint32_t sign32() { return below(2) << 31; }
  std::uint16_t bf16(std::uint32_t least_field, std::uint32_t greatest_field) {
    const std::uint32_t field = least_field + below(greatest_field - least_field + 1);
    return static_cast<std::uint16_t>(sign16() | (field << 7) | below(128));
  }
  std::uint32_t fp32(std::uint32_t least_field, std::uint32_t greatest_field) {
    const std::uint32_t field = least_field + below(greatest_field - least_field + 1);
    return sign32() | (field << 23) | below(1u << 23);
  }
  std::uint32_t subnormal32() { return sign32() | (below(1u << 23) >> below(23)); }

  // Nearly N(0, 1): the sum of eight uniform values (Irwin and Hall).
  float normal() {
    int sum = -(8 * 32767 + 4);
    for (int i = 0; i < 8; ++i) sum += static_cast<int>(below(1u << 16));
    return static_cast<float>(sum) / 53509.0f;
  }
  std::uint16_t non_finite_or_normal() {
    const std::uint32_t special = below(128);
    if (special > 1) return special % 16 == 2 ? sign16() : fp32_to_bf16(normal());
    return static_cast<std::uint16_t>(sign16() | 0x7f80u | (special == 0 ? 0 : 1 + below(127)));
  }
  std::uint16_t zero_huge_or_wide() {
    const std::uint32_t choice = below(8);
    return choice < 4 ? sign16() : choice == 4 ? bf16(230, 254) : bf16(40, 129);
  }

  // Exponent fields: 127 is 2^0, 0 is zero or subnormal, 255 is Inf or NaN.
  void pair(Category category, std::size_t k, Bits16& row, Bits16& column) {
    std::uint16_t &a = row[k], &b = column[k];
    const std::uint32_t choice = pattern_[k % 16];
    const bool odd_position = k % 2 == 1;
    switch (category) {
      case Category::kNormal:
        a = fp32_to_bf16(normal());
        b = fp32_to_bf16(normal());
        break;
      case Category::kWideExponents:
        a = bf16(107, 147);
        b = bf16(107, 147);
        break;
      case Category::kFullRange:
        a = below(16) == 0 ? bf16(0, 254) : bf16(0, 191);
        b = below(16) == 0 ? bf16(0, 254) : bf16(0, 191);
        break;
      case Category::kCancellation:  // pairs a b, -a b, some a few bits off
        a = odd_position ? nearby(row[k - 1], 4, 3) : bf16(121, 133);
        b = odd_position ? nearby(column[k - 1] ^ 0x8000u, 4, 3) : bf16(121, 133);
        break;
      case Category::kSubnormal:  // the row is small, the column is small, or the product is
        if (choice % 3 == 2) {
          const std::uint32_t least = 51 - 3 * (tile_ % 3);
          a = bf16(least, least + 15);
          b = bf16(least, least + 15);
        } else {
          a = choice % 3 == 1 ? bf16(97, 132) : below(4) == 0 ? bf16(1, 1) : bf16(0, 0);
          b = choice % 3 == 0 ? bf16(97, 132) : static_cast<std::uint16_t>(sign16() | (below(128) >> below(8)));
        }
        break;
      case Category::kZerosBesideHuge:
        a = zero_huge_or_wide();
        b = zero_huge_or_wide();
        break;
      case Category::kNonFinite:
        a = non_finite_or_normal();
        b = non_finite_or_normal();
        break;
      case Category::kOverflowEdge:  // products near 2^128, or beyond and cancelling
        if (tile_ % 2 == 0) {
          a = bf16(175, 182);
          b = bf16(187, 195);
        } else {
          a = odd_position ? nearby(row[k - 1], 32, 1) : bf16(183, 194);
          b = odd_position ? nearby(column[k - 1] ^ 0x8000u, 32, 1) : bf16(183, 194);
        }
        break;
      case Category::kAlignmentLimit:  // few products, 18 to 34 binades apart
        if (k % 16 == tile_ % 16) {
          a = bf16(127, 127);
          b = bf16(127, 127);
        } else {
          a = choice % 4 == 0 ? bf16(110, 118) : std::uint16_t{0};
          b = choice % 4 == 0 ? bf16(110, 118) : static_cast<std::uint16_t>(sign16() | 0x3f80u);
        }
        break;
      case Category::kZerosOnly:  // or products far below 2^-149
        a = sign16();
        b = tile_ % 4 == 0 ? bf16(117, 136) : sign16();
        if (tile_ % 4 == 2) {
          if (below(2) == 0) a = tiny();
          if (below(2) == 0) b = tiny();
        }
        if (tile_ % 4 == 3) {
          if (below(4) == 0) a = bf16(0, 0);
          if (below(4) == 0) b = bf16(0, 0);
        }
        break;
      case Category::kSameSignMaximal:
        if (tile_ % 2 == 1) {
          a = static_cast<std::uint16_t>(row_sign_ | 0x3fffu);
          b = static_cast<std::uint16_t>(column_sign_ | 0x3fffu);
        } else {
          a = static_cast<std::uint16_t>(row_sign_ | ((127 + below(2)) << 7) | (120 + below(8)));
          b = static_cast<std::uint16_t>(column_sign_ | ((127 + below(2)) << 7) | (120 + below(8)));
        }
        break;
      case Category::kFloorRegion:  // products of exponents -180 .. -126
        a = below(4) == 0 ? sign16() : bf16_field(67 - below(256) % (6 + tile_ % 14));
        b = below(4) == 0 ? sign16() : bf16_field(61 - below(256) % (6 + tile_ % 20));
        break;
    }
  }

  // The value, but in one of `odds` cases with its last bit or the bits `other` turned over.
  std::uint16_t nearby(std::uint32_t value, std::uint32_t odds, std::uint32_t other) {
    if (below(odds) == 0) value ^= below(2) == 0 ? 1u : other;
    return static_cast<std::uint16_t>(value);
  }
  std::uint16_t tiny() { return bf16_field(47 + 2 * below(5)); }
  std::uint16_t bf16_field(std::uint32_t field) { return bf16(field, field); }

  std::mt19937_64 random_;
  std::uint32_t tile_ = 0;
  std::array<std::uint32_t, 16> pattern_{};
  std::uint16_t row_sign_ = 0, column_sign_ = 0;
  float first_product_ = 0;
};

}  // namespace samebits::oracle::test
