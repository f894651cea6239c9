// Sums of products of bf16 numbers without any rounding.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "oracle/second/real.h"

namespace samebits::second {

// Products with the same exponent are added as integers; the exponents are brought together at the end. Holds 2^40
// products of two bf16 numbers.
class ExactSum {
 public:
  // Adds product * 2^exponent; |product| < 2^16, the exponent that of a product of two bf16 integers.
  void add(std::int64_t product, int exponent) {
    const int bin = exponent - kLeastExponent;
    bins_[static_cast<std::size_t>(bin)] += product;
    first_ = std::min(first_, bin);
    last_ = std::max(last_, bin);
  }

  // The sum, rounded to the precision of the result.
  void get(mpfr_ptr out) const;

 private:
  static constexpr int kLeastExponent = 2 * -133;
  static constexpr int kBins = (2 * 120) - kLeastExponent + 1;
  std::array<std::int64_t, kBins> bins_{};
  int first_ = kBins;  // bins that are in use
  int last_ = -1;
};

}  // namespace samebits::second
