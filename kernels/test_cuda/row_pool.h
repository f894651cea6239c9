// Routers and pools of rows for the laws of batch invariance: what a row's answer is must not depend on its batch.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/test/data_categories.h"
#include "kernels/test/test_router.h"
#include "kernels/test_cuda/answers.h"

namespace samebits::cuda::test {

inline constexpr std::int64_t kPoolRows = 8193;  // 3 * 2731

// Random constants, but gate row E/2 + i equals gate row i for i < E/16, and so does the first class's
// selection bias: ties.
inline cpu::test::Constants tied_constants(const samebits_router_spec& spec, std::uint64_t seed) {
  cpu::test::Constants constants = cpu::test::random_constants(spec, seed);
  const std::int64_t e = spec.num_experts, h = spec.hidden_size;
  for (std::int64_t i = 0; i < e / 16; ++i) {
    std::copy_n(constants.gate_weight.begin() + i * h, h, constants.gate_weight.begin() + (e / 2 + i) * h);
    if (constants.selection_bias.empty()) continue;
    constants.selection_bias[static_cast<std::size_t>(e / 2 + i)] =
        constants.selection_bias[static_cast<std::size_t>(i)];
  }
  return constants;
}

// Of 32 rows 16 are normal, 12 of the kinds of data_categories.h, and one each is zero, tiny, so large that scores
// saturate, and normal but for one NaN or Inf.
inline std::vector<std::uint16_t> make_pool(std::int64_t hidden_size) {
  using cpu::test::Category, cpu::test::operand, cpu::test::upper_half, cpu::test::draw_normal;
  std::vector<std::uint16_t> pool(static_cast<std::size_t>(kPoolRows * hidden_size));
  for (std::int64_t t = 0; t < kPoolRows; ++t) {
    const auto index = static_cast<std::uint64_t>(t);
    const std::int64_t kind = t % 32;
    std::uint16_t* row = pool.data() + t * hidden_size;
    for (std::int64_t k = 0; k < hidden_size; ++k) {
      const auto normal = [&](float sigma) {
        return upper_half(sigma * draw_normal(index + 1000, static_cast<std::uint64_t>(k)));
      };
      row[k] = kind < 16    ? normal(1.0f)
               : kind < 28  ? operand(static_cast<Category>(kind - 16), 0, index, k)
               : kind == 28 ? std::uint16_t{0}
               : kind == 29 ? normal(0x1p-20f)
               : kind == 30 ? normal(64.0f)
                            : normal(1.0f);
    }
    constexpr std::uint16_t kSpecial[] = {0x7fc1, 0x7f80, 0xff80};
    if (kind == 31) row[t * 7 % hidden_size] = kSpecial[t / 32 % 3];
  }
  return pool;
}

// A value in [0, n) for each row of the pool, and one in 13 that is n; none where n is 0.
inline std::vector<std::int32_t> draw_row_values(std::uint64_t seed, std::int32_t n) {
  std::vector<std::int32_t> values;
  for (std::uint64_t t = 0; n > 0 && t < kPoolRows; ++t) {
    const std::uint64_t bits = cpu::test::draw(seed, t);
    values.push_back(bits % 13 == 0 ? n : static_cast<std::int32_t>((bits >> 8) % static_cast<std::uint64_t>(n)));
  }
  return values;
}

// A router, its pool, and the answer of each row of the pool in a call of its own.
class PoolOfRows {
 public:
  PoolOfRows(const samebits_router_spec& spec, std::uint64_t seed)
      : spec_(spec),
        constants_(tied_constants(spec, seed)),
        host_token_ids_(draw_row_values(seed + 1, spec.hash_vocab_size)),
        host_row_class_(draw_row_values(seed + 2, spec.num_bias_variants > 1 ? spec.num_bias_variants : 0)),
        router_(spec, cpu::test::abi_constants(spec, constants_)),
        host_rows_(make_pool(spec.hidden_size)),
        rows_(host_rows_),
        token_ids_(host_token_ids_),
        row_class_(host_row_class_),
        alone_(router_, kPoolRows) {
    Caller caller(router_, 1, nullptr);
    alone_.poison(nullptr);
    for (std::int64_t t = 0; t < kPoolRows; ++t) {
      caller.poison_workspace();
      const RowInfo all = info();
      caller.route(row(t), 1, alone_, t, nullptr,
                   {all.token_ids == nullptr ? nullptr : all.token_ids + t,
                    all.row_class == nullptr ? nullptr : all.row_class + t});
    }
    check(cudaDeviceSynchronize(), "rows alone");
  }

  const DeviceRouter& router() const { return router_; }
  std::int64_t hidden_size() const { return spec_.hidden_size; }
  std::int64_t columns() const { return cpu::test::columns_of(spec_); }
  std::int64_t gate_rows() const { return cpu::test::rows_of_gate(spec_); }
  const Answers& alone() const { return alone_; }
  const std::uint16_t* row(std::int64_t t) const { return rows_.data() + t * hidden_size(); }

  // Of all rows of the pool.
  RowInfo info() const {
    return {host_token_ids_.empty() ? nullptr : token_ids_.data(),
            host_row_class_.empty() ? nullptr : row_class_.data()};
  }

  // Compares the answers of every `step`-th row with those of the CPU backend, by bits.
  void expect_alone_equal_the_cpu(std::int64_t step) const {
    const std::int64_t h = hidden_size(), k = columns(), g = gate_rows();
    std::vector<std::uint16_t> hidden;
    cpu::test::CallOptions options;
    for (std::int64_t t = 0; t < kPoolRows; t += step) {
      hidden.insert(hidden.end(), host_rows_.begin() + t * h, host_rows_.begin() + (t + 1) * h);
      const auto index = static_cast<std::size_t>(t);
      if (!host_token_ids_.empty()) options.token_ids.push_back(host_token_ids_[index]);
      if (!host_row_class_.empty()) options.row_class.push_back(host_row_class_[index]);
    }
    const cpu::test::Routed wanted = cpu::test::TestRouter(spec_, constants_).route(hidden, options);
    const std::vector<std::int32_t> ids = read(alone_.ids(0), k);
    const std::vector<float> weights = read(alone_.weights(0), k), logits = read(alone_.logits(0), g);
    using cpu::test::rows_of, cpu::test::same_bits;
    std::int64_t different = 0, compared = 0;
    for (std::int64_t t = 0; t < kPoolRows; t += step, ++compared) {
      const bool same = same_bits(rows_of(ids, k, t, 1), rows_of(wanted.ids, k, compared, 1)) &&
                        same_bits(rows_of(weights, k, t, 1), rows_of(wanted.weights, k, compared, 1)) &&
                        same_bits(rows_of(logits, g, t, 1), rows_of(wanted.logits, g, compared, 1));
      if (!same && ++different == 1) ADD_FAILURE() << "row " << t << " of the pool differs from the CPU backend's";
    }
    EXPECT_EQ(different, 0) << "of " << compared << " rows";
    std::printf("  rows alone against the CPU backend: %lld rows, %lld logits\n", static_cast<long long>(compared),
                static_cast<long long>(compared * g));
  }

 private:
  template <class T>
  static std::vector<T> read(const T* from, std::int64_t columns) {
    std::vector<T> values(static_cast<std::size_t>(kPoolRows * columns));
    check(cudaMemcpy(values.data(), from, values.size() * sizeof(T), cudaMemcpyDeviceToHost), "copy from the device");
    return values;
  }

  samebits_router_spec spec_;
  cpu::test::Constants constants_;
  std::vector<std::int32_t> host_token_ids_, host_row_class_;  // empty where the spec reads none
  DeviceRouter router_;
  std::vector<std::uint16_t> host_rows_;
  DeviceArray<std::uint16_t> rows_;
  DeviceArray<std::int32_t> token_ids_, row_class_;
  Answers alone_;
};

// How many 32-bit words of answers were not what they should be, counted on the device.
class Mismatches {
 public:
  Mismatches() : count_(std::vector<std::uint64_t>{0}) {}
  std::uint64_t* get() const { return count_.data(); }
  std::uint64_t read() const { return count_.read().front(); }

 private:
  DeviceArray<std::uint64_t> count_;
};

// GLM-5.3-Flash: 288 experts, H 4,096, top 8, sigmoid scores, fp32 bias, renormalised with 1e-20, scale 2.5.
inline samebits_router_spec glm_spec() {
  return cpu::test::sigmoid_bias_spec(4096, 288, 8);
}

}  // namespace samebits::cuda::test
