#include "oracle/emulate/exact_sum.h"

#include <bit>
#include <cmath>

#include "oracle/emulate/fp32.h"

namespace samebits::oracle {

void ExactSum::add(double value) {
  if (value == 0.0) return;
  const auto bits = std::bit_cast<std::uint64_t>(value);
  const int exponent = static_cast<int>(bits >> 52 & 0x7ff);  // of a normal number: 2^-288 is far above subnormals
  std::uint64_t significand = (bits & ((std::uint64_t{1} << 52) - 1)) | std::uint64_t{1} << 52;
  int position = exponent - 1075 + kFractionBits;  // of the lowest bit
  if (position < 0) {                              // the bits below are 0
    significand >>= -position;
    position = 0;
  }
  const int shift = position % 64;
  accumulate(static_cast<std::size_t>(position / 64), significand << shift,
             shift == 0 ? 0 : significand >> (64 - shift), bits >> 63 != 0);
}

void ExactSum::accumulate(std::size_t limb, std::uint64_t low, std::uint64_t high, bool subtract) {
  std::uint64_t carry = 0;  // or borrow
  for (std::size_t i = limb; i < kLimbs; ++i) {
    const std::uint64_t operand = i == limb ? low : i == limb + 1 ? high : 0;
    if (i > limb + 1 && carry == 0) break;
    const std::uint64_t before = limbs_[i];
    if (subtract) {
      limbs_[i] = before - operand - carry;
      carry = before < operand || (before == operand && carry != 0) ? 1 : 0;
    } else {
      limbs_[i] = before + operand + carry;
      carry = limbs_[i] < before || (limbs_[i] == before && carry != 0) ? 1 : 0;
    }
  }
}

ExactSum::Leading ExactSum::leading() const {
  auto limbs = limbs_;
  if (negative()) {
    std::uint64_t carry = 1;
    for (std::uint64_t& limb : limbs) {
      limb = ~limb + carry;
      carry = carry != 0 && limb == 0 ? 1 : 0;
    }
  }
  std::size_t top = kLimbs;
  while (top > 0 && limbs[top - 1] == 0) --top;
  if (top == 0) return {0, 0};
  const int zeros = std::countl_zero(limbs[top - 1]);
  std::uint64_t bits = limbs[top - 1] << zeros;
  std::uint64_t rest = 0;
  if (top >= 2) {
    if (zeros > 0) bits |= limbs[top - 2] >> (64 - zeros);
    rest = limbs[top - 2] << zeros;
  }
  for (std::size_t i = 0; i + 2 < top; ++i) rest |= limbs[i];
  return {bits | (rest != 0 ? 1u : 0u), (static_cast<int>(top) - 1) * 64 - zeros - kFractionBits};
}

double ExactSum::rounded() const {
  const auto [bits, exponent] = leading();
  const double value = std::ldexp(static_cast<double>(bits), exponent);
  return negative() ? -value : value;
}

double ExactSum::rounded_to_odd() const {
  const auto [bits, exponent] = leading();
  constexpr std::uint64_t kBelowDouble = 0x7ff;  // what a double cannot hold, folded into its last bit
  const std::uint64_t odd = (bits & ~kBelowDouble) | ((bits & kBelowDouble) != 0 ? kBelowDouble + 1 : 0);
  const double value = std::ldexp(static_cast<double>(odd), exponent);
  return negative() ? -value : value;
}

int ExactSum::rest() const {
  ExactSum difference = *this;
  difference.add(-rounded());
  if (difference.negative()) return -1;
  return difference == ExactSum{} ? 0 : 1;
}

std::strong_ordering ExactSum::operator<=>(const ExactSum& other) const {
  if (negative() != other.negative()) return other.negative() <=> negative();
  for (std::size_t i = kLimbs; i-- > 0;) {
    if (limbs_[i] != other.limbs_[i]) return limbs_[i] <=> other.limbs_[i];
  }
  return std::strong_ordering::equal;
}

ExactSum exact_sum(std::span<const double> x, std::span<const double> w, double bias) {
  ExactSum sum;
  for (std::size_t k = 0; k < x.size(); ++k) sum.add(x[k] * w[k]);
  sum.add(bias);
  return sum;
}

float exact_dot(std::span<const float> x, std::span<const float> w) {
  ExactSum sum;
  double special = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double product = static_cast<double>(x[i]) * static_cast<double>(w[i]);
    if (std::isfinite(product)) {
      sum.add(product);
    } else {
      special += product;
    }
  }
  return special != 0 ? one_nan(static_cast<float>(special)) : static_cast<float>(sum.rounded_to_odd());
}

}  // namespace samebits::oracle
