// Calls of many rows run in slices, so that what lies between the stages stays small. Slices change no bit.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace samebits::cuda {

// slice_valid_rows[i] = the rows of slice i that are not padding: *num_valid_rows - i * slice_rows, clamped to
// [0, slice_rows].
cudaError_t launch_slice_valid_rows(const std::int32_t* num_valid_rows, std::int64_t slice_rows,
                                    std::int64_t num_slices, std::int32_t* slice_valid_rows, cudaStream_t stream);

}  // namespace samebits::cuda
