// Kernels of the harness itself, for what it asks of routers in device memory.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace samebits::harness {

// Copies after two milliseconds, but lets the next kernel of the stream start at once if that was launched with
// programmatic stream serialization and does not wait for this one.
void launch_late_copy(void* to, const void* from, std::size_t bytes, cudaStream_t stream);

// *sum = 0 + 1 + ... + (count - 1), computed by `count` threads (at most 1,024) on the stream of ordinary calls.
cudaError_t launch_probe(std::uint32_t* sum, std::uint32_t count);

}  // namespace samebits::harness
