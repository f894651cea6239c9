// CUDA errors as exceptions.
#pragma once

#include <cuda_runtime_api.h>

namespace samebits::cuda {

// Throws Error: DEVICE_ERROR (OUT_OF_MEMORY where that is it) with the call and CUDA's text. Takes the error from the
// runtime's last error, so that the next call does not meet it again.
void check(cudaError_t error, const char* call);

// Throws Error unless the current device is the one on which the object of the call was created.
void check_device(int created_on);

}  // namespace samebits::cuda
