// Strict reading of YAML: every field is known and typed, and every error names file, line, column, field, the value
// found and the values allowed. For sources only: it exposes yaml-cpp.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <string>
#include <vector>

#include "harness/io/safetensors.h"

namespace samebits::harness {

// FILE:LINE:COLUMN: FIELD: what.
[[noreturn]] void fail_at(const std::string& file, const YAML::Mark& mark, const std::string& field,
                          const std::string& what);

// A node with the names that its errors need.
struct YamlValue {
  std::string file;
  std::string field;  // dotted path
  YAML::Node node;

  [[noreturn]] void fail(const std::string& what) const { fail_at(file, node.Mark(), field, what); }
  [[noreturn]] void wrong(const std::string& allowed) const;  // "found X; allowed are ..."

  const std::string& scalar(const std::string& allowed) const;
  std::string text() const { return scalar("text"); }
  std::int64_t integer(std::int64_t least, std::int64_t most) const;
  std::uint64_t unsigned_integer() const;  // decimal, or 0x and 16 digits
  double real() const;                     // finite
  bool boolean() const;
  std::vector<YamlValue> items() const;  // of a list; anything else is an error
  std::vector<std::int64_t> integers(std::int64_t least, std::int64_t most) const;
};

// A mapping whose keys are all in `allowed`, none twice.
class YamlMapping {
 public:
  YamlMapping(YamlValue value, std::vector<std::string> allowed);
  bool has(const std::string& key) const { return static_cast<bool>(value_.node[key]); }
  YamlValue at(const std::string& key) const;  // missing: an error
  const YamlValue& value() const { return value_; }

 private:
  YamlValue value_;
};

// Root of a file's text. Throws FileError for malformed YAML.
YamlValue parse_yaml(const std::string& text, const std::string& file);

// Runs `read`, turning what yaml-cpp throws into FileError.
template <class Function>
auto with_yaml_errors(const std::string& file, Function read) {
  try {
    return read();
  } catch (const YAML::Exception& error) {
    fail_at(file, error.mark, "YAML", error.msg);
  }
}

// `text` as a double-quoted YAML string.
std::string yaml_string(const std::string& text);

}  // namespace samebits::harness
