#include "kernels/logits/row_boxes.h"

#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include "kernels/logits/prefill.h"

namespace samebits::cuda {

cudaError_t encode_rows(const RouterView& router, const CallView& call, int box_rows, CUtensorMap* map) {
  static const PFN_cuTensorMapEncodeTiled_v12000 kEncode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found{};
    const cudaError_t status =
        cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
    return status == cudaSuccess && found == cudaDriverEntryPointSuccess
               ? reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function)
               : nullptr;
  }();
  if (kEncode == nullptr) return cudaErrorNotSupported;
  const auto columns = static_cast<cuuint64_t>(router.padded_hidden_size);
  // A single row may have any stride, but the map asks for rows that do not overlap.
  const cuuint64_t stride = call.num_tokens == 1 ? columns : static_cast<cuuint64_t>(call.input_stride);
  const cuuint64_t sizes[2] = {columns, static_cast<cuuint64_t>(call.num_tokens)}, stride_bytes[1] = {stride * 2};
  const cuuint32_t box[2] = {kTileColumns, static_cast<cuuint32_t>(box_rows)}, element_strides[2] = {1, 1};
  const CUresult result =
      kEncode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, const_cast<std::uint16_t*>(call.input), sizes, stride_bytes,
              box, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
              CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace samebits::cuda
