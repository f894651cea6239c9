#include "harness/io/spec_library.h"

#include <fmt/format.h>

#include "harness/io/nearest.h"

namespace samebits::harness {

oracle::SpecFile load_spec(const std::string& name_or_path) {
  const bool is_path =
      name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".yaml") || name_or_path.ends_with(".yml");
  if (is_path) return oracle::read_spec_file(name_or_path);
  std::vector<std::string> names;
  for (const BuiltinSpec& spec : builtin_specs()) {
    if (spec.name == name_or_path) return oracle::parse_spec(std::string(spec.yaml), name_or_path);
    names.emplace_back(spec.name);
  }
  throw oracle::SpecError(
      fmt::format("spec \"{}\": no such built-in spec; {} (a file is given by a path with '/' or "
                  "ending in .yaml; `samebits list specs` shows all)",
                  name_or_path, suggest_names(name_or_path, names)));
}

}  // namespace samebits::harness
