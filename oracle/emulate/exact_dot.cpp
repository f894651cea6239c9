#include "oracle/emulate/exact_dot.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "oracle/emulate/fp32.h"

namespace samebits::oracle {
namespace {

// A fixed-point integer that holds every sum of fewer than 2^63 products: they are multiples of 2^-282 (the least
// subnormals, 2^-133 and 2^-149) below 2^256. Limbs of 32 bits, carried late: 2^31 additions fit an int64.
class FixedPoint {
 public:
  void add(double product) {  // a product of 8 and of 24 significant bits: exact in double
    int exponent;
    const double fraction = std::frexp(product, &exponent);
    const std::int64_t significand = static_cast<std::int64_t>(std::ldexp(fraction, kProductBits));
    const int position = exponent - kProductBits + kFractionBits;  // of the lowest bit; below 0 those bits are 0
    const std::uint64_t magnitude = static_cast<std::uint64_t>(significand < 0 ? -significand : significand);
    const std::uint64_t aligned = position < 0 ? magnitude >> -position : magnitude;
    const int limb = position < 0 ? 0 : position / 32, shift = position < 0 ? 0 : position % 32;
    const std::uint64_t low = aligned << shift;  // at most 63 bits
    const std::int64_t sign = significand < 0 ? -1 : 1;
    limbs_[static_cast<std::size_t>(limb)] += sign * static_cast<std::int64_t>(low & 0xffffffffu);
    limbs_[static_cast<std::size_t>(limb) + 1] += sign * static_cast<std::int64_t>(low >> 32);
  }

  float rounded() {
    carry();
    const bool negative = limbs_.back() < 0;
    if (negative) {
      for (std::int64_t& limb : limbs_) limb = -limb;
      carry();
    }
    // The leading bits in a double whose last bit also stands for all that follows (round to odd): 53 bits are more
    // than two beyond fp32, so the second rounding is that of the exact sum (Boldo and Melquiond, 2008).
    std::size_t top = limbs_.size();
    while (top > 0 && limbs_[top - 1] == 0) --top;
    if (top == 0) return 0.0f;
    std::uint64_t leading = 0;
    bool rest = false;
    int taken = 0;
    for (std::size_t i = top; i-- > 0; ++taken) {
      const std::uint64_t limb = static_cast<std::uint64_t>(limbs_[i]);
      if (taken < 2) {
        leading = leading << 32 | limb;
      } else {
        rest |= limb != 0;
      }
    }
    if (taken < 2) leading <<= 32;
    const int drop = 64 - std::countl_zero(leading) - 53;
    if (drop > 0) {
      rest |= (leading & ((std::uint64_t{1} << drop) - 1)) != 0;
      leading = leading >> drop << drop | std::uint64_t{rest} << drop;
    } else {
      leading |= std::uint64_t{rest};
    }
    const double value = std::ldexp(static_cast<double>(leading), (static_cast<int>(top) - 2) * 32 - kFractionBits);
    return static_cast<float>(negative ? -value : value);
  }

 private:
  static constexpr int kFractionBits = 288;  // a multiple of 32 above 282
  static constexpr int kProductBits = 32;
  void carry() {
    for (std::size_t i = 0; i + 1 < limbs_.size(); ++i) {
      limbs_[i + 1] += limbs_[i] >> 32;
      limbs_[i] &= 0xffffffff;
    }
  }
  std::array<std::int64_t, 20> limbs_{};  // 288 + 256 bits, and room for 63 more and the sign
};

}  // namespace

float exact_dot(std::span<const float> x, std::span<const float> w) {
  FixedPoint sum;
  double special = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double product = static_cast<double>(x[i]) * static_cast<double>(w[i]);
    if (!std::isfinite(product)) {
      special += product;
    } else if (product != 0) {
      sum.add(product);
    }
  }
  if (special != 0 || special != special) return one_nan(static_cast<float>(special));
  return sum.rounded();
}

}  // namespace samebits::oracle
