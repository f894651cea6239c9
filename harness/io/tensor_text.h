// The tensors of a case: as safetensors, and as readable YAML where they are small.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "harness/io/safetensors.h"
#include "harness/io/yaml_mapping.h"
#include "oracle/spec/router_spec.h"
#include "oracle/tensors/router_inputs.h"

namespace samebits::harness {

// Names of all tensors of a case, in the order of the pipeline.
const std::vector<std::string>& tensor_names();
// [R]; [variants, R] where the spec has several bias variants.
std::vector<std::int64_t> selection_bias_shape(const oracle::RouterSpec& spec);
// The tensors that are present, in that order: hidden_states [T, H] BF16 and gate_weight [G, H] BF16 or F32, or
// router_logits [T, G] F32; input_scale_vector [H], linear_bias [G], selection_bias (see above), per_expert_scale [G],
// global_scale [1] F32; hash_table [vocab_size, k] I32; token_ids [T] I32 or I64; row_class [T] I32. The spec has the
// shape of the case.
std::vector<std::pair<std::string, SafeTensor>> to_tensors(const oracle::RouterSpec& spec,
                                                           const oracle::RouterInputs& inputs);
// The inverse; std::invalid_argument when the tensors do not fit together (num_valid_rows is not a tensor). What the
// spec wants of them is not asked here.
oracle::RouterInputs from_tensors(const std::map<std::string, SafeTensor>& tensors);

// Small enough to be read by a person: at most 64 elements, or at most 64 that are not +0.
bool is_small(const SafeTensor& tensor);
// The body of a tensor's mapping, each line indented by `indent`: dtype, shape, and values or nonzero.
std::string tensor_yaml(const SafeTensor& tensor, const std::string& indent);
// The inverse. `nonzero` lists [row, column, value], for a vector [position, value].
SafeTensor tensor_from_yaml(const YamlMapping& mapping);

// Element as text: exact to the bit. Only BF16, F32, I32 and I64.
std::string element_text(const SafeTensor& tensor, std::int64_t index);
bool element_is_zero(const SafeTensor& tensor, std::int64_t index);  // all bits zero
std::int64_t num_elements(const SafeTensor& tensor);

}  // namespace samebits::harness
