// Operands of dot products in the twelve regions where models of a tensor core part: each has its own way to go wrong.
#pragma once

#include <bit>
#include <cstdint>
#include <random>
#include <vector>

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
  explicit Operands(std::uint64_t seed) : random_(seed) {}

  // A row and a column of `length` bf16 values for one category.
  void fill(Category category, std::size_t length, Bits16& row, Bits16& column) {
    row.resize(length);
    column.resize(length);
    const std::uint32_t variant = below(4);
    for (std::size_t k = 0; k < length; ++k) pair(category, variant, k, row, column);
  }

  // An accumulator near the products of the category.
  std::uint32_t accumulator(Category category) {
    switch (category) {
      case Category::kNormal:
        return fp32(117, 131);
      case Category::kWideExponents:
        return fp32(97, 157);
      case Category::kFullRange:
        return fp32(0, 254);
      case Category::kCancellation:
        return below(3) == 0 ? 0 : fp32(115, 140);
      case Category::kSubnormal:
        return below(2) == 0 ? fp32(0, 0) : fp32(0, 12);
      case Category::kZerosBesideHuge:
        return below(2) == 0 ? sign32() : fp32(0, 140);
      case Category::kNonFinite:
        return below(32) == 0 ? sign32() | 0x7f800000u | (below(2) << below(23)) : fp32(120, 131);
      case Category::kOverflowEdge:
        return fp32(240, 254);
      case Category::kAlignmentLimit:
        return below(4) == 0 ? sign32() : fp32(93, 131);
      case Category::kZerosOnly:
        return below(4) == 0 ? sign32() | below(8) : sign32();
      case Category::kSameSignMaximal:
        return ((126 + below(8)) << 23) | 0x7fffffu;
      case Category::kFloorRegion:
        return below(4) == 0 ? fp32(0, 0) : sign32();
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

  // Exponent fields: 127 is 2^0, 0 is zero or subnormal, 255 is Inf or NaN.
  void pair(Category category, std::uint32_t variant, std::size_t k, Bits16& row, Bits16& column) {
    std::uint16_t &a = row[k], &b = column[k];
    switch (category) {
      case Category::kNormal:
        a = bf16(120, 129);
        b = bf16(120, 129);
        break;
      case Category::kWideExponents:
        a = bf16(107, 147);
        b = bf16(107, 147);
        break;
      case Category::kFullRange:
        a = bf16(0, 254);
        b = bf16(0, 254);
        break;
      case Category::kCancellation:  // pairs a b, -a b, some one bit off
        a = k % 2 == 1 ? row[k - 1] : bf16(121, 133);
        b = k % 2 == 1 ? static_cast<std::uint16_t>(column[k - 1] ^ 0x8000u ^ (below(4) == 0)) : bf16(121, 133);
        break;
      case Category::kSubnormal:
        a = variant == 0 ? bf16(0, 0) : variant == 1 ? bf16(96, 132) : bf16(48, 66);
        b = variant == 0 ? bf16(96, 132) : variant == 1 ? bf16(0, 1) : bf16(48, 66);
        break;
      case Category::kZerosBesideHuge:
        a = below(2) == 0 ? sign16() : bf16(200, 254);
        b = a << 1 != 0 ? (below(2) == 0 ? sign16() : bf16(20, 60)) : bf16(200, 254);
        break;
      case Category::kNonFinite:
        a = below(64) == 0 ? static_cast<std::uint16_t>(sign16() | 0x7f80u | below(2)) : bf16(120, 129);
        b = below(16) == 0 ? sign16() : bf16(120, 129);
        break;
      case Category::kOverflowEdge:  // products near 2^128, or beyond and cancelling
        if (variant < 2) {
          a = bf16(175, 182);
          b = bf16(187, 195);
        } else {
          a = k % 2 == 1 ? row[k - 1] : bf16(183, 195);
          b = k % 2 == 1 ? static_cast<std::uint16_t>(column[k - 1] ^ 0x8000u ^ (below(32) == 0)) : bf16(183, 195);
        }
        break;
      case Category::kAlignmentLimit:  // few products, 18 to 34 binades apart
        a = k % 16 == variant ? bf16(127, 127) : below(4) == 0 ? bf16(110, 118) : sign16();
        b = k % 16 == variant ? bf16(127, 127) : bf16(110, 118);
        break;
      case Category::kZerosOnly:  // or products far below 2^-149
        a = variant < 2 ? sign16() : bf16(0, 20);
        b = variant == 1 ? sign16() : bf16(0, 20);
        break;
      case Category::kSameSignMaximal:
        a = static_cast<std::uint16_t>(((127 + below(2) * (variant & 1)) << 7) | (127 - below(4) * (variant >> 1)));
        b = static_cast<std::uint16_t>((127 << 7) | 127);
        break;
      case Category::kFloorRegion:  // products of exponents -180 .. -126
        a = below(4) == 0 ? sign16() : bf16(48, 67);
        b = bf16(42, 61);
        break;
    }
  }

  std::mt19937_64 random_;
};

}  // namespace samebits::oracle::test
