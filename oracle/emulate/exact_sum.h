// Sums without rounding: a fixed-point number wide enough for every sum of products of bf16 and fp32 values.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <span>

namespace samebits::oracle {

// Products of finite values are multiples of 2^-282 (the least subnormals, 2^-133 and 2^-149) below 2^256; the sum of
// fewer than 2^63 of them, and of fp32 values, is an integer multiple of 2^-288 in 640 bits of two's complement.
class ExactSum {
 public:
  // A finite multiple of 2^-288 of magnitude below 2^288 (unchecked): such a product as a double, or an fp32 value.
  void add(double value);

  // The sum to the nearest double, ties to even. rest() is the sign of what the rounding left: sum - rounded().
  double rounded() const;
  int rest() const;
  // The sum in 53 bits, the last of which also stands for all that follow (round to odd): rounding it to fp32 or bf16
  // rounds the sum once (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
  double rounded_to_odd() const;

  std::strong_ordering operator<=>(const ExactSum& other) const;
  bool operator==(const ExactSum&) const = default;

 private:
  static constexpr std::size_t kLimbs = 10;
  static constexpr int kFractionBits = 288;

  bool negative() const { return limbs_[kLimbs - 1] >> 63 != 0; }
  void accumulate(std::size_t limb, std::uint64_t low, std::uint64_t high, bool subtract);
  // |sum| = bits 2^exponent, bits with the leading bit set and rounded to odd. 0: no bits.
  struct Leading {
    std::uint64_t bits;
    int exponent;
  };
  Leading leading() const;

  std::array<std::uint64_t, kLimbs> limbs_{};  // least significant first
};

// sum x_k w_k + bias of finite operands: x bf16 values, w bf16 or fp32 values, bias an fp32 value.
ExactSum exact_sum(std::span<const double> x, std::span<const double> w, double bias);

// Sum of x[i] * w[i], rounded once to the nearest fp32, ties to even; overflow is Inf. x holds bf16 values, w bf16 or
// fp32 values. An exact sum of 0 is +0. A non-finite term gives what IEEE addition gives in any order, NaN as the one
// NaN.
float exact_dot(std::span<const float> x, std::span<const float> w);

}  // namespace samebits::oracle
