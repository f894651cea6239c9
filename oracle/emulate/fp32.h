// fp32 operations of the contract: IEEE round to nearest even, and one NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace samebits::oracle {

// A GPU returns these bits for every NaN, while x86 keeps payloads; so every operation that can see or make a NaN
// replaces it.
inline constexpr std::uint32_t kNanBits = 0x7fffffffu;
inline float the_nan() {
  return std::bit_cast<float>(kNanBits);
}
inline float one_nan(float x) {
  return x == x ? x : the_nan();
}

inline float fadd_rn(float a, float b) {
  return one_nan(a + b);
}
inline float fsub_rn(float a, float b) {
  return one_nan(a - b);
}
inline float fmul_rn(float a, float b) {
  return one_nan(a * b);
}
inline float fdiv_rn(float a, float b) {
  return one_nan(a / b);
}

}  // namespace samebits::oracle
