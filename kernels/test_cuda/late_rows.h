// A kernel before a router's, whose rows come late.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/test_cuda/device_rows.h"

namespace samebits::cuda::test {

// As gather_rows, but the kernel lets the next one start at once (programmatic dependent launch) and writes the rows
// 2 ms later. Leaves room on all multiprocessors.
void gather_rows_late(const std::uint16_t* pool, const RowOrder& order, std::int64_t num_rows, std::int64_t width,
                      std::uint16_t* batch, cudaStream_t stream);

}  // namespace samebits::cuda::test
