// Kernels that a measurement needs beside the router's own. Each returns the launch status.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace samebits::bench {

inline constexpr std::size_t kFlushBytes = std::size_t{256} << 20;  // several times any L2

cudaError_t launch_mark(cudaStream_t stream);
// Stores over kFlushBytes, so that nothing read before is in L2.
cudaError_t launch_flush(void* buffer, cudaStream_t stream);
cudaError_t launch_empty(int blocks, int threads, cudaStream_t stream);

// Reads `bytes` once (rounded down to 16), `loads` of 16 bytes a thread, all in flight at once: 1, 2 or 4.
cudaError_t launch_read_once(const void* data, std::size_t bytes, int threads, int loads, void* sink,
                             cudaStream_t stream);

// Stands in for the memory-bound rest of a layer: every multiprocessor reads its part of `bytes`.
cudaError_t launch_stand_in(const void* data, std::size_t bytes, void* sink, cudaStream_t stream);

// Normal values of mean 0, the same for the same seed.
cudaError_t launch_normal_bf16(std::uint16_t* values, std::size_t count, float deviation, std::uint64_t seed,
                               cudaStream_t stream);
cudaError_t launch_normal_fp32(float* values, std::size_t count, float deviation, std::uint64_t seed,
                               cudaStream_t stream);

}  // namespace samebits::bench
