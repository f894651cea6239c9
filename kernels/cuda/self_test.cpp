#include "kernels/cuda/self_test.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "kernels/cuda/device_array.h"
#include "kernels/cuda/launch.h"
#include "kernels/logits/pack.h"
#include "kernels/logits/prefill.h"

namespace samebits::cuda {
namespace {

constexpr std::uint16_t kOne = 0x3f80;
constexpr std::int32_t kColumns = 2 * kStepWidth;  // a step that makes the accumulator, and the golden step

using LaunchLogits = cudaError_t (*)(const RouterView&, const CallView&, cudaStream_t);

// Row i of the tokens and row i of the experts meet in logit [i][i], which is the result of golden step i. What other
// rows make of each other does not matter.
class GoldenLogits {
 public:
  GoldenLogits() : num_steps_(static_cast<std::int32_t>(golden_steps().size())) {
    router_.hidden_size = router_.padded_hidden_size = kColumns;
    router_.num_chunks = router_.num_parts = 1;
    router_.gate_rows = num_steps_;
    router_.padded_gate_rows = static_cast<std::int32_t>(round_up(num_steps_, kGateRowPad));
    std::vector<std::uint16_t> tokens(static_cast<std::size_t>(num_steps_ * kColumns));
    std::vector<std::uint16_t> experts(static_cast<std::size_t>(router_.padded_gate_rows * kColumns));
    for (std::size_t i = 0; i < golden_steps().size(); ++i) {
      const GoldenStep& step = golden_steps()[i];
      std::uint16_t *token = tokens.data() + i * kColumns, *expert = experts.data() + i * kColumns;
      token[0] = step.accumulator;
      expert[0] = kOne;
      std::copy_n(step.a, kStepWidth, token + kStepWidth);
      std::copy_n(step.b, kStepWidth, expert + kStepWidth);
    }
    tokens_ = DeviceArray(tokens);
    fragments_ = DeviceArray(pack_fragments(experts, 1, router_.padded_gate_rows, kColumns));
    tiles_ = DeviceArray(pack_tiles(experts, 1, router_.padded_gate_rows, kColumns));
    sums_ = DeviceArray(std::vector<std::uint32_t>(static_cast<std::size_t>(num_steps_ * router_.padded_gate_rows)));
    router_.weight_fragments = fragments_.as<std::uint16_t>();
    router_.weight_tiles = tiles_.as<std::uint16_t>();
  }

  // By calls of so many rows, as the form decides by them which instruction it takes.
  bool are_right(LaunchLogits launch, std::int64_t rows_of_call) const {
    for (std::int64_t first = 0; first < num_steps_; first += rows_of_call) {
      CallView call{};
      call.num_tokens = std::min(rows_of_call, num_steps_ - first);
      call.input = tokens_.as<std::uint16_t>() + first * kColumns;
      call.input_stride = kColumns;
      call.sums = const_cast<float*>(sums_.as<float>()) + first * router_.padded_gate_rows;
      call.num_sums = 1;
      check(launch(router_, call, nullptr), "the self-test of the tensor cores");
    }
    std::vector<std::uint32_t> bits(static_cast<std::size_t>(num_steps_ * router_.padded_gate_rows));
    check(cudaMemcpy(bits.data(), sums_.as<float>(), bits.size() * sizeof(bits[0]), cudaMemcpyDeviceToHost),
          "the self-test of the tensor cores");
    for (std::size_t i = 0; i < golden_steps().size(); ++i) {
      if (bits[i * static_cast<std::size_t>(router_.padded_gate_rows) + i] != golden_steps()[i].expected) return false;
    }
    return true;
  }

 private:
  std::int32_t num_steps_;
  RouterView router_{};
  DeviceArray tokens_, fragments_, tiles_, sums_;
};

TensorCores test_device(int device) {
  int major = 0, minor = 0;
  check(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device), "cudaDeviceGetAttribute");
  check(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device), "cudaDeviceGetAttribute");
  if (major != 9 || minor != 0) return TensorCores::kOtherArch;
  const GoldenLogits golden;
  const auto all = static_cast<std::int64_t>(golden_steps().size());
  const bool right = golden.are_right(launch_logits_decode, kGoldenRows) &&
                     golden.are_right(launch_logits_decode, all) && golden.are_right(launch_logits_prefill, all);
  return right ? TensorCores::kUsed : TensorCores::kOtherBits;
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
