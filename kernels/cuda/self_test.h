// Do the tensor cores of this device add as the contract says?
#pragma once

#include <cstdint>
#include <vector>

namespace samebits::cuda {

// One step: 16 products of bf16 values added to an accumulator (here a bf16 value), and the fp32 bits that must come
// out.
struct GoldenStep {
  const char* name;
  std::uint16_t a[16], b[16];
  std::uint16_t accumulator;
  std::uint32_t expected;
};

const std::vector<GoldenStep>& golden_steps();
// Rows of the calls by which the decode form runs them on mma.sync; of all of them at once it takes wgmma.
inline constexpr std::int64_t kGoldenRows = 16;

enum class TensorCores {
  kUsed,       // compute capability 9.0, and all golden steps gave the expected bits
  kOtherArch,  // another architecture, whose steps have other parameters
  kOtherBits,  // a golden step gave other bits
};

// Of the current device. At the first call for it the decode form, with either of its instructions, and the prefill
// form run the golden steps. Throws Error where CUDA fails.
TensorCores test_tensor_cores();

}  // namespace samebits::cuda
