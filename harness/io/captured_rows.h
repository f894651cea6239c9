// Rows that an engine wrote down, to make cases of.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "harness/io/safetensors.h"
#include "oracle/spec/router_spec.h"
#include "properties/case.h"

namespace samebits::harness {

class CapturedRows {
 public:
  static constexpr const char* kHazard = "captured_rows";  // label of its cases

  // A safetensors file with hidden_states [N, H] BF16, and those constants of the layer that it has, shaped as in a
  // case (tensor_text.h): gate_weight, input_scale_vector, linear_bias, selection_bias, per_expert_scale, global_scale.
  // Throws FileError for any other tensor, and where one does not fit the spec.
  CapturedRows(const std::filesystem::path& path, const oracle::RouterSpec& spec);

  // Rows of the file and its constants instead of generated ones, under the hazard kHazard. Which rows, and in
  // what order, follows from the data key: every one may come after any other. False, and nothing is changed: the case
  // has other sizes than the spec, or starts from logits.
  bool put_into(properties::Case& c) const;

 private:
  std::int64_t num_rows_, num_experts_, top_k_, gate_rows_, hidden_size_;
  SafeTensor hidden_states_;
  std::map<std::string, SafeTensor> constants_;
};

}  // namespace samebits::harness
