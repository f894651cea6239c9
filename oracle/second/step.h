// One step of a Hopper tensor core on bf16 operands, in exact integer arithmetic.
#pragma once

#include <cstdint>
#include <span>

namespace samebits::second {

inline constexpr std::size_t kStepProducts = 16;

// c' = STEP(c, a, b) for at most 16 products; absent ones are 0 * 0. NaN results are 0x7fffffff.
float step(float c, std::span<const std::uint16_t> a, std::span<const std::uint16_t> b);

// Steps over any length, from +0.
float chain(std::span<const std::uint16_t> a, std::span<const std::uint16_t> b);

}  // namespace samebits::second
