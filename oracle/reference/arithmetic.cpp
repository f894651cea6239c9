#include "oracle/reference/arithmetic.h"

#include <algorithm>

namespace samebits::oracle {

double ArithmeticOf<double>::round_to_bf16(double x) {
  if (!std::isfinite(x) || x == 0) return x;
  // 8 significant bits, fewer below 2^-126; the step of the grid is a power of two, so only nearbyint rounds.
  const int unit = std::max(std::ilogb(x), -126) - 7;
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(x, -unit)), unit);
  return std::fabs(rounded) >= 0x1p128 ? std::copysign(std::numeric_limits<double>::infinity(), x) : rounded;
}

}  // namespace samebits::oracle
