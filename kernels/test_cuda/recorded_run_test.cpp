// The run that is recorded: a million rows and a billion logits of the tensor-core forms against the plain form,
// compared on the device by bits, and the plain form against the CPU backend on a sample. About a minute.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <vector>

#include "kernels/cpu/gate_weight.h"
#include "kernels/cpu/simd.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/router.h"
#include "kernels/test_cuda/row_pool.h"

namespace samebits::cuda::test {
namespace {

constexpr std::int64_t kSliceRows = 65536;
// The decode form takes many rows of a bf16 weight by wgmma, and few by mma.sync: in every other slice.
constexpr std::int64_t kDecodeCallRows = 256, kFewCallRows = 16;
constexpr std::int64_t kSampleRows = 2 * kNumRowFamilies;  // of each slice, every family twice

// One shape: its slices of rows go through the three forms.
class FormsOfOneShape {
 public:
  FormsOfOneShape(const samebits_router_spec& spec, std::int32_t weight_dtype, std::uint64_t seed)
      : spec_(spec), seed_(seed), weight_(make_weight(spec, weight_dtype, seed)), cpu_weight_(weight_tensor()) {
    samebits_constants constants{};
    constants.struct_size = sizeof(constants);
    constants.memory = SAMEBITS_MEMORY_HOST;
    constants.gate_weight = weight_tensor();
    std::vector<float> bias(static_cast<std::size_t>(spec.num_experts), 0.0f);
    constants.selection_bias = {bias.data(), 1, spec.num_experts, spec.num_experts, SAMEBITS_FP32, 0};
    make_router(&spec_, &constants, router_);
  }

  void run(std::int64_t num_rows) {
    const RouterView& view = router_.view;
    const std::int64_t h = spec_.hidden_size, gate_rows = view.padded_gate_rows;
    const auto logits = static_cast<std::size_t>(kSliceRows * gate_rows);
    const DeviceArray<std::uint16_t> rows(static_cast<std::size_t>(kSliceRows * h));
    DeviceArray<float> plain(logits), prefill(logits), decode(logits);
    const DeviceArray<float> parts(static_cast<std::size_t>(kDecodeCallRows * view.num_chunks * gate_rows));
    const RowOrder same{0, 1, kSliceRows};
    for (std::int64_t first = 0; first < num_rows; first += kSliceRows) {
      make_rows(seed_, first, kSliceRows, h, rows.data(), nullptr);
      // Different bytes, so that a sum that no form writes is a mismatch.
      plain.fill_bytes(0x11), prefill.fill_bytes(0x22), decode.fill_bytes(0x33);
      check(launch_logits_plain(view, call(rows.data(), kSliceRows, plain.data(), 1), nullptr), "plain");
      check(launch_logits_prefill(view, call(rows.data(), kSliceRows, prefill.data(), 1), nullptr), "prefill");
      const std::int64_t call_rows = first / kSliceRows % 2 == 0 ? kDecodeCallRows : kFewCallRows;
      for (std::int64_t t = 0; t < kSliceRows; t += call_rows) {
        check(launch_logits_decode(view, call(rows.data() + t * h, call_rows, parts.data(), view.num_chunks), nullptr),
              "decode");
        fold_sums(parts.data(), view.num_chunks, call_rows, gate_rows, decode.data() + t * gate_rows, nullptr);
      }
      count_columns(prefill, plain, same);
      count_columns(decode, plain, same);
      rows_ += kSliceRows;
      compare_sample(first, rows, plain);
    }
    EXPECT_EQ(mismatches_.read(), 0u) << "logits";
    EXPECT_EQ(cpu_mismatches_, 0) << "logits";
    const auto print = [](std::int64_t n) { return static_cast<long long>(n); };
    std::printf(
        "  H %d, %d experts, %s weights: %lld rows; %lld logits of the prefill form and as many of the decode form "
        "against the plain form, %llu mismatches; plain form against the CPU backend: %lld rows, %lld logits, %lld "
        "mismatches\n",
        spec_.hidden_size, spec_.num_experts, view.num_parts == 1 ? "bf16" : "fp32", print(rows_),
        print(rows_ * spec_.num_experts), static_cast<unsigned long long>(mismatches_.read()), print(sample_rows_),
        print(sample_rows_ * spec_.num_experts), print(cpu_mismatches_));
  }
  std::int64_t rows() const { return rows_; }
  std::int64_t logits() const { return rows_ * spec_.num_experts; }

 private:
  // Normal values; the lower halves of fp32 weights are any bits.
  static std::vector<std::uint32_t> make_weight(const samebits_router_spec& spec, std::int32_t dtype,
                                                std::uint64_t seed) {
    const std::int64_t n = std::int64_t{spec.num_experts} * spec.hidden_size;
    const std::vector<std::uint16_t> upper = cpu::test::normal_bf16(seed, n);
    std::vector<std::uint32_t> words;
    for (std::size_t i = 0; i < upper.size(); ++i) {
      if (dtype == SAMEBITS_FP32) {
        words.push_back(std::uint32_t{upper[i]} << 16 | (cpu::test::draw(seed + 1, i) & 0xffff));
      } else if (i % 2 == 0) {  // two in a word
        words.push_back(upper[i] | std::uint32_t{upper[std::min(i + 1, upper.size() - 1)]} << 16);
      }
    }
    return words;
  }
  samebits_tensor weight_tensor() {
    const bool fp32 = weight_.size() == static_cast<std::size_t>(std::int64_t{spec_.num_experts} * spec_.hidden_size);
    return {weight_.data(),
            spec_.num_experts,
            spec_.hidden_size,
            spec_.hidden_size,
            fp32 ? SAMEBITS_FP32 : SAMEBITS_BF16,
            0};
  }
  CallView call(const std::uint16_t* rows, std::int64_t num_rows, float* sums, std::int32_t num_sums) const {
    CallView view{};
    view.num_tokens = num_rows;
    view.input = rows;
    view.input_stride = spec_.hidden_size;
    view.sums = sums;
    view.num_sums = num_sums;
    return view;
  }
  void count_columns(const DeviceArray<float>& found, const DeviceArray<float>& wanted, const RowOrder& order) {
    count_different(found.data(), wanted.data(), order, kSliceRows, router_.view.padded_gate_rows, mismatches_.get(),
                    nullptr);
  }
  // Rows spread over the slice.
  void compare_sample(std::int64_t first, const DeviceArray<std::uint16_t>& rows, const DeviceArray<float>& plain) {
    const auto h = static_cast<std::size_t>(spec_.hidden_size), g = static_cast<std::size_t>(spec_.num_experts);
    std::vector<std::uint16_t> hidden;
    std::vector<float> found, wanted(static_cast<std::size_t>(kSampleRows) * g);
    for (std::int64_t i = 0; i < kSampleRows; ++i) {
      // 2,049 is 1 modulo 16: each row is of the next family. The start differs from slice to slice.
      const auto t = static_cast<std::size_t>((first / kSliceRows * 613 + i * 2049) % kSliceRows);
      const std::vector<std::uint16_t> row = rows.read(t * h, h);
      const std::vector<float> logits = plain.read(t * g, g);
      hidden.insert(hidden.end(), row.begin(), row.end());
      found.insert(found.end(), logits.begin(), logits.end());
    }
    cpu::multiply_rows(cpu_weight_, hidden.data(), spec_.hidden_size, kSampleRows, 0, spec_.hidden_size, wanted.data(),
                       spec_.num_experts);
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      if (std::bit_cast<std::uint32_t>(found[i]) != std::bit_cast<std::uint32_t>(wanted[i])) ++cpu_mismatches_;
    }
    sample_rows_ += kSampleRows;
  }

  samebits_router_spec spec_;
  std::uint64_t seed_;
  std::vector<std::uint32_t> weight_;
  cpu::GateWeight cpu_weight_;
  Router router_;
  Mismatches mismatches_;
  std::int64_t rows_ = 0, sample_rows_ = 0, cpu_mismatches_ = 0;
};

class RecordedRun : public DeviceTest {};

TEST_F(RecordedRun, TensorCoresEqualThePlainForm) {
  struct Shape {
    std::int32_t hidden_size, num_experts, dtype;
    std::int64_t slices;
  };
  // Numbers of experts that are multiples of 16, so that no sum is padding. Steps of the plain form decide the time.
  const Shape shapes[] = {{4096, 288, SAMEBITS_BF16, 8}, {4096, 288, SAMEBITS_FP32, 2}, {2880, 32, SAMEBITS_BF16, 4},
                          {7168, 256, SAMEBITS_BF16, 2}, {512, 512, SAMEBITS_BF16, 32}, {272, 896, SAMEBITS_FP32, 4},
                          {16, 2304, SAMEBITS_BF16, 4}};
  std::int64_t rows = 0, logits = 0;
  std::uint64_t seed = 100;
  for (const Shape& shape : shapes) {
    FormsOfOneShape forms(cpu::test::sigmoid_bias_spec(shape.hidden_size, shape.num_experts, 8), shape.dtype, ++seed);
    forms.run(shape.slices * kSliceRows);
    rows += forms.rows(), logits += forms.logits();
  }
  std::printf("  together: %lld rows, %lld logits of each form\n", static_cast<long long>(rows),
              static_cast<long long>(logits));
  EXPECT_GE(rows, 1'000'000);
  EXPECT_GE(logits, 1'000'000'000);
}

}  // namespace
}  // namespace samebits::cuda::test
