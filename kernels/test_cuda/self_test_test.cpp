// The self-test of the tensor cores: its golden steps, and its answer here.
#include <gtest/gtest.h>

#include "kernels/cpu/tensor_core_step.h"
#include "kernels/cuda/self_test.h"
#include "kernels/logits/decode_wide.h"
#include "kernels/test_cuda/device_array.h"

namespace samebits::cuda::test {
namespace {

TEST(GoldenSteps, AreThoseOfTheContract) {
  ASSERT_GE(golden_steps().size(), 20u);
  for (const GoldenStep& step : golden_steps()) {
    // The accumulator comes from a step of its own.
    const std::uint16_t first[16] = {step.accumulator}, one[16] = {0x3f80};
    const std::uint32_t accumulator = cpu::tensor_core_step(0, first, 1, one, 1);
    EXPECT_EQ(cpu::tensor_core_step(accumulator, step.a, 1, step.b, 1), step.expected) << step.name;
  }
}

TEST(GoldenSteps, RunOnBothInstructionsOfTheDecodeForm) {
  RouterView router{};
  router.num_parts = router.num_chunks = 1;
  router.padded_gate_rows =
      static_cast<std::int32_t>(round_up(static_cast<std::int64_t>(golden_steps().size()), kGateRowPad));
  EXPECT_FALSE(takes_decode_wide(router, kGoldenRows));
  EXPECT_TRUE(takes_decode_wide(router, static_cast<std::int64_t>(golden_steps().size())));
}

class TensorCoreTest : public DeviceTest {};

TEST_F(TensorCoreTest, AreUsedOnHopper) {
  int device = 0, major = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  EXPECT_EQ(test_tensor_cores(), major == 9 ? TensorCores::kUsed : TensorCores::kOtherArch);
}

}  // namespace
}  // namespace samebits::cuda::test
