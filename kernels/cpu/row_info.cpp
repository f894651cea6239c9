#include "kernels/cpu/row_info.h"

#include "kernels/cpu/error.h"
#include "kernels/cpu/tensor_check.h"

namespace samebits::cpu {

void check_row_tensors(const samebits_router_spec& spec, const samebits_inputs& inputs) {
  const std::int64_t num_tokens = inputs.num_tokens;
  if (inputs.token_ids.data != nullptr) {
    check_tensor(inputs.token_ids, "token_ids", 1, num_tokens, {SAMEBITS_INT32, SAMEBITS_INT64});
  } else if (spec.selection_method == SAMEBITS_SELECT_HASH_TABLE && num_tokens > 0) {
    fail_invalid("token_ids: absent, allowed [1, " + std::to_string(num_tokens) +
                 "] with selection_method 2 (hash_table)");
  }
  if (inputs.row_class.data != nullptr) {
    check_tensor(inputs.row_class, "row_class", 1, num_tokens, {SAMEBITS_INT32});
  }
}

RowInfo row_info(const samebits_router_spec& spec, const samebits_inputs& inputs, std::int64_t row) {
  RowInfo info;
  if (spec.selection_bias_dtype != SAMEBITS_DTYPE_NONE && inputs.row_class.data != nullptr) {
    info.row_class = element(inputs.row_class, row);
  }
  if (spec.selection_method == SAMEBITS_SELECT_HASH_TABLE) info.token_id = element(inputs.token_ids, row);
  return info;
}

bool has_answer(const samebits_router_spec& spec, const RowInfo& row) {
  const bool has_bias = spec.selection_bias_dtype != SAMEBITS_DTYPE_NONE;
  if (has_bias && (row.row_class < 0 || row.row_class >= spec.num_bias_variants)) return false;
  const bool has_table = spec.selection_method == SAMEBITS_SELECT_HASH_TABLE;
  return !has_table || (row.token_id >= 0 && row.token_id < spec.hash_vocab_size);
}

}  // namespace samebits::cpu
