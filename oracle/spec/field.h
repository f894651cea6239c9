// The schema: one table of fields, which drives reading, assigning, checking, writing and comparing.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "oracle/spec/router_spec.h"
#include "oracle/spec/yaml_node.h"

namespace samebits::oracle::yaml {

struct Field {
  std::string path;     // "selection.bias"
  std::string allowed;  // as text
  bool required = false;
  // read: false when the node is not an allowed value; the spec is then unchanged.
  std::function<bool(RouterSpec&, const YamlNode&)> read;
  std::function<bool(const RouterSpec&)> valid;
  std::function<std::string(const RouterSpec&)> write;  // one line of YAML

  // The part before the point; "" for a field of the file itself (name, sources, ...).
  std::string section() const;
  // Variants, layer overrides and --set change what is computed, not what the file says about itself.
  bool can_be_overlaid() const;
};

const std::vector<Field>& fields();
const Field* find_field(std::string_view path);  // nullptr: unknown
std::vector<std::string> section_names();        // "shape", "gate", ...
std::vector<std::string> field_paths();

}  // namespace samebits::oracle::yaml
