#include "kernels/cuda/pdl.h"

#include <cstdlib>
#include <cstring>

namespace samebits::cuda {

bool may_overlap() {
  static const bool kSwitchedOff = [] {
    const char* found = std::getenv("SAMEBITS_CUDA_PDL");
    return found != nullptr && std::strcmp(found, "off") == 0;
  }();
  if (kSwitchedOff) return false;
  int device = 0, major = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess && major >= 9;
}

}  // namespace samebits::cuda
