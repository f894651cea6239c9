#include "kernels/test_cuda/late_rows.h"

#include "kernels/test_cuda/device_array.h"

namespace samebits::cuda::test {
namespace {

constexpr int kBlocks = 64, kThreads = 256;
constexpr unsigned long long kDelayNanoseconds = 2'000'000;

__global__ void gather_rows_late_kernel(const std::uint16_t* pool, RowOrder order, std::int64_t num_rows,
                                        std::int64_t width, std::uint16_t* batch) {
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
  for (std::int64_t row = blockIdx.x; row < num_rows; row += gridDim.x) {
    const std::uint16_t* from = pool + order(row) * width;
    std::uint16_t* to = batch + row * width;
    for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) to[i] = from[i];
  }
}

}  // namespace

void gather_rows_late(const std::uint16_t* pool, const RowOrder& order, std::int64_t num_rows, std::int64_t width,
                      std::uint16_t* batch, cudaStream_t stream) {
  gather_rows_late_kernel<<<kBlocks, kThreads, 0, stream>>>(pool, order, num_rows, width, batch);
  check(cudaGetLastError(), "gather_rows_late");
}

}  // namespace samebits::cuda::test
