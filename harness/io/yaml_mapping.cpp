#include "harness/io/yaml_mapping.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "harness/io/float_text.h"
#include "harness/io/nearest.h"

namespace samebits::harness {
namespace {

std::string describe(const YAML::Node& node) {
  switch (node.Type()) {
    case YAML::NodeType::Scalar: {
      std::string text = node.Scalar();
      if (text.size() > 60) text = text.substr(0, 57) + "...";
      return fmt::format("\"{}\"", text);
    }
    case YAML::NodeType::Sequence:
      return "a list";
    case YAML::NodeType::Map:
      return "a mapping";
    default:
      return "nothing";
  }
}

}  // namespace

void fail_at(const std::string& file, const YAML::Mark& mark, const std::string& field, const std::string& what) {
  if (mark.is_null()) throw FileError(fmt::format("{}: {}: {}", file, field, what));
  throw FileError(fmt::format("{}:{}:{}: {}: {}", file, mark.line + 1, mark.column + 1, field, what));
}

void YamlValue::wrong(const std::string& allowed) const {
  fail(fmt::format("found {}; allowed: {}", describe(node), allowed));
}

const std::string& YamlValue::scalar(const std::string& allowed) const {
  if (!node.IsScalar()) wrong(allowed);
  return node.Scalar();
}

std::int64_t YamlValue::integer(std::int64_t least, std::int64_t most) const {
  const std::string allowed = fmt::format("an integer from {} to {}", least, most);
  const std::string& text = scalar(allowed);
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least || number > most) wrong(allowed);
  return number;
}

std::uint64_t YamlValue::unsigned_integer() const {
  const std::string allowed = "an integer from 0 to 18446744073709551615, or 0x and 16 digits";
  const std::string& text = scalar(allowed);
  if (const auto bits = parse_hex(text, 16)) return *bits;
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) wrong(allowed);
  return number;
}

double YamlValue::real() const {
  const std::string& text = scalar("a finite number");
  double number = 0.0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(number)) wrong("a finite number");
  return number;
}

bool YamlValue::boolean() const {
  const std::string& text = scalar("true, false");
  if (text != "true" && text != "false") wrong("true, false");
  return text == "true";
}

std::vector<YamlValue> YamlValue::items() const {
  if (!node.IsSequence()) wrong("a list");
  std::vector<YamlValue> result;
  result.reserve(node.size());
  std::size_t index = 0;
  for (const YAML::Node& item : node) result.push_back({file, fmt::format("{}[{}]", field, index++), item});
  return result;
}

std::vector<std::int64_t> YamlValue::integers(std::int64_t least, std::int64_t most) const {
  std::vector<std::int64_t> result;
  for (const YamlValue& item : items()) result.push_back(item.integer(least, most));
  return result;
}

YamlMapping::YamlMapping(YamlValue value, std::vector<std::string> allowed) : value_(std::move(value)) {
  if (!value_.node.IsMap()) value_.wrong(fmt::format("a mapping with {}", fmt::join(allowed, ", ")));
  std::set<std::string> seen;
  for (const auto& entry : value_.node) {
    const YamlValue key{value_.file, value_.field.empty() ? "the file" : value_.field, entry.first};
    const std::string& name = key.scalar("text keys");
    if (std::find(allowed.begin(), allowed.end(), name) == allowed.end()) {
      key.fail(fmt::format("unknown field \"{}\"; {}", name.substr(0, 60), suggest_names(name, allowed)));
    }
    if (!seen.insert(name).second) key.fail(fmt::format("field \"{}\" twice; allowed is once", name));
  }
}

YamlValue YamlMapping::at(const std::string& key) const {
  const YAML::Node node = value_.node[key];
  if (!node) value_.fail(fmt::format("field \"{}\" is missing", key));
  return {value_.file, value_.field.empty() ? key : value_.field + "." + key, node};
}

YamlValue parse_yaml(const std::string& text, const std::string& file) {
  return with_yaml_errors(file, [&] { return YamlValue{file, "", YAML::Load(text)}; });
}

std::string yaml_string(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      quoted += fmt::format("\\x{:02x}", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

}  // namespace samebits::harness
