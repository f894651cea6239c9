// Specs and hashes for the tests of generation and shrinking.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "oracle/spec/spec_yaml.h"
#include "oracle/spec/validate.h"
#include "properties/generate.h"

namespace samebits::properties {

inline oracle::RouterSpec model(const std::string& name, std::optional<std::string> variant = std::nullopt) {
  const auto path = std::filesystem::path(SAMEBITS_FIXTURES_DIR) / "models" / (name + ".yaml");
  return oracle::resolve(oracle::read_spec_file(path), {std::move(variant), std::nullopt, {}});
}

// Every spec of the fixtures that can be run, its layers and variants, in name order; H = 4096 where a spec does not
// know its own.
inline std::vector<oracle::RouterSpec> all_models() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(SAMEBITS_FIXTURES_DIR) / "models")) {
    if (entry.path().extension() == ".yaml") paths.push_back(entry.path());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<oracle::RouterSpec> specs;
  const auto add = [&](const oracle::SpecFile& file, const oracle::Resolution& resolution) {
    oracle::RouterSpec spec = oracle::resolve(file, resolution);
    if (!spec.shape.hidden_size) spec.shape.hidden_size = 4096;
    if (!oracle::unsupported_reason(spec)) specs.push_back(std::move(spec));
  };
  for (const auto& path : paths) {
    const oracle::SpecFile file = oracle::read_spec_file(path);
    add(file, {});
    for (const oracle::LayerOverride& layers : file.layer_overrides) {
      add(file, {.layer = layers.layers.empty() ? layers.name : std::to_string(layers.layers.front())});
    }
    for (const auto& variant : file.variants) add(file, {.variant = variant.first});
  }
  return specs;
}

// The directed case of a hazard; fails the test when the spec has none.
inline Case directed_case(const oracle::RouterSpec& spec, const std::string& hazard, std::uint64_t seed = 1,
                          const GenerateOptions& options = {}) {
  const auto count = static_cast<std::uint64_t>(directed_cases(spec, options));
  for (std::uint64_t i = 0; i < count; ++i) {
    Case c = generate_case(spec.name, "", spec, seed, i, options);
    if (c.description.hazard == hazard) return c;
  }
  throw std::runtime_error(spec.name + " has no directed case " + hazard);
}

// FNV-1a over the bytes of all tensors.
inline std::uint64_t hash_of(const oracle::RouterInputs& inputs) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&](const auto& values) {
    for (const auto& value : values) {
      std::uint32_t bits = 0;
      if constexpr (sizeof(value) == 2) {
        bits = value;
      } else if constexpr (sizeof(value) == 8) {
        bits = static_cast<std::uint32_t>(value);
      } else {
        bits = std::bit_cast<std::uint32_t>(value);
      }
      for (int shift = 0; shift < 32; shift += 8) hash = (hash ^ ((bits >> shift) & 0xff)) * 0x100000001b3u;
    }
  };
  add(inputs.hidden_states);
  add(inputs.gate_weight_bf16);
  add(inputs.gate_weight_fp32);
  add(inputs.linear_bias);
  add(inputs.selection_bias);
  add(inputs.router_logits);
  add(inputs.input_scale_vector);
  add(inputs.per_expert_scale);
  add(inputs.global_scale);
  add(inputs.hash_table);
  add(inputs.token_ids);
  add(inputs.row_class);
  return hash;
}

}  // namespace samebits::properties
