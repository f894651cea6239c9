#include "oracle/second/row.h"

namespace samebits::second {

Row row_of(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t row) {
  const auto at = static_cast<std::size_t>(row);
  const auto experts = static_cast<std::size_t>(oracle::ranked_experts(spec));
  const auto k = static_cast<std::size_t>(oracle::top_k(spec));
  Row result;
  if (spec.selection.bias != oracle::BiasType::kNone) {
    const std::int64_t row_class = inputs.row_class.empty() ? 0 : inputs.row_class[at];
    if (row_class < 0 || row_class >= static_cast<std::int64_t>(spec.selection.bias_variants.size())) {
      result.has_answer = false;
    } else {
      result.selection_bias =
          std::span(inputs.selection_bias).subspan(static_cast<std::size_t>(row_class) * experts, experts);
    }
  }
  if (spec.selection.method == oracle::SelectionMethod::kHashTable) {
    const std::int64_t token = inputs.token_ids[at];
    if (token < 0 || token >= spec.hash.vocab_size.value()) {
      result.has_answer = false;
    } else {
      result.table_ids = std::span(inputs.hash_table).subspan(static_cast<std::size_t>(token) * k, k);
    }
  }
  if (spec.weights.per_expert_scale) result.per_expert_scale = inputs.per_expert_scale;
  if (spec.weights.global_scale) result.global_scale = inputs.global_scale[0];
  return result;
}

}  // namespace samebits::second
