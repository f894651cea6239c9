#include "kernels/common/tensor_check.h"

#include <algorithm>
#include <cstdint>

#include "kernels/common/error.h"

namespace samebits {
namespace {

std::string dtype_name(std::int32_t dtype) {
  switch (dtype) {
    case SAMEBITS_DTYPE_NONE:
      return "0 (none)";
    case SAMEBITS_FP32:
      return "1 (fp32)";
    case SAMEBITS_BF16:
      return "2 (bf16)";
    case SAMEBITS_INT32:
      return "3 (int32)";
    case SAMEBITS_INT64:
      return "4 (int64)";
    default:
      return std::to_string(dtype);
  }
}

std::uintptr_t element_size(std::int32_t dtype) {
  return dtype == SAMEBITS_BF16 ? 2 : dtype == SAMEBITS_INT64 ? 8 : 4;
}

std::string shape(std::int64_t rows, std::int64_t cols) {
  return "[" + std::to_string(rows) + ", " + std::to_string(cols) + "]";
}

// A tensor whose last byte lies beyond what a pointer difference can hold is in no memory. Divisions instead of
// products: the check itself cannot wrap.
void check_extent(const samebits_tensor& tensor, const std::string& prefix) {
  const std::int64_t most = INT64_MAX / static_cast<std::int64_t>(element_size(tensor.dtype));  // elements
  const std::string reason = ": a tensor has fewer than 2^63 bytes; ";
  const std::int64_t most_rows = most / tensor.cols;
  if (tensor.rows > most_rows) {
    fail_invalid(prefix + "found " + std::to_string(tensor.rows) + " rows of " + std::to_string(tensor.cols) +
                 ", allowed at most " + std::to_string(most_rows) + " rows" + reason + "pass fewer rows at a time");
  }
  if (tensor.rows == 1) return;
  const std::int64_t most_stride = (most - tensor.cols) / (tensor.rows - 1);
  if (tensor.row_stride > most_stride) {
    fail_invalid(prefix + "found row_stride " + std::to_string(tensor.row_stride) + ", allowed at most " +
                 std::to_string(most_stride) + " elements with " + std::to_string(tensor.rows) + " rows" + reason +
                 "count the stride in elements, usually cols");
  }
}

}  // namespace

void check_tensor(const samebits_tensor& tensor, const char* name, std::int64_t rows, std::int64_t cols,
                  std::initializer_list<std::int32_t> dtypes) {
  const std::string prefix = std::string(name) + ": ";
  if (tensor.rows != rows || tensor.cols != cols) {
    fail_invalid(prefix + "found shape " + shape(tensor.rows, tensor.cols) + ", allowed " + shape(rows, cols));
  }
  if (std::find(dtypes.begin(), dtypes.end(), tensor.dtype) == dtypes.end()) {
    std::string list;
    for (const std::int32_t dtype : dtypes) list += (list.empty() ? "" : ", ") + dtype_name(dtype);
    fail_invalid(prefix + "found dtype " + dtype_name(tensor.dtype) + ", allowed " + list);
  }
  if (rows > 1 && tensor.row_stride < cols) {
    fail_invalid(prefix + "found row_stride " + std::to_string(tensor.row_stride) + ", allowed at least cols, " +
                 std::to_string(cols) + " elements");
  }
  if (rows == 0 || cols == 0) return;
  check_extent(tensor, prefix);
  if (tensor.data == nullptr) fail_invalid(prefix + "data is null, allowed " + shape(rows, cols) + " elements");
  if (reinterpret_cast<std::uintptr_t>(tensor.data) % element_size(tensor.dtype) != 0) {
    fail_invalid(prefix + "data is not aligned to its elements of " + std::to_string(element_size(tensor.dtype)) +
                 " bytes");
  }
}

std::int64_t element(const samebits_tensor& tensor, std::int64_t index) {
  return tensor.dtype == SAMEBITS_INT64 ? static_cast<const std::int64_t*>(tensor.data)[index]
                                        : static_cast<const std::int32_t*>(tensor.data)[index];
}

}  // namespace samebits
