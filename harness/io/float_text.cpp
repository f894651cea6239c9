#include "harness/io/float_text.h"

#include <fmt/format.h>

#include <bit>
#include <charconv>
#include <cmath>
#include <limits>

#include "oracle/tensors/bf16.h"

namespace samebits::harness {

std::string fp32_text(float value) {
  if (std::isnan(value)) return fmt::format("0x{:08x}", std::bit_cast<std::uint32_t>(value));
  if (std::isinf(value)) return value > 0 ? ".inf" : "-.inf";
  if (value == 0.0f) return std::signbit(value) ? "-0.0" : "0";
  return fmt::format("{}", value);
}

std::string bf16_text(std::uint16_t bits) {
  if ((bits & 0x7fffu) > 0x7f80u) return fmt::format("0x{:04x}", bits);
  return fp32_text(oracle::bf16_to_fp32(bits));
}

std::optional<std::uint64_t> parse_hex(std::string_view text, std::size_t digits) {
  if (text.size() != digits + 2 || text[0] != '0' || (text[1] != 'x' && text[1] != 'X')) return std::nullopt;
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data() + 2, text.data() + text.size(), value, 16);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<float> parse_fp32(std::string_view text) {
  if (const auto bits = parse_hex(text, 8)) return std::bit_cast<float>(static_cast<std::uint32_t>(*bits));
  if (text == ".inf" || text == "+.inf") return std::numeric_limits<float>::infinity();
  if (text == "-.inf") return -std::numeric_limits<float>::infinity();
  if (text == ".nan") return std::bit_cast<float>(0x7fc00000u);
  if (text.find_first_not_of("0123456789+-.eE") != std::string_view::npos) return std::nullopt;
  if (!text.empty() && text.front() == '+') text.remove_prefix(1);
  float value = 0.0f;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::uint16_t> parse_bf16(std::string_view text) {
  if (const auto bits = parse_hex(text, 4)) return static_cast<std::uint16_t>(*bits);
  if (parse_hex(text, 8)) return std::nullopt;
  const std::optional<float> value = parse_fp32(text);
  if (!value) return std::nullopt;
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(*value);
  if ((bits & 0xffffu) != 0) return std::nullopt;
  return static_cast<std::uint16_t>(bits >> 16);
}

}  // namespace samebits::harness
