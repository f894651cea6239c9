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

}  // namespace samebits::cuda
