// fp32 and bf16 on the device: the single operations of the contract, its one NaN, and rounding to bf16.
#pragma once

#include <cstdint>

namespace samebits::cuda {

inline constexpr std::uint32_t kNaNBits = 0x7fffffffu;  // the one NaN that the contract knows, in fp32 ...
inline constexpr std::uint16_t kBf16NaN = 0x7fff;       // ... and in bf16
inline constexpr std::uint32_t kSignBit = 0x80000000u;
inline constexpr std::uint32_t kInfBits = 0x7f800000u;
inline constexpr std::uint32_t kMaxFloatBits = 0x7f7fffffu;

// Round to nearest even, never contracted, subnormals kept; a NaN result has the bits above.
__device__ __forceinline__ float fadd(float a, float b) {
  return __fadd_rn(a, b);
}
__device__ __forceinline__ float fsub(float a, float b) {
  return __fsub_rn(a, b);
}
__device__ __forceinline__ float fmul(float a, float b) {
  return __fmul_rn(a, b);
}
__device__ __forceinline__ float ffma(float a, float b, float c) {
  return __fmaf_rn(a, b, c);
}
__device__ __forceinline__ float fdiv(float a, float b) {
  return __fdiv_rn(a, b);
}
__device__ __forceinline__ float fsqrt(float a) {
  return __fsqrt_rn(a);
}

__device__ __forceinline__ std::uint32_t to_bits(float x) {
  return __float_as_uint(x);
}
__device__ __forceinline__ float from_bits(std::uint32_t bits) {
  return __uint_as_float(bits);
}
__device__ __forceinline__ float infinity() {
  return from_bits(kInfBits);
}
__device__ __forceinline__ float magnitude(float x) {
  return from_bits(to_bits(x) & ~kSignBit);
}
__device__ __forceinline__ bool is_nan(float x) {
  return x != x;
}
__device__ __forceinline__ bool is_finite(float x) {
  return (to_bits(x) & kInfBits) != kInfBits;
}
__device__ __forceinline__ float canonical(float x) {
  return is_nan(x) ? from_bits(kNaNBits) : x;
}

__device__ __forceinline__ float bf16_to_float(std::uint16_t bits) {
  return canonical(from_bits(static_cast<std::uint32_t>(bits) << 16));
}
__device__ __forceinline__ std::uint16_t float_to_bf16(float x) {
  const std::uint32_t bits = to_bits(x);
  return is_nan(x) ? kBf16NaN : static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}
__device__ __forceinline__ float round_to_bf16(float x) {
  return bf16_to_float(float_to_bf16(x));
}

}  // namespace samebits::cuda
