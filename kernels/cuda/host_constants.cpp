#include "kernels/cuda/host_constants.h"

#include <algorithm>
#include <cstddef>

#include "kernels/common/bits.h"
#include "kernels/common/constants_check.h"
#include "kernels/common/hash_table.h"
#include "kernels/common/sizes.h"
#include "kernels/common/tensor_check.h"
#include "kernels/cuda/check.h"
#include "kernels/logits/pack.h"

namespace samebits::cuda {
namespace {

std::size_t element_size(std::int32_t dtype) {
  return dtype == SAMEBITS_BF16 ? 2 : dtype == SAMEBITS_INT64 ? 8 : 4;
}

// A matrix without gaps in host memory.
class HostCopy {
 public:
  explicit HostCopy(const samebits_tensor& from) : tensor_(from) {
    const std::size_t size = element_size(from.dtype);
    const std::size_t width = static_cast<std::size_t>(from.cols) * size;
    const auto rows = static_cast<std::size_t>(from.rows);
    bytes_.resize(rows * width);
    tensor_.data = bytes_.data();
    tensor_.row_stride = from.cols;
    const std::size_t pitch = rows == 1 ? width : static_cast<std::size_t>(from.row_stride) * size;
    check(cudaMemcpy2D(bytes_.data(), width, from.data, pitch, width, rows, cudaMemcpyDefault),
          "copying the constants to the host");
  }
  const samebits_tensor& tensor() const { return tensor_; }

 private:
  samebits_tensor tensor_;
  std::vector<std::byte> bytes_;
};

std::vector<float> read_floats(const samebits_tensor& tensor, std::int32_t rounded_to = SAMEBITS_FP32) {
  if (tensor.data == nullptr) return {};
  const HostCopy copy(tensor);
  const auto* values = static_cast<const float*>(copy.tensor().data);
  std::vector<float> floats(values, values + tensor.rows * tensor.cols);
  if (rounded_to == SAMEBITS_BF16) std::transform(floats.begin(), floats.end(), floats.begin(), round_to_bf16);
  return floats;
}

}  // namespace

std::vector<std::uint16_t> read_weight_rows(const samebits_tensor& weight) {
  return split_rows(HostCopy(weight).tensor(), weight.rows, weight.cols);
}

HostConstants read_constants(const samebits_router_spec& spec, const samebits_constants* from) {
  const samebits_constants constants = checked_constants(spec, from, SAMEBITS_MEMORY_HOST | SAMEBITS_MEMORY_DEVICE);
  HostConstants host;
  if (constants.gate_weight.data != nullptr) {
    host.num_parts = num_parts(constants.gate_weight.dtype);
    host.weight_rows = read_weight_rows(constants.gate_weight);
  }
  host.linear_bias = read_floats(constants.linear_bias, spec.linear_bias_dtype);
  host.selection_bias = read_floats(constants.selection_bias, spec.selection_bias_dtype);
  host.input_scale_vector = read_floats(constants.input_scale_vector);
  host.per_expert_scale = read_floats(constants.per_expert_scale);
  host.global_scale = read_floats(constants.global_scale);
  if (spec.selection_method == SAMEBITS_SELECT_HASH_TABLE) {
    check_tensor(constants.hash_table, "hash_table", spec.hash_vocab_size, spec.top_k,
                 {SAMEBITS_INT32, SAMEBITS_INT64});
    host.hash_table = read_hash_table(spec, HostCopy(constants.hash_table).tensor());
  }
  return host;
}

}  // namespace samebits::cuda
