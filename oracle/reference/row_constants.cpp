#include "oracle/reference/answer.h"

namespace samebits::oracle {
namespace {

// Row `row` of a matrix of `width` columns; nullopt outside it.
template <class T>
std::optional<std::span<const T>> row_of(const std::vector<T>& matrix, std::int64_t width, std::int64_t row) {
  const std::int64_t rows = width > 0 ? static_cast<std::int64_t>(matrix.size()) / width : 0;
  if (row < 0 || row >= rows) return std::nullopt;
  return std::span<const T>(matrix).subspan(static_cast<std::size_t>(row * width), static_cast<std::size_t>(width));
}

}  // namespace

RowConstants row_constants(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t row) {
  const auto at = static_cast<std::size_t>(row);
  RowConstants constants;
  if (spec.selection.bias != BiasType::kNone) {
    const std::int64_t row_class = inputs.row_class.empty() ? 0 : inputs.row_class.at(at);
    const auto bias = row_of(inputs.selection_bias, ranked_experts(spec), row_class);
    constants.selection_bias = bias.value_or(std::span<const float>());
    constants.routable = bias.has_value();
  }
  if (spec.selection.method == SelectionMethod::kHashTable) {
    const auto ids = row_of(inputs.hash_table, top_k(spec), inputs.token_ids.at(at));
    constants.table_ids = ids.value_or(std::span<const std::int32_t>());
    constants.routable = constants.routable && ids.has_value();
  }
  if (spec.weights.per_expert_scale) constants.per_expert_scale = inputs.per_expert_scale;
  if (spec.weights.global_scale) constants.global_scale = inputs.global_scale.at(0);
  return constants;
}

}  // namespace samebits::oracle
