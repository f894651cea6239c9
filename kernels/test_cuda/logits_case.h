// A gate and rows for the forms of the logits: made on the host, run on the device or by the CPU backend.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <ostream>
#include <vector>

#include "kernels/cpu/simd.h"
#include "kernels/cuda/launch.h"
#include "kernels/logits/pack.h"
#include "kernels/logits/prefill.h"
#include "kernels/test/data_categories.h"
#include "kernels/test_cuda/device_array.h"

namespace samebits::cuda::test {

using cpu::test::Category;

struct LogitsShape {
  Category category;
  std::int64_t num_rows;
  std::int32_t hidden_size, gate_rows;
};

inline std::ostream& operator<<(std::ostream& out, const LogitsShape& shape) {
  return out << "category " << static_cast<int>(shape.category) << ", H = " << shape.hidden_size
             << ", G = " << shape.gate_rows;
}

// Host data of both weight dtypes.
struct LogitsData {
  explicit LogitsData(const LogitsShape& data_shape)
      : shape(data_shape), stride(padded_hidden_size(data_shape.hidden_size) + 8) {
    // Behind the padded columns lies what must not be read: NaN.
    rows.assign(static_cast<std::size_t>(shape.num_rows * stride), 0x7fc1);
    for (std::int64_t t = 0; t < shape.num_rows; ++t) {
      std::uint16_t* row = rows.data() + t * stride;
      std::fill(row, row + padded_hidden_size(shape.hidden_size), std::uint16_t{0});
      for (std::int64_t k = 0; k < shape.hidden_size; ++k)
        row[k] = cpu::test::operand(shape.category, 0, static_cast<std::uint64_t>(t), k);
    }
    for (std::int64_t g = 0; g < shape.gate_rows; ++g) {
      for (std::int64_t k = 0; k < shape.hidden_size; ++k) {
        const std::uint16_t bits = cpu::test::operand(shape.category, 1, static_cast<std::uint64_t>(g), k);
        bf16_weights.push_back(bits);
        // The lower half of an fp32 weight: often any bits, also where that makes an Inf a NaN or a 0 a tiny number.
        const std::uint64_t draw = cpu::test::draw(static_cast<std::uint64_t>(g) + 77, static_cast<std::uint64_t>(k));
        const bool special = (bits & 0x7fff) == 0 || (bits & 0x7fff) == 0x7f80;
        const auto lower = (draw >> 32) % (special ? 2 : 4) == 0 ? 0u : static_cast<std::uint32_t>(draw & 0xffff);
        fp32_weights.push_back(std::bit_cast<float>(std::uint32_t{bits} << 16 | lower));
      }
    }
  }

  samebits_tensor weight(std::int32_t dtype) const {
    const void* data = dtype == SAMEBITS_FP32 ? static_cast<const void*>(fp32_weights.data()) : bf16_weights.data();
    return {const_cast<void*>(data), shape.gate_rows, shape.hidden_size, shape.hidden_size, dtype, 0};
  }

  LogitsShape shape;
  std::int64_t stride;
  std::vector<std::uint16_t> rows;  // [num_rows][stride]
  std::vector<std::uint16_t> bf16_weights;
  std::vector<float> fp32_weights;
};

// The unfinished logits of rows [first, first + n) by the CPU backend, [n][G].
inline std::vector<float> cpu_logits(const LogitsData& data, const cpu::GateWeight& weight, std::int64_t first,
                                     std::int64_t n) {
  std::vector<float> logits(static_cast<std::size_t>(n * data.shape.gate_rows));
  cpu::multiply_rows(weight, data.rows.data() + first * data.stride, data.stride, n, 0, data.shape.hidden_size,
                     logits.data(), data.shape.gate_rows);
  return logits;
}

using LaunchLogits = std::function<cudaError_t(const RouterView&, const CallView&, cudaStream_t)>;

// One weight dtype of such data on the device.
class DeviceLogits {
 public:
  DeviceLogits(const LogitsData& data, std::int32_t dtype)
      : shape_(data.shape), stride_(data.stride), rows_(data.rows) {
    router_.hidden_size = shape_.hidden_size;
    router_.padded_hidden_size = static_cast<std::int32_t>(padded_hidden_size(shape_.hidden_size));
    router_.num_chunks = static_cast<std::int32_t>(num_chunks(shape_.hidden_size));
    router_.num_parts = num_parts(dtype);
    router_.gate_rows = shape_.gate_rows;
    router_.padded_gate_rows = static_cast<std::int32_t>(round_up(shape_.gate_rows, kGateRowPad));
    const std::vector<std::uint16_t> rows = split_rows(data.weight(dtype), shape_.gate_rows, shape_.hidden_size);
    weight_rows_ = std::make_unique<DeviceArray<std::uint16_t>>(rows);
    weight_fragments_ = std::make_unique<DeviceArray<std::uint16_t>>(
        pack_fragments(rows, router_.num_parts, router_.padded_gate_rows, router_.padded_hidden_size));
    weight_tiles_ = std::make_unique<DeviceArray<std::uint16_t>>(
        pack_tiles(rows, router_.num_parts, router_.padded_gate_rows, router_.padded_hidden_size));
    router_.weight_rows = weight_rows_->data();
    router_.weight_tiles = weight_tiles_->data();
    router_.weight_fragments = weight_fragments_->data();
  }

  const LogitsShape& shape() const { return shape_; }
  RouterView& router() { return router_; }
  DeviceArray<std::uint16_t>& rows() { return rows_; }

  // A call of rows [first, first + n) that fills `sums`.
  CallView call(std::int64_t first, std::int64_t n, float* sums, std::int32_t num_sums) const {
    CallView view{};
    view.num_tokens = n;
    view.input = rows_.data() + first * stride_;
    view.input_stride = stride_;
    view.sums = sums;
    view.num_sums = num_sums;
    return view;
  }

  // Floats of the sums of one row.
  std::int64_t row_sums(std::int32_t num_sums) const { return std::int64_t{num_sums} * router_.padded_gate_rows; }

  // The logits [n][G] of rows [first, first + n); with `alone`, of one call a row. Fails where a call writes past its
  // rows.
  std::vector<float> run(const LaunchLogits& launch, std::int32_t num_sums, std::int64_t first, std::int64_t n,
                         bool alone = false) const {
    constexpr int kGuard = 0x5a;
    DeviceArray<float> sums(static_cast<std::size_t>((n + 1) * row_sums(num_sums)));
    sums.fill_bytes(kGuard);
    for (std::int64_t t = 0; t < n; t += alone ? 1 : n) {
      const CallView view = call(first + t, alone ? 1 : n, sums.data() + t * row_sums(num_sums), num_sums);
      check(launch(router_, view, nullptr), "launch");
    }
    const std::vector<float> found = sums.read();
    for (std::int64_t i = n * row_sums(num_sums); i < (n + 1) * row_sums(num_sums); ++i) {
      if (std::bit_cast<std::uint32_t>(found[static_cast<std::size_t>(i)]) != 0x5a5a5a5au) {
        ADD_FAILURE() << shape_ << ": a call of " << n << " rows wrote behind them";
        break;
      }
    }
    return fold(found, num_sums, n);
  }

  // Sums [n][num_sums][Gp], added left to right: [n][G].
  std::vector<float> fold(const std::vector<float>& sums, std::int32_t num_sums, std::int64_t n) const {
    std::vector<float> logits(static_cast<std::size_t>(n * shape_.gate_rows));
    for (std::int64_t t = 0; t < n; ++t) {
      float* row = logits.data() + t * shape_.gate_rows;
      const float* from = sums.data() + t * row_sums(num_sums);
      std::copy(from, from + shape_.gate_rows, row);
      for (std::int32_t p = 1; p < num_sums; ++p) {
        const float* part = from + std::int64_t{p} * router_.padded_gate_rows;
        for (std::int32_t g = 0; g < shape_.gate_rows; ++g) row[g] += part[g];
      }
      if (num_sums == 1) continue;
      for (std::int32_t g = 0; g < shape_.gate_rows; ++g)
        if (std::isnan(row[g])) row[g] = std::bit_cast<float>(0x7fffffffu);
    }
    return logits;
  }

 private:
  LogitsShape shape_;
  std::int64_t stride_;
  DeviceArray<std::uint16_t> rows_;
  std::unique_ptr<DeviceArray<std::uint16_t>> weight_rows_, weight_fragments_, weight_tiles_;
  RouterView router_{};
};

// How many logits of `found` [n][G] differ in a bit from those of `wanted`, which may have more rows; says where.
inline std::int64_t expect_equal_bits(const std::vector<float>& found, const std::vector<float>& wanted,
                                      const LogitsShape& shape, const char* what) {
  std::int64_t different = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto bits = std::bit_cast<std::uint32_t>(found[i]), right = std::bit_cast<std::uint32_t>(wanted[i]);
    if (bits == right) continue;
    if (++different == 1) {
      const auto columns = static_cast<std::size_t>(shape.gate_rows);
      ADD_FAILURE() << what << ", " << shape << ", row " << i / columns << ", expert " << i % columns << ": 0x"
                    << std::hex << bits << ", not 0x" << right;
    }
  }
  EXPECT_EQ(different, 0) << what << ", " << shape << ", of " << found.size() << " logits";
  return different;
}

}  // namespace samebits::cuda::test
