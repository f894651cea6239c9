// The description of a case as YAML: only fields that differ from their defaults, sizes always.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "harness/io/yaml_mapping.h"
#include "oracle/spec/router_spec.h"
#include "properties/case.h"

namespace samebits::harness {

// Elements of one tensor that a case may have.
inline constexpr std::int64_t kMaxElements = std::int64_t{1} << 31;

// Lines "  field: value". Groups are written where they differ from those of `spec`; explicit data is not written.
std::string description_yaml(const properties::CaseDescription& description, const oracle::RouterSpec& spec);

// Sizes and stage that the mapping does not give are those of `data`, or else of `spec` (num_tokens: 1); those that it
// gives must agree with `data`, which becomes the description's.
properties::CaseDescription description_from_yaml(const YamlMapping& mapping, const oracle::RouterSpec& spec,
                                                  std::optional<oracle::RouterInputs> data);
// Field names of the mapping.
const std::vector<std::string>& description_fields();

// What the tensors of a generated case are drawn from: "hidden normal", "selection_bias uniform", "stage full". Those
// that the spec asks for, and none of a case with explicit tensors.
std::vector<std::string> description_families(const properties::CaseDescription& description,
                                              const oracle::RouterSpec& spec);

// Words of a stage and of tensors, for reports.
const char* to_text(properties::Stage stage);
const char* to_text(properties::TensorId tensor);

}  // namespace samebits::harness
