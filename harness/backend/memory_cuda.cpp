// Device memory through the CUDA runtime; compiled only where CUDA is.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <new>

#include "harness/backend/memory.h"
#include "samebits/samebits.h"

namespace samebits::harness {
namespace {

void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  if (error == cudaErrorMemoryAllocation) throw std::bad_alloc();
  throw DeviceFault(fmt::format("{}: {} ({}: {})", call, cudaGetErrorString(error), cudaGetErrorName(error),
                                static_cast<int>(error)));
}

class CudaMemory final : public Memory {
 public:
  CudaMemory() {
    check(cudaSetDevice(0), "cudaSetDevice(0)");
    check(cudaFree(nullptr), "creating the CUDA context");
  }
  int kind() const override { return SAMEBITS_MEMORY_DEVICE; }
  void* allocate(std::size_t bytes) override {
    void* address = nullptr;
    check(cudaMalloc(&address, bytes), "cudaMalloc");
    return address;
  }
  // After a fault every call fails; the process ends soon and the driver frees the memory.
  void release(void* address) noexcept override { static_cast<void>(cudaFree(address)); }
  void copy_in(void* to, const void* from_host, std::size_t bytes) override {
    check(cudaMemcpy(to, from_host, bytes, cudaMemcpyHostToDevice), "cudaMemcpy to the device");
  }
  void copy_out(void* to_host, const void* from, std::size_t bytes) override {
    check(cudaMemcpy(to_host, from, bytes, cudaMemcpyDeviceToHost), "cudaMemcpy from the device");
  }
  void synchronize() override {
    // A launch that was refused is kept as the last error and does not show in the synchronisation.
    check(cudaGetLastError(), "kernel launch");
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }
};

}  // namespace

std::unique_ptr<Memory> device_memory() {
  return std::make_unique<CudaMemory>();
}

}  // namespace samebits::harness
