#include "kernels/cpu/row_info.h"

#include "kernels/common/tensor_check.h"

namespace samebits::cpu {

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
