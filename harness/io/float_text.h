// Floats as text, exact to the bit: shortest decimal that reads back to the same bits; NaN as its bits in hexadecimal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace samebits::harness {

std::string fp32_text(float value);         // "8.03", "-0.0", ".inf", "-.inf", "0x7fffffff"
std::string bf16_text(std::uint16_t bits);  // the same, NaN with four digits: "0x7fff"

// Decimal (nearest fp32), .inf, -.inf, .nan (0x7fc00000) or 0x and eight digits. nullopt: not a number, or a decimal
// that overflows or underflows to nothing.
std::optional<float> parse_fp32(std::string_view text);
// As parse_fp32, with 0x and four digits; a decimal must be a bf16 value exactly.
std::optional<std::uint16_t> parse_bf16(std::string_view text);

inline constexpr std::string_view kFp32Allowed =
    "a decimal in the range of fp32, .inf, -.inf, .nan, or 0x and 8 digits (bits)";
inline constexpr std::string_view kBf16Allowed =
    "a decimal that is a bf16 value exactly, .inf, -.inf, .nan, or 0x and 4 digits (bits)";

// 0x and exactly `digits` hexadecimal digits.
std::optional<std::uint64_t> parse_hex(std::string_view text, std::size_t digits);

}  // namespace samebits::harness
