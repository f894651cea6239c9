// fp32 and bf16 as bit patterns.
#pragma once

#include <bit>
#include <cstdint>

namespace samebits {

inline constexpr std::uint32_t kNaNBits = 0x7fffffffu;  // the one NaN that the contract knows
inline constexpr std::uint32_t kSignBit = 0x80000000u;
inline constexpr std::uint32_t kInfBits = 0x7f800000u;

inline std::uint32_t to_bits(float x) {
  return std::bit_cast<std::uint32_t>(x);
}
inline float from_bits(std::uint32_t bits) {
  return std::bit_cast<float>(bits);
}
inline float bf16_to_float(std::uint16_t bits) {
  return from_bits(static_cast<std::uint32_t>(bits) << 16);
}
inline bool is_nan(float x) {
  return x != x;
}
inline float canonical(float x) {
  return is_nan(x) ? from_bits(kNaNBits) : x;
}

// bf16 bits of x, round to nearest even; every NaN becomes 0x7fff, of which fp32 is 0x7fff0000.
inline std::uint16_t float_to_bf16(float x) {
  if (is_nan(x)) return 0x7fff;
  const std::uint32_t bits = to_bits(x);
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// x rounded to bf16 and back; NaN is canonical again.
inline float round_to_bf16(float x) {
  return canonical(bf16_to_float(float_to_bf16(x)));
}

// bf16 bits of a weight: +0 where rounding leaves no finite number.
inline std::uint16_t weight_to_bf16(float x) {
  const std::uint16_t bits = float_to_bf16(x);
  return (bits & 0x7f80) == 0x7f80 ? std::uint16_t{0} : bits;
}

}  // namespace samebits
