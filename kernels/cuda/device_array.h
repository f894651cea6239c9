// Memory on the device that a router owns.
#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "kernels/cuda/check.h"

namespace samebits::cuda {

// A copy of host values on the device.
class DeviceArray {
 public:
  DeviceArray() = default;
  template <class T>
  explicit DeviceArray(const std::vector<T>& values) {
    if (values.empty()) return;
    const std::size_t bytes = values.size() * sizeof(T);
    check(cudaMalloc(&data_, bytes), "cudaMalloc");
    const cudaError_t copied = cudaMemcpy(data_, values.data(), bytes, cudaMemcpyHostToDevice);
    if (copied != cudaSuccess) cudaFree(data_);
    check(copied, "cudaMemcpy to the device");
  }
  ~DeviceArray() { cudaFree(data_); }
  DeviceArray(DeviceArray&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  DeviceArray& operator=(DeviceArray&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }

  template <class T>
  const T* as() const {  // null where there are no values
    return static_cast<const T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

}  // namespace samebits::cuda
