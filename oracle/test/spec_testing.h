// Helpers of the spec tests.
#pragma once

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "oracle/spec/spec_yaml.h"

namespace samebits::oracle {

inline const std::string kMinimal = "name: r\nshape:\n  num_experts: 8\n  top_k: 2\n";

// The message of the SpecError that parsing gives; "" when there is none.
inline std::string parse_error(const std::string& yaml) {
  try {
    parse_spec(yaml, "f.yaml");
  } catch (const SpecError& error) {
    return error.what();
  }
  return "";
}

inline std::string resolve_error(const SpecFile& file, const Resolution& resolution) {
  try {
    resolve(file, resolution);
  } catch (const SpecError& error) {
    return error.what();
  }
  return "";
}

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  std::ostringstream text;
  text << stream.rdbuf();
  return text.str();
}

inline std::filesystem::path fixture(const std::string& name) {
  return std::filesystem::path(SAMEBITS_FIXTURES_DIR) / "models" / (name + ".yaml");
}

// All built-in spec files in name order.
inline std::vector<std::filesystem::path> fixtures() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(fixture("").parent_path())) {
    if (entry.path().extension() == ".yaml") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace samebits::oracle
