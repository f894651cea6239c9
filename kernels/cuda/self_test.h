// Do the tensor cores of this device add as the contract says?
#pragma once

#include <cstdint>
#include <vector>

namespace samebits::cuda {

// One step: 16 products of bf16 values added to an fp32 accumulator, and the bits that must come out.
struct GoldenStep {
  const char* name;
  std::uint16_t a[16], b[16];
  std::uint32_t accumulator, expected;
};

const std::vector<GoldenStep>& golden_steps();

enum class TensorCores {
  kUsed,       // compute capability 9.0, and all golden steps gave the expected bits
  kOtherArch,  // another architecture, whose steps have other parameters
  kOtherBits,  // a golden step gave other bits
};

// Of the current device; runs the golden steps at the first call for it. Throws Error where CUDA fails.
TensorCores test_tensor_cores();

}  // namespace samebits::cuda
