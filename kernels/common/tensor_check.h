// Checks of the tensors of a call.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>

#include "samebits/samebits.h"

namespace samebits {

// Throws Error (name, value found, values allowed) unless the tensor is [rows, cols], has one of the dtypes, a stride
// that keeps its rows apart and the whole in memory, and a base aligned to its elements. data may be null only when
// there are no elements.
void check_tensor(const samebits_tensor& tensor, const char* name, std::int64_t rows, std::int64_t cols,
                  std::initializer_list<std::int32_t> dtypes);

// Element `index` of an INT32 or INT64 tensor.
std::int64_t element(const samebits_tensor& tensor, std::int64_t index);

}  // namespace samebits
