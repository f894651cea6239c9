#include "kernels/cuda/self_test.h"

#include <map>
#include <mutex>

#include "kernels/cuda/check.h"
#include "kernels/cuda/device_array.h"

namespace samebits::cuda {
namespace {

constexpr int kWarpLanes = 32;

// One block of one warp a step. The step fills all rows and columns of the tile, so every result must be the expected.
__global__ void run_golden_steps(const GoldenStep* steps, std::int32_t* failures) {
  const GoldenStep& step = steps[blockIdx.x];
  const int first = static_cast<int>(threadIdx.x % 4) * 2;
  const auto pair = [](const std::uint16_t* values) { return values[0] | (std::uint32_t{values[1]} << 16); };
  const std::uint32_t a_low = pair(step.a + first), a_high = pair(step.a + first + 8);
  const std::uint32_t b_low = pair(step.b + first), b_high = pair(step.b + first + 8);
  const std::uint32_t c = step.accumulator;
  std::uint32_t d[4] = {};
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  asm("{\n"
      ".reg .f32 s0, s1, s2, s3;\n"
      "mov.b32 s0, %10; mov.b32 s1, %10; mov.b32 s2, %10; mov.b32 s3, %10;\n"
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {s0, s1, s2, s3}, {%4, %5, %6, %7}, {%8, %9}, "
      "{s0, s1, s2, s3};\n"
      "mov.b32 %0, s0; mov.b32 %1, s1; mov.b32 %2, s2; mov.b32 %3, s3;\n"
      "}\n"
      : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3])
      : "r"(a_low), "r"(a_low), "r"(a_high), "r"(a_high), "r"(b_low), "r"(b_high), "r"(c));
#endif
  bool failed = false;
  for (const std::uint32_t bits : d) failed = failed || bits != step.expected;
  failed = __any_sync(0xffffffffu, failed);
  if (threadIdx.x == 0) failures[blockIdx.x] = failed ? 1 : 0;
}

TensorCores test_device(int device) {
  int major = 0, minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute");
  if (major != 9 || minor != 0) return TensorCores::kOtherArch;
  const std::vector<GoldenStep>& golden = golden_steps();
  const DeviceArray steps(golden);
  std::vector<std::int32_t> failures(golden.size(), 1);
  const DeviceArray device_failures(failures);
  auto* failures_at = const_cast<std::int32_t*>(device_failures.as<std::int32_t>());
  run_golden_steps<<<static_cast<unsigned>(golden.size()), kWarpLanes>>>(steps.as<GoldenStep>(), failures_at);
  check(cudaGetLastError(), "launching the self-test of the tensor cores");
  check(cudaMemcpy(failures.data(), failures_at, failures.size() * sizeof(std::int32_t), cudaMemcpyDeviceToHost),
        "the self-test of the tensor cores");
  for (const std::int32_t failed : failures) {
    if (failed != 0) return TensorCores::kOtherBits;
  }
  return TensorCores::kUsed;
}

}  // namespace

TensorCores test_tensor_cores() {
  static std::mutex mutex;
  static std::map<int, TensorCores> tested;
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  const std::lock_guard<std::mutex> lock(mutex);
  const auto found = tested.find(device);
  if (found != tested.end()) return found->second;
  return tested[device] = test_device(device);
}

}  // namespace samebits::cuda
