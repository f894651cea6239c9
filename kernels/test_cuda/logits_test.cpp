// The plain and the decode form of the logits: the plain form against the CPU backend, the decode form against the
// plain one, by bits.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "kernels/cpu/gate_weight.h"
#include "kernels/test_cuda/logits_case.h"

namespace samebits::cuda::test {
namespace {

constexpr std::int32_t kDtypes[] = {SAMEBITS_BF16, SAMEBITS_FP32};
constexpr std::int64_t kRowCounts[] = {1, 2, 15, 16, 17, 64, 65, 129, 256};
constexpr std::int64_t kRows = 256;

// Logits compared, by weight dtype.
class Count {
 public:
  void add(std::int32_t dtype, std::size_t logits) { (dtype == SAMEBITS_FP32 ? fp32_ : bf16_) += logits; }
  void print(const char* what) const {
    std::printf("%s: %zu logits of bf16 weights and %zu of fp32 weights compared\n", what, bf16_, fp32_);
  }

 private:
  std::size_t bf16_ = 0, fp32_ = 0;
};

struct Counts {
  Count cpu, decode, alone;
  void print() const {
    cpu.print("plain form against the CPU backend");
    decode.print("decode form against the plain form");
    alone.print("a row alone against the same row among others");
  }
};

struct Form {
  LaunchLogits launch;
  std::int32_t num_sums;
};

std::vector<float> plain(const DeviceLogits& device, std::int64_t first, std::int64_t n, bool alone = false) {
  return device.run(launch_logits_plain, 1, first, n, alone);
}
std::vector<float> decode(DeviceLogits& device, std::int64_t first, std::int64_t n, bool alone = false) {
  return device.run(launch_logits_decode, device.router().num_chunks, first, n, alone);
}

// Compares the plain form with the CPU, in the first cpu_each of every cpu_step rows, and the decode form with the
// plain one, at every row count.
void compare_forms(const LogitsData& data, std::int64_t cpu_step, std::int64_t cpu_each, Counts& counts) {
  const LogitsShape& shape = data.shape;
  for (const std::int32_t dtype : kDtypes) {
    DeviceLogits device(data, dtype);
    const std::vector<float> wanted = plain(device, 0, shape.num_rows);
    const cpu::GateWeight weight(data.weight(dtype));
    for (std::int64_t t = 0; t < shape.num_rows; t += cpu_step) {
      const auto from = wanted.begin() + t * shape.gate_rows;
      const std::vector<float> rows(from, from + cpu_each * shape.gate_rows);
      expect_equal_bits(rows, cpu_logits(data, weight, t, cpu_each), shape, "plain form against the CPU");
      counts.cpu.add(dtype, rows.size());
    }
    for (const std::int64_t n : kRowCounts) {
      if (n > shape.num_rows) continue;
      const std::vector<float> found = decode(device, 0, n);
      expect_equal_bits(found, wanted, shape, ("decode form of " + std::to_string(n) + " rows").c_str());
      counts.decode.add(dtype, found.size());
    }
  }
}

// Every row of both forms in a call of its own.
void compare_rows_alone(const LogitsData& data, Counts& counts) {
  for (const std::int32_t dtype : kDtypes) {
    DeviceLogits device(data, dtype);
    const std::vector<float> wanted = plain(device, 0, data.shape.num_rows);
    expect_equal_bits(plain(device, 0, data.shape.num_rows, true), wanted, data.shape, "plain form, rows alone");
    expect_equal_bits(decode(device, 0, data.shape.num_rows, true), wanted, data.shape, "decode form, rows alone");
    counts.alone.add(dtype, 2 * wanted.size());
  }
}

class CudaLogits : public DeviceTest {};

TEST_F(CudaLogits, EqualTheCpuOnAllCategories) {
  Counts counts;
  for (int category = 0; category < cpu::test::kNumCategories; ++category) {
    for (const std::int32_t hidden_size : {8, 16, 48, 256, 272}) {
      for (const std::int32_t gate_rows : {1, 7, 8, 60}) {
        const LogitsData data({static_cast<Category>(category), kRows, hidden_size, gate_rows});
        compare_forms(data, 64, 16, counts);
        if (hidden_size == 272) compare_rows_alone(data, counts);
      }
    }
    if (HasFailure()) break;
  }
  counts.print();
}

// On the CPU every 128th row.
TEST_F(CudaLogits, EqualTheCpuAtTheSizesOfModels) {
  constexpr std::int32_t kSizes[] = {2880, 4096, 7168};
  Counts counts;
  for (int category = 0; category < cpu::test::kNumCategories; ++category)
    compare_forms(LogitsData({static_cast<Category>(category), kRows, kSizes[category % 3], 288}), 128, 1, counts);
  for (const std::int32_t hidden_size : kSizes)
    compare_forms(LogitsData({Category::kWideExponents, kRows, hidden_size, 896}), 128, 1, counts);
  compare_rows_alone(LogitsData({Category::kNormal, kRows, 4096, 288}), counts);
  counts.print();
}

TEST_F(CudaLogits, DecodeEqualsPlainOverManyRowsAndExperts) {
  Count count;
  const LogitsData data({Category::kNormal, 1024, 4096, 2304});
  for (const std::int32_t dtype : kDtypes) {
    DeviceLogits device(data, dtype);
    const std::vector<float> wanted = plain(device, 0, 1024);
    for (const std::int64_t n : {777, 1024}) {
      const std::vector<float> found = decode(device, 0, n);
      expect_equal_bits(found, wanted, data.shape, "decode form");
      count.add(dtype, found.size());
    }
  }
  count.print("decode form against the plain form, up to 1,024 rows of 2,304 experts");
}

TEST_F(CudaLogits, PaddingRowsAreNotNeeded) {
  const LogitsData data({Category::kNormal, 65, 272, 60});
  DeviceLogits device(data, SAMEBITS_BF16);
  const std::vector<float> wanted = plain(device, 0, 65);
  for (const std::int32_t valid : {-3, 0, 1, 20, 64, 65, 1000}) {
    const DeviceArray<std::int32_t> num_valid_rows(std::vector<std::int32_t>{valid});
    for (const auto& [launch, num_sums] : {Form{launch_logits_plain, 1}, Form{launch_logits_decode, 2}}) {
      DeviceArray<float> sums(static_cast<std::size_t>(65 * device.row_sums(num_sums)));
      sums.fill_bytes(0);
      CallView call = device.call(0, 65, sums.data(), num_sums);
      call.num_valid_rows = num_valid_rows.data();
      check(launch(device.router(), call, nullptr), "launch");
      std::vector<float> found = device.fold(sums.read(), num_sums, 65);
      found.resize(static_cast<std::size_t>(clamp_rows(valid, 65) * 60));
      expect_equal_bits(found, wanted, data.shape, "with padding rows");
    }
  }
}

TEST_F(CudaLogits, NoRowsAreNoLaunch) {
  const LogitsData data({Category::kNormal, 1, 16, 1});
  DeviceLogits device(data, SAMEBITS_BF16);
  EXPECT_EQ(launch_logits_plain(device.router(), device.call(0, 0, nullptr, 1), nullptr), cudaSuccess);
  EXPECT_EQ(launch_logits_decode(device.router(), device.call(0, 0, nullptr, 1), nullptr), cudaSuccess);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
}

// Rows whose sums lie beyond float 2^31 of the buffer (9.7 GB).
TEST_F(CudaLogits, SumsBeyond2To31) {
  constexpr std::int64_t kManyRows = 1 << 20, kExperts = 2304, kFirstBeyond = (std::int64_t{1} << 31) / kExperts - 32;
  const LogitsData data({Category::kNormal, kManyRows, 8, kExperts});
  DeviceLogits device(data, SAMEBITS_BF16);
  const cpu::GateWeight weight(data.weight(SAMEBITS_BF16));
  DeviceArray<float> sums(static_cast<std::size_t>(kManyRows * kExperts));
  for (const LaunchLogits& launch : {LaunchLogits(launch_logits_plain), LaunchLogits(launch_logits_decode)}) {
    sums.fill_bytes(0x5a);
    check(launch(device.router(), device.call(0, kManyRows, sums.data(), 1), nullptr), "launch");
    for (const std::int64_t first : {std::int64_t{0}, kFirstBeyond, kManyRows - 64}) {
      const std::vector<float> found = sums.read(static_cast<std::size_t>(first * kExperts), 64 * kExperts);
      expect_equal_bits(found, cpu_logits(data, weight, first, 64), data.shape, "sums beyond 2^31");
    }
  }
}

// Rows whose input lies beyond value 2^31 of the buffer (8.6 GB): 64 rows of data among rows of zeros.
TEST_F(CudaLogits, InputBeyond2To31) {
  constexpr std::int64_t kManyRows = 1 << 20, kHidden = 4096;
  constexpr std::int32_t kSums = 16;
  const LogitsData data({Category::kNormal, 64, kHidden, 1});
  DeviceLogits device(data, SAMEBITS_BF16);
  const std::vector<float> wanted = plain(device, 0, 64);
  DeviceArray<std::uint16_t> input(static_cast<std::size_t>(kManyRows * kHidden));
  input.fill_bytes(0);
  const std::int64_t places[] = {0, kManyRows / 2 - 32, kManyRows - 64};  // the second lies around 2^31
  for (const std::int64_t place : places) {
    check(cudaMemcpy2D(input.data() + place * kHidden, kHidden * 2, data.rows.data(),
                       static_cast<std::size_t>(data.stride) * 2, kHidden * 2, 64, cudaMemcpyDefault),
          "copy to the device");
  }
  DeviceArray<float> sums(static_cast<std::size_t>(kManyRows * device.row_sums(kSums)));
  for (const auto& [launch, num_sums] : {Form{launch_logits_plain, 1}, Form{launch_logits_decode, kSums}}) {
    CallView call = device.call(0, kManyRows, sums.data(), num_sums);
    call.input = input.data();
    call.input_stride = kHidden;
    check(launch(device.router(), call, nullptr), "launch");
    const auto row_sums = static_cast<std::size_t>(device.row_sums(num_sums));
    for (const std::int64_t place : places) {
      const std::vector<float> found = sums.read(static_cast<std::size_t>(place) * row_sums, 64 * row_sums);
      expect_equal_bits(device.fold(found, num_sums, 64), wanted, data.shape, "input beyond 2^31");
    }
  }
}

}  // namespace
}  // namespace samebits::cuda::test
