#include "kernels/cuda/check.h"

#include <string>

#include "kernels/common/error.h"

namespace samebits::cuda {

void check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  const std::string text = std::string(call) + ": " + cudaGetErrorName(error) + " (" + cudaGetErrorString(error) + ")";
  throw Error(error == cudaErrorMemoryAllocation ? SAMEBITS_OUT_OF_MEMORY : SAMEBITS_DEVICE_ERROR, text);
}

void check_device(int created_on) {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  if (device == created_on) return;
  fail_invalid("current device: found " + std::to_string(device) + ", allowed " + std::to_string(created_on) +
               ", on which it was created; call cudaSetDevice");
}

}  // namespace samebits::cuda
