// bf16 as its 16 bits. Conversion only, no arithmetic.
#pragma once

#include <bit>
#include <cstdint>

namespace samebits::oracle {

inline float bf16_to_fp32(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// Round to nearest, ties to even; overflow becomes Inf. NaN becomes 0x7fff, the bf16 form of the one NaN of the
// contract (0x7fffffff), so that no rounding can turn a NaN into an Inf.
inline std::uint16_t fp32_to_bf16(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return 0x7fffu;
  return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

// The contract's NaN is 0x7fffffff; a bf16 NaN widens to that as well.
inline float round_to_bf16(float value) {
  const std::uint16_t bits = fp32_to_bf16(value);
  return bits == 0x7fffu ? std::bit_cast<float>(0x7fffffffu) : bf16_to_fp32(bits);
}

}  // namespace samebits::oracle
