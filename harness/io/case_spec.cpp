#include "harness/io/case_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>

#include "harness/io/spec_library.h"
#include "oracle/spec/spec_yaml.h"

namespace samebits::harness {
namespace {

bool is_builtin(const std::string& name) {
  const auto& specs = builtin_specs();
  return std::any_of(specs.begin(), specs.end(), [&](const BuiltinSpec& spec) { return spec.name == name; });
}

oracle::Resolution with_variant(const std::string& variant) {
  oracle::Resolution resolution;
  if (!variant.empty()) resolution.variant = variant;
  return resolution;
}

// True when the name and the variant alone lead back to the spec of the case.
bool name_is_enough(const properties::Case& c) {
  if (!is_builtin(c.spec_name)) return false;
  try {
    const oracle::RouterSpec named = oracle::resolve(load_spec(c.spec_name), with_variant(c.variant));
    return properties::apply_shape(named, c.description) == c.spec;
  } catch (const oracle::SpecError&) {
    return false;
  }
}

std::string indented(const std::string& text) {
  std::istringstream stream(text);
  std::string result;
  for (std::string line; std::getline(stream, line);) result += line.empty() ? "\n" : "  " + line + "\n";
  return result;
}

// The inline spec as a text of its own. A block keeps its lines and columns, so that errors point into the case file.
std::string inline_text(const YamlMapping& root, const YAML::Node& spec, const std::string& text) {
  const int first = spec.Mark().line;
  int key_line = first, last = INT32_MAX;
  for (const auto& entry : root.value().node) {
    const int line = entry.first.Mark().line;
    if (entry.first.Scalar() == "spec") key_line = line;
    if (line > first) last = std::min(last, line);
  }
  if (key_line == first) return YAML::Dump(spec);  // a flow mapping behind the key
  std::istringstream stream(text);
  std::string block;
  int number = 0;
  for (std::string line; std::getline(stream, line) && number < last; ++number) {
    block += number < first ? "\n" : line + "\n";
  }
  return block;
}

}  // namespace

std::string case_spec_yaml(const properties::Case& c, const oracle::RouterSpec& full_spec, const std::string& layer) {
  if (name_is_enough(c)) {
    std::string text = fmt::format("spec: {}\n", yaml_string(c.spec_name));
    if (!c.variant.empty()) text += fmt::format("variant: {}\n", yaml_string(c.variant));
    return text;
  }
  std::string text = fmt::format("origin:\n  spec: {}\n", yaml_string(c.spec_name));
  if (!c.variant.empty()) text += fmt::format("  variant: {}\n", yaml_string(c.variant));
  if (!layer.empty()) text += fmt::format("  layer: {}\n", yaml_string(layer));
  const bool full = properties::apply_shape(full_spec, c.description) == c.spec;
  return text + "spec:\n" + indented(oracle::to_yaml(full ? full_spec : c.spec));
}

CaseSpec case_spec_from_yaml(const YamlMapping& root, const std::string& text, const std::filesystem::path& path) {
  CaseSpec result;
  if (root.has("variant")) result.variant = root.at("variant").text();
  const YamlValue spec = root.at("spec");
  try {
    if (spec.node.IsMap()) {
      const oracle::SpecFile file = oracle::parse_spec(inline_text(root, spec.node, text), path.string());
      result.spec = oracle::resolve(file, with_variant(result.variant));
      result.name = result.spec.name;
      if (root.has("origin")) {
        const YamlMapping origin(root.at("origin"), {"spec", "variant", "layer"});
        result.name = origin.at("spec").text();
        if (origin.has("variant")) result.variant = origin.at("variant").text();
        if (origin.has("layer")) result.layer = origin.at("layer").text();
      }
      return result;
    }
    result.name = spec.scalar("a built-in name, a path relative to this file, or a mapping");
    if (root.has("origin")) root.at("origin").fail("belongs to an inline spec only; leave it out");
    if (is_builtin(result.name)) {
      result.spec = oracle::resolve(load_spec(result.name), with_variant(result.variant));
    } else if (result.name.find('/') == std::string::npos && !result.name.ends_with(".yaml")) {
      load_spec(result.name);  // throws, with the nearest names
    } else {
      result.name = (path.parent_path() / result.name).string();
      result.spec = oracle::resolve(load_spec(result.name), with_variant(result.variant));
    }
    return result;
  } catch (const oracle::SpecError& error) {
    spec.fail(error.what());
  }
}

}  // namespace samebits::harness
