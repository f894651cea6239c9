// Device memory in tests.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace samebits::cuda::test {

inline void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(status));
}

inline bool has_device() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
}

// n values on the device, uninitialised.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(std::size_t n) : size_(n) {
    check(cudaMalloc(reinterpret_cast<void**>(&data_), n * sizeof(T)), "cudaMalloc");
  }
  explicit DeviceArray(const std::vector<T>& values) : DeviceArray(values.size()) { write(0, values); }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(const DeviceArray&) = delete;
  DeviceArray& operator=(const DeviceArray&) = delete;

  T* data() const { return data_; }
  std::size_t size() const { return size_; }
  void fill_bytes(int byte) { check(cudaMemset(data_, byte, size_ * sizeof(T)), "cudaMemset"); }
  void write(std::size_t first, const std::vector<T>& values) {
    check(cudaMemcpy(data_ + first, values.data(), values.size() * sizeof(T), cudaMemcpyDefault), "copy to the device");
    // From pageable memory it may return before the values have arrived, and a non-blocking stream does not wait for
    // it.
    check(cudaStreamSynchronize(nullptr), "copy to the device");
  }
  std::vector<T> read(std::size_t first, std::size_t n) const {
    std::vector<T> values(n);
    check(cudaMemcpy(values.data(), data_ + first, n * sizeof(T), cudaMemcpyDefault), "copy from the device");
    return values;
  }
  std::vector<T> read() const { return read(0, size_); }

 private:
  T* data_ = nullptr;
  std::size_t size_;
};

// A test of the device: skipped where there is none.
class DeviceTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!has_device()) GTEST_SKIP() << "no CUDA device";
  }
};

}  // namespace samebits::cuda::test
