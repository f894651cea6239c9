#include "oracle/spec/codec.h"

#include <charconv>
#include <cmath>

namespace samebits::oracle::yaml {
namespace {

bool is_plain_scalar(const YamlNode& node) {
  return node.kind == NodeKind::kScalar && !node.quoted;
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// from_chars reads "inf", "nan" and hexadecimal too; YAML numbers here are decimal digits, a point and an exponent.
bool looks_decimal(std::string_view text) {
  return text.find_first_not_of("0123456789.eE+-") == std::string_view::npos &&
         text.find_first_of("0123456789") != std::string_view::npos;
}

}  // namespace

std::string Integer::allowed() const {
  if (least == greatest) return std::to_string(least);
  return "integer " + std::to_string(least) + " .. " + std::to_string(greatest);
}

std::optional<std::int64_t> Integer::decode(const YamlNode& node) const {
  if (!is_plain_scalar(node)) return std::nullopt;
  std::string_view digits = node.text;
  if (!digits.empty() && digits[0] == '-') digits.remove_prefix(1);
  // A leading zero means octal to some readers and decimal to others.
  if (digits.empty() || !is_digit(digits[0]) || (digits[0] == '0' && digits.size() > 1)) return std::nullopt;
  std::int64_t value = 0;
  const char* end = node.text.data() + node.text.size();
  const auto [stop, error] = std::from_chars(node.text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

std::optional<double> Real::decode(const YamlNode& node) const {
  if (!is_plain_scalar(node) || !looks_decimal(node.text)) return std::nullopt;
  std::string_view text = node.text;
  if (text[0] == '+') text.remove_prefix(1);
  if (text.empty() || text[0] == '+') return std::nullopt;
  double value = 0.0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

bool Real::valid(double value) const {
  if (!std::isfinite(value) || std::signbit(value)) return false;
  const auto rounded = static_cast<float>(value);
  if (!std::isfinite(rounded)) return false;
  return rounded > 0.0f || (zero_allowed && value == 0.0);
}

std::string Real::encode(double value) const {
  if (std::isnan(value)) return ".nan";
  if (std::isinf(value)) return value > 0 ? ".inf" : "-.inf";
  char buffer[32];
  const auto [end, error] = std::to_chars(buffer, buffer + sizeof buffer, value);  // shortest that reads back
  std::string text(buffer, end);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::optional<bool> Boolean::decode(const YamlNode& node) const {
  if (!is_plain_scalar(node)) return std::nullopt;
  if (node.text == "true") return true;
  if (node.text == "false") return false;
  return std::nullopt;
}

std::optional<std::string> Text::decode(const YamlNode& node) const {
  if (node.kind != NodeKind::kScalar) return std::nullopt;
  return node.text;
}

std::optional<std::string> Name::decode(const YamlNode& node) const {
  return Text().decode(node);
}

bool Name::valid(const std::string& value) const {
  constexpr const char* kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  const bool empty_or_hidden_or_option = value.empty() || value[0] == '.' || value[0] == '-';
  return !empty_or_hidden_or_option && value.size() <= 100 && value.find_first_not_of(kAllowed) == std::string::npos;
}

std::optional<TextMap::Map> TextMap::decode(const YamlNode& node) const {
  if (node.kind != NodeKind::kMap) return std::nullopt;
  Map map;
  for (std::size_t i = 0; i < node.keys.size(); ++i) {
    if (node.values[i].kind != NodeKind::kScalar) return std::nullopt;
    map.emplace(node.keys[i].text, node.values[i].text);
  }
  return map;
}

std::string TextMap::encode(const Map& map) const {
  std::string text;
  for (const auto& [key, value] : map) {
    text += (text.empty() ? "" : ", ") + scalar_text(key) + ": " + scalar_text(value);
  }
  return "{" + text + "}";
}

}  // namespace samebits::oracle::yaml
