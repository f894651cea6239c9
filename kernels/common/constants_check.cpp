#include "kernels/common/constants_check.h"

#include <string>

#include "kernels/common/abi_struct.h"
#include "kernels/common/sizes.h"
#include "kernels/common/tensor_check.h"

namespace samebits {
namespace {

// A tensor must be there exactly when the spec asks for it. `unless` says what the spec has where it does not.
void check_wanted(const samebits_tensor& tensor, const char* name, bool wanted, const char* unless, std::int64_t rows,
                  std::int64_t cols) {
  if (wanted) return check_tensor(tensor, name, rows, cols, {SAMEBITS_FP32});
  if (tensor.data != nullptr)
    fail_invalid(std::string(name) + ": given, but " + unless + "; leave it out or change it");
}

}  // namespace

samebits_constants checked_constants(const samebits_router_spec& spec, const samebits_constants* from,
                                     std::int32_t memory_kinds) {
  const samebits_constants constants = read_struct(from, "constants");
  const bool is_kind = constants.memory == SAMEBITS_MEMORY_HOST || constants.memory == SAMEBITS_MEMORY_DEVICE;
  if (!is_kind || (constants.memory & memory_kinds) == 0) {
    const bool host_only = memory_kinds == SAMEBITS_MEMORY_HOST;
    fail_invalid("constants.memory: found " + std::to_string(constants.memory) + ", allowed 1 (host)" +
                 (host_only ? "" : ", 2 (device)"));
  }
  const std::int64_t num_rows = gate_rows(spec);
  const bool has_gate = constants.gate_weight.data != nullptr;
  if (has_gate) {
    if (spec.hidden_size < 1) fail_invalid("hidden_size: found 0, allowed 1 or more with a gate weight");
    check_tensor(constants.gate_weight, "gate_weight", num_rows, spec.hidden_size, {SAMEBITS_BF16, SAMEBITS_FP32});
  }
  // Given logits are finished: without a gate weight nobody reads the linear bias and the input scale.
  if (has_gate || constants.linear_bias.data != nullptr) {
    check_wanted(constants.linear_bias, "linear_bias", spec.linear_bias_dtype != SAMEBITS_DTYPE_NONE,
                 "linear_bias_dtype of the spec is 0 (none)", 1, num_rows);
  }
  if (has_gate || constants.input_scale_vector.data != nullptr) {
    check_wanted(constants.input_scale_vector, "input_scale_vector", spec.input_scale_vector != 0,
                 "input_scale_vector of the spec is 0 (no)", 1, spec.hidden_size);
  }
  check_wanted(constants.selection_bias, "selection_bias", spec.selection_bias_dtype != SAMEBITS_DTYPE_NONE,
               "selection_bias_dtype of the spec is 0 (none)", spec.num_bias_variants, ranked_experts(spec));
  check_wanted(constants.per_expert_scale, "per_expert_scale", spec.per_expert_scale != 0,
               "per_expert_scale of the spec is 0 (no)", 1, num_rows);
  check_wanted(constants.global_scale, "global_scale", spec.global_scale != 0, "global_scale of the spec is 0 (no)", 1,
               1);
  if (spec.selection_method != SAMEBITS_SELECT_HASH_TABLE && constants.hash_table.data != nullptr) {
    fail_invalid(
        "hash_table: given, but selection_method of the spec is not 2 (hash_table); leave it out or change it");
  }
  return constants;
}

}  // namespace samebits
