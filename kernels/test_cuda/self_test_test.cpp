// The self-test of the tensor cores: its golden steps, and its answer here.
#include <gtest/gtest.h>

#include "kernels/cpu/tensor_core_step.h"
#include "kernels/cuda/self_test.h"
#include "kernels/test_cuda/device_array.h"

namespace samebits::cuda::test {
namespace {

TEST(GoldenSteps, AreThoseOfTheContract) {
  ASSERT_GE(golden_steps().size(), 20u);
  for (const GoldenStep& step : golden_steps()) {
    EXPECT_EQ(cpu::tensor_core_step(step.accumulator, step.a, 1, step.b, 1), step.expected) << step.name;
  }
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
