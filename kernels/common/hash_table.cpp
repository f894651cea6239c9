#include "kernels/common/hash_table.h"

#include "kernels/common/error.h"
#include "kernels/common/sizes.h"
#include "kernels/common/tensor_check.h"

namespace samebits {
namespace {

std::string place(std::int64_t row, std::int64_t column) {
  return "row " + std::to_string(row) + ", column " + std::to_string(column);
}

}  // namespace

std::vector<std::int32_t> read_hash_table(const samebits_router_spec& spec, const samebits_tensor& table) {
  check_tensor(table, "hash_table", spec.hash_vocab_size, spec.top_k, {SAMEBITS_INT32, SAMEBITS_INT64});
  const std::int64_t num_ranked = ranked_experts(spec);
  std::vector<std::int32_t> ids;
  ids.reserve(static_cast<std::size_t>(table.rows * table.cols));
  std::vector<std::int64_t> last_row(static_cast<std::size_t>(num_ranked), -1);  // that had the id
  for (std::int64_t row = 0; row < table.rows; ++row) {
    for (std::int64_t column = 0; column < table.cols; ++column) {
      const std::int64_t id = element(table, row * table.row_stride + column);
      if (id < 0 || id >= num_ranked) {
        fail_invalid("hash_table: found id " + std::to_string(id) + " in " + place(row, column) + ", allowed 0 to " +
                     std::to_string(num_ranked - 1));
      }
      std::int64_t& seen = last_row[static_cast<std::size_t>(id)];
      if (seen == row) {
        fail_invalid("hash_table: found id " + std::to_string(id) + " a second time in " + place(row, column) +
                     ", allowed distinct ids in a row");
      }
      seen = row;
      ids.push_back(static_cast<std::int32_t>(id));
    }
  }
  return ids;
}

}  // namespace samebits
