// Reproducible test data: values depend on (seed, index) alone.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

namespace samebits::cpu::test {

inline std::uint64_t mix(std::uint64_t z) {  // SplitMix64
  z += 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

inline std::uint64_t draw(std::uint64_t seed, std::uint64_t index) {
  return mix(mix(seed) + index);
}

// Sum of 4 uniforms, mean 0, variance 1: near enough to normal for test data.
inline float draw_normal(std::uint64_t seed, std::uint64_t index) {
  const std::uint64_t bits = draw(seed, index);
  double sum = 0;
  for (int i = 0; i < 4; ++i) sum += static_cast<double>((bits >> (16 * i)) & 0xffff) / 65536.0 - 0.5;
  return static_cast<float>(sum * std::sqrt(3.0));
}

inline std::uint16_t upper_half(float x) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
}

inline std::vector<std::uint16_t> normal_bf16(std::uint64_t seed, std::int64_t n, float sigma = 1.0f) {
  std::vector<std::uint16_t> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = upper_half(sigma * draw_normal(seed, i));
  return values;
}

inline std::vector<float> normal_fp32(std::uint64_t seed, std::int64_t n, float sigma = 1.0f, float offset = 0.0f) {
  std::vector<float> values(static_cast<std::size_t>(n));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = offset + sigma * draw_normal(seed, i);
  return values;
}

}  // namespace samebits::cpu::test
