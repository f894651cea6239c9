// The row that the gate reads, on the device and by the CPU backend: equal bits.
#include <gtest/gtest.h>

#include <vector>

#include "kernels/common/gate_input.h"
#include "kernels/cpu/prepare.h"
#include "kernels/cuda/launch.h"
#include "kernels/test/test_router.h"
#include "kernels/test_cuda/device_array.h"

namespace samebits::cuda::test {
namespace {

using cpu::test::draw;
using cpu::test::draw_normal;
using cpu::test::upper_half;

constexpr std::int64_t kRows = 40;
constexpr std::uint16_t kPoison = 0xabcd;

// Normal values of a scale of the row's own; some rows hold zeros, NaN, infinities, subnormal or huge values as well.
std::uint16_t hidden_value(std::uint64_t seed, std::int64_t row, std::int64_t column) {
  constexpr std::uint16_t kSpecial[] = {0x0000, 0x8000, 0x7fc0, 0xff81, 0x7f80, 0xff80, 0x0001, 0x8003, 0x7f7f, 0x0080};
  const auto r = static_cast<std::uint64_t>(row), index = r << 32 | static_cast<std::uint64_t>(column);
  if (row % 10 == 9) return static_cast<std::uint16_t>(row % 20 == 9 ? 0 : kSpecial[6 + draw(seed, index) % 4]);
  if (row % 10 == 8 && draw(seed + 1, index) % 64 == 0) return kSpecial[draw(seed + 2, index) % 10];
  const float scale = std::ldexp(1.0f, static_cast<int>(r % 7) * 8 - 24);
  return upper_half(scale * draw_normal(seed, index));
}

struct PrepareCase {
  std::int32_t norm, vector, rsqrt_hidden_size;
  float scale, eps;
};

constexpr PrepareCase kCases[] = {
    {0, 0, 0, 1.0f, 0.0f},          // a copy
    {1, 0, 0, 1.0f, 1e-6f},         // norm
    {0, 1, 0, 1.0f, 0.0f},          // vector
    {0, 0, 0, 0.0625f, 0.0f},       // factor
    {1, 1, 1, 1.0f, 1e-6f},         // all
    {1, 1, 2, 1.0f, 1e-5f},         // all, the factor in bf16
    {1, 0, 0, 3.0f, 1e-20f},        // eps below every mean
    {0, 1, 0, -0x1.8p+20f, 0.0f},   // large, negative
    {1, 1, 0, 0x1.234p-130f, 0.5f}  // a subnormal factor
};

class Prepare : public DeviceTest, public ::testing::WithParamInterface<std::int32_t> {};

TEST_P(Prepare, BitsOfTheCpuBackend) {
  const std::int32_t hidden_size = GetParam();
  const auto padded = static_cast<std::int32_t>(padded_hidden_size(hidden_size));
  const std::int64_t stride = hidden_size + 3;  // rows at odd addresses
  for (const PrepareCase& c : kCases) {
    SCOPED_TRACE(testing::Message() << "norm " << c.norm << ", vector " << c.vector << ", rsqrt " << c.rsqrt_hidden_size
                                    << ", scale " << c.scale);
    samebits_router_spec spec = cpu::test::plain_spec(hidden_size, 8, 1);
    spec.input_norm = c.norm;
    spec.input_norm_eps = c.eps;
    spec.input_scale_vector = c.vector;
    spec.input_scale_rsqrt_hidden_size = c.rsqrt_hidden_size;
    spec.input_scale = c.scale;
    std::vector<float> vector = cpu::test::normal_fp32(11, hidden_size);
    vector[0] = 0x1p-140f;
    vector[static_cast<std::size_t>(hidden_size - 1)] = -0x1p+100f;

    std::vector<std::uint16_t> hidden(static_cast<std::size_t>(kRows * stride + 1), 0x7fc1);
    for (std::int64_t t = 0; t < kRows; ++t) {
      for (std::int64_t i = 0; i < hidden_size; ++i) {
        hidden[static_cast<std::size_t>(1 + t * stride + i)] = hidden_value(5, t, i);
      }
    }
    cpu::RouterConstants constants{};
    constants.spec = spec;
    constants.input_scale_vector = c.vector != 0 ? vector.data() : nullptr;
    constants.input_scale = input_scale_factor(spec);
    std::vector<float> scratch_input(static_cast<std::size_t>(hidden_size));
    cpu::RowScratch scratch{};
    scratch.input = scratch_input.data();

    const DeviceArray<std::uint16_t> device_hidden(hidden);
    const DeviceArray<float> device_vector(vector);
    RouterView router{};
    router.spec = spec;
    router.hidden_size = hidden_size;
    router.padded_hidden_size = padded;
    router.input_scale_vector = c.vector != 0 ? device_vector.data() : nullptr;
    router.input_scale = constants.input_scale;
    for (const std::int32_t num_valid_rows : {-1, 0, 17, static_cast<std::int32_t>(kRows) + 3}) {
      const std::int64_t valid = clamp_rows(num_valid_rows, kRows);
      std::vector<std::uint16_t> expected(static_cast<std::size_t>((kRows + 1) * padded), 0);
      for (std::int64_t t = 0; t < valid; ++t) {
        cpu::prepare_input(constants, hidden.data() + 1 + t * stride, scratch, expected.data() + t * padded);
      }
      std::fill(expected.end() - padded, expected.end(), kPoison);  // a row behind the last

      const DeviceArray<std::int32_t> device_valid(std::vector<std::int32_t>{num_valid_rows});
      const DeviceArray<std::uint16_t> prepared(std::vector<std::uint16_t>(expected.size(), kPoison));
      CallView call{};
      call.num_tokens = kRows;
      call.num_valid_rows = device_valid.data();
      check(launch_prepare(router, call, device_hidden.data() + 1, stride, prepared.data(), nullptr), "launch_prepare");
      const std::vector<std::uint16_t> found = prepared.read();
      for (std::size_t i = 0; i < found.size(); ++i) {
        ASSERT_EQ(found[i], expected[i]) << "row " << i / static_cast<std::size_t>(padded) << ", column "
                                         << i % static_cast<std::size_t>(padded) << ", valid rows " << num_valid_rows;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(HiddenSizes, Prepare, ::testing::Values(1, 8, 16, 31, 33, 250, 1000, 2816, 7168));

}  // namespace
}  // namespace samebits::cuda::test
