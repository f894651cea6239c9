#include "kernels/cuda/slices.h"

#include "kernels/cuda/pdl.h"
#include "kernels/cuda/view.h"

namespace samebits::cuda {
namespace {

constexpr int kThreads = 256;

__global__ void slice_valid_rows_kernel(const std::int32_t* num_valid_rows, std::int64_t slice_rows,
                                        std::int64_t num_slices, std::int32_t* slice_valid_rows) {
  wait_for_previous_kernel();
  const std::int64_t slice = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (slice >= num_slices) return;
  slice_valid_rows[slice] = static_cast<std::int32_t>(clamp_rows(*num_valid_rows - slice * slice_rows, slice_rows));
}

}  // namespace

cudaError_t launch_slice_valid_rows(const std::int32_t* num_valid_rows, std::int64_t slice_rows,
                                    std::int64_t num_slices, std::int32_t* slice_valid_rows, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(ceil_div(num_slices, kThreads));
  return launch_pdl(slice_valid_rows_kernel, dim3(blocks), dim3(kThreads), 0, stream, num_valid_rows, slice_rows,
                    num_slices, slice_valid_rows);
}

}  // namespace samebits::cuda
