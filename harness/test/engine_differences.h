// fixtures/engines.yaml: pairs of routers that answer a case differently.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstdint>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "harness/io/case_file.h"
#include "harness/io/spec_library.h"
#include "oracle/spec/spec_yaml.h"

namespace samebits::harness {

struct EngineDifference {
  std::int64_t number = 0;              // in docs/engines.md
  std::string case_name;                // in fixtures/cases
  std::string spec, variant;            // published, where it is one
  std::vector<oracle::Assignment> set;  // the other side, from the spec of the case; empty: `reported`
  std::vector<ExpectedRow> reported;
  bool other_experts = false;  // differs: set; else the weights alone
};

inline std::vector<oracle::Assignment> variant_assignments(const std::string& spec, const std::string& variant) {
  for (const auto& [name, set] : load_spec(spec).variants) {
    if (name == variant) return set;
  }
  throw std::runtime_error(spec + " has no variant " + variant);
}

inline EngineDifference engine_difference(const YAML::Node& node) {
  EngineDifference difference;
  difference.number = node["number"].as<std::int64_t>();
  difference.case_name = node["case"].as<std::string>();
  const auto differs = node["differs"].as<std::string>();
  if (differs != "set" && differs != "weights") throw std::runtime_error("differs: " + differs);
  difference.other_experts = differs == "set";
  if (node["variant"]) {
    const auto words = node["variant"].as<std::string>();
    const std::size_t space = words.find(' ');
    difference.spec = words.substr(0, space);
    difference.variant = words.substr(space + 1);
    difference.set = variant_assignments(difference.spec, difference.variant);
  }
  for (const auto& entry : node["set"]) {
    difference.set.push_back({entry.first.as<std::string>(), entry.second.as<std::string>()});
  }
  for (const auto& row : node["reported"]) {
    difference.reported.push_back({row["row"].as<std::int64_t>(), row["topk_ids"].as<std::vector<std::int64_t>>(),
                                   row["topk_weights"].as<std::vector<double>>()});
  }
  if (difference.set.empty() == difference.reported.empty()) {
    throw std::runtime_error(difference.case_name + ": one of variant, set and reported");
  }
  return difference;
}

inline std::vector<EngineDifference> read_engine_differences() {
  const auto path = std::filesystem::path(SAMEBITS_FIXTURES_DIR) / "engines.yaml";
  std::vector<EngineDifference> differences;
  for (const YAML::Node& node : YAML::LoadFile(path.string())["differences"]) {
    differences.push_back(engine_difference(node));
  }
  return differences;
}

}  // namespace samebits::harness
