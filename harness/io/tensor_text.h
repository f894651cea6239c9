// The tensors of a case: as safetensors, and as readable YAML where they are small.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/io/safetensors.h"
#include "harness/io/yaml_mapping.h"
#include "oracle/tensors/router_inputs.h"

namespace samebits::harness {

// The tensors that are present, in the order of the pipeline: hidden_states [T, H] BF16, gate_weight [E, H] BF16 or
// F32, linear_bias [E], selection_bias [E], router_logits [T, E] F32.
std::vector<std::pair<std::string, SafeTensor>> to_tensors(const oracle::RouterInputs& inputs);
// The inverse; std::invalid_argument when the tensors do not fit together (num_valid_rows is not a tensor).
oracle::RouterInputs from_tensors(const std::map<std::string, SafeTensor>& tensors);

// Small enough to be read by a person: at most 64 elements, or at most 64 that are not +0.
bool is_small(const SafeTensor& tensor);
// The body of a tensor's mapping, each line indented by `indent`: dtype, shape, and values or nonzero.
std::string tensor_yaml(const SafeTensor& tensor, const std::string& indent);
// The inverse. `nonzero` lists [row, column, value], for a vector [position, value].
SafeTensor tensor_from_yaml(const YamlMapping& mapping);

// Element as text: exact to the bit. Only BF16 and F32.
std::string element_text(const SafeTensor& tensor, std::int64_t index);
bool element_is_zero(const SafeTensor& tensor, std::int64_t index);  // all bits zero
std::int64_t num_elements(const SafeTensor& tensor);

}  // namespace samebits::harness
