#include <cuda_bf16.h>

#include "kernels/bench/gpu_kernels.h"

// Found by name among the records (records.h).
extern "C" __global__ void samebits_bench_mark_kernel() {}

extern "C" __global__ void samebits_bench_flush_kernel(uint4* buffer, std::size_t count) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    const unsigned value = static_cast<unsigned>(i);
    buffer[i] = make_uint4(value, value + 1, value + 2, value + 3);
  }
}

namespace samebits::bench {
namespace {

constexpr int kFlushBlocks = 1056, kFlushThreads = 1024;
constexpr int kFillBlocks = 1056, kFillThreads = 256;
constexpr int kStandInThreads = 512, kStandInLoads = 4;
constexpr unsigned kNeverMet = 0x9e3779b9u;  // so that the compiler keeps the loads

__global__ void empty_kernel() {}

template <int kLoads>
__device__ unsigned read_words(const uint4* data, std::size_t first, std::size_t stride, std::size_t count) {
  uint4 words[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const std::size_t at = first + i * stride;
    words[i] = at < count ? data[at] : make_uint4(0, 0, 0, 0);
  }
  unsigned mixed = 0;
#pragma unroll
  for (int i = 0; i < kLoads; ++i) mixed ^= words[i].x ^ words[i].y ^ words[i].z ^ words[i].w;
  return mixed;
}

template <int kLoads>
__global__ void read_once_kernel(const uint4* __restrict__ data, std::size_t count, unsigned* sink) {
  const std::size_t first = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const unsigned mixed = read_words<kLoads>(data, first, std::size_t{gridDim.x} * blockDim.x, count);
  if (mixed == kNeverMet) *sink = mixed;
}

__global__ void stand_in_kernel(const uint4* __restrict__ data, std::size_t count, unsigned* sink) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  unsigned mixed = 0;
  for (std::size_t first = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; first < count;
       first += kStandInLoads * stride) {
    mixed ^= read_words<kStandInLoads>(data, first, stride, count);
  }
  if (mixed == kNeverMet) *sink = mixed;
}

// The mixing function of splitmix64.
__device__ std::uint64_t mix(std::uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

__device__ float normal(std::uint64_t seed, std::size_t index) {  // Box-Muller
  const std::uint64_t bits = mix(mix(seed) + 0x9e3779b97f4a7c15u * (index + 1));
  const float radius = (static_cast<float>(bits >> 40) + 0.5f) * 0x1p-24f;
  const float angle = static_cast<float>(bits & 0xffffff) * 0x1p-24f;
  return sqrtf(-2.0f * logf(radius)) * cospif(2.0f * angle);
}

__device__ void store(float* to, float value) {
  *to = value;
}
__device__ void store(std::uint16_t* to, float value) {
  *to = __bfloat16_as_ushort(__float2bfloat16_rn(value));
}

template <class T>
__global__ void normal_kernel(T* values, std::size_t count, float deviation, std::uint64_t seed) {
  const std::size_t stride = std::size_t{gridDim.x} * blockDim.x;
  for (std::size_t i = std::size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += stride) {
    store(values + i, normal(seed, i) * deviation);
  }
}

}  // namespace

cudaError_t launch_mark(cudaStream_t stream) {
  samebits_bench_mark_kernel<<<1, 32, 0, stream>>>();
  return cudaGetLastError();
}

cudaError_t launch_flush(void* buffer, cudaStream_t stream) {
  samebits_bench_flush_kernel<<<kFlushBlocks, kFlushThreads, 0, stream>>>(static_cast<uint4*>(buffer),
                                                                          kFlushBytes / sizeof(uint4));
  return cudaGetLastError();
}

cudaError_t launch_empty(int blocks, int threads, cudaStream_t stream) {
  empty_kernel<<<blocks, threads, 0, stream>>>();
  return cudaGetLastError();
}

cudaError_t launch_read_once(const void* data, std::size_t bytes, int threads, int loads, void* sink,
                             cudaStream_t stream) {
  const std::size_t count = bytes / sizeof(uint4), per_block = static_cast<std::size_t>(threads) * loads;
  const auto blocks = static_cast<unsigned>((count + per_block - 1) / per_block);
  const auto* words = static_cast<const uint4*>(data);
  auto* to = static_cast<unsigned*>(sink);
  switch (loads) {
    case 1:
      read_once_kernel<1><<<blocks, threads, 0, stream>>>(words, count, to);
      break;
    case 2:
      read_once_kernel<2><<<blocks, threads, 0, stream>>>(words, count, to);
      break;
    case 4:
      read_once_kernel<4><<<blocks, threads, 0, stream>>>(words, count, to);
      break;
    default:
      return cudaErrorInvalidValue;
  }
  return cudaGetLastError();
}

cudaError_t launch_stand_in(const void* data, std::size_t bytes, void* sink, cudaStream_t stream) {
  int device = 0, processors = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) status = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (status != cudaSuccess) return status;
  stand_in_kernel<<<4 * processors, kStandInThreads, 0, stream>>>(static_cast<const uint4*>(data),
                                                                  bytes / sizeof(uint4), static_cast<unsigned*>(sink));
  return cudaGetLastError();
}

cudaError_t launch_normal_bf16(std::uint16_t* values, std::size_t count, float deviation, std::uint64_t seed,
                               cudaStream_t stream) {
  normal_kernel<<<kFillBlocks, kFillThreads, 0, stream>>>(values, count, deviation, seed);
  return cudaGetLastError();
}

cudaError_t launch_normal_fp32(float* values, std::size_t count, float deviation, std::uint64_t seed,
                               cudaStream_t stream) {
  normal_kernel<<<kFillBlocks, kFillThreads, 0, stream>>>(values, count, deviation, seed);
  return cudaGetLastError();
}

}  // namespace samebits::bench
