// The specs that come with the program (compiled in), and spec files.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "oracle/spec/spec_yaml.h"

namespace samebits::harness {

struct BuiltinSpec {
  std::string_view name;  // "glm-5.3-flash"
  std::string_view yaml;
};
const std::vector<BuiltinSpec>& builtin_specs();  // generated at configure time from fixtures/models

// A built-in name, or a path (contains '/' or ends in .yaml). Throws SpecError; an unknown name lists the nearest ones.
oracle::SpecFile load_spec(const std::string& name_or_path);

}  // namespace samebits::harness
