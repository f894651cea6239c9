#include "harness/backend/device_kernels.h"

namespace samebits::harness {
namespace {

// Few blocks, so that those of the next kernel find room beside them.
constexpr int kBlocks = 16, kThreads = 256;
constexpr unsigned long long kDelayNanoseconds = 2'000'000;

__global__ void late_copy_kernel(unsigned char* to, const unsigned char* from, std::size_t bytes) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
  const auto now = [] {
    unsigned long long nanoseconds;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(nanoseconds));
    return nanoseconds;
  };
  const unsigned long long begin = now();
  while (now() - begin < kDelayNanoseconds) {
  }
  const std::size_t step = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = static_cast<std::size_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < bytes; i += step) {
    to[i] = from[i];
  }
}

__global__ void probe_kernel(std::uint32_t* sum) {
  if (threadIdx.x == 0) *sum = 0;
  __syncthreads();
  atomicAdd(sum, threadIdx.x);
}

}  // namespace

void launch_late_copy(void* to, const void* from, std::size_t bytes, cudaStream_t stream) {
  late_copy_kernel<<<kBlocks, kThreads, 0, stream>>>(static_cast<unsigned char*>(to),
                                                     static_cast<const unsigned char*>(from), bytes);
}

cudaError_t launch_probe(std::uint32_t* sum, std::uint32_t count) {
  probe_kernel<<<1, count>>>(sum);
  return cudaGetLastError();
}

}  // namespace samebits::harness
