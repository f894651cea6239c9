// A row's answer is the same, by bits, alone and in every batch, at every place of it, whatever lies around it. Answers
// are compared on the device: ids, weights and logits.
#include <gtest/gtest.h>

#include <cstdio>
#include <map>
#include <string>
#include <vector>

#include "kernels/test_cuda/row_pool.h"
#include "kernels/test_cuda/select_case.h"

namespace samebits::cuda::test {
namespace {

// One router's batches: rows of the pool in some order, in a poisoned workspace, compared with the rows alone.
class Batches {
 public:
  Batches(const PoolOfRows& pool, std::int64_t max_rows)
      : pool_(pool),
        caller_(pool.router(), max_rows, nullptr),
        batch_(static_cast<std::size_t>(max_rows * pool.hidden_size())),
        token_ids_(static_cast<std::size_t>(max_rows)),
        row_class_(static_cast<std::size_t>(max_rows)),
        answers_(pool.router(), max_rows) {}

  void run(std::int64_t num_rows, const RowOrder& order) {
    gather_rows(pool_.row(0), order, num_rows, pool_.hidden_size(), batch_.data(), nullptr);
    const RowInfo all = pool_.info();
    const RowInfo info{gather_ints(all.token_ids, order, num_rows, token_ids_),
                       gather_ints(all.row_class, order, num_rows, row_class_)};
    answers_.poison(nullptr);
    caller_.poison_workspace();
    caller_.route(batch_.data(), num_rows, answers_, 0, nullptr, info);
    answers_.compare(num_rows, pool_.alone(), order, mismatches_.get(), nullptr);
    ++calls_[caller_.kernel_name()];
    rows_ += num_rows;
  }

  // Fails where a word of any answer differed.
  void expect_same() {
    check(cudaDeviceSynchronize(), "batches");
    EXPECT_EQ(mismatches_.read(), 0u) << "32-bit words of " << rows_ << " rows";
    std::printf("  rows of batches against the same rows alone: %lld rows, %lld logits; calls:",
                static_cast<long long>(rows_), static_cast<long long>(rows_ * pool_.gate_rows()));
    for (const auto& [name, calls] : calls_) std::printf(" %lld %s", static_cast<long long>(calls), name.c_str());
    std::printf("\n");
  }
  const std::map<std::string, std::int64_t>& calls() const { return calls_; }
  std::int64_t rows() const { return rows_; }

 private:
  static const std::int32_t* gather_ints(const std::int32_t* pool, const RowOrder& order, std::int64_t num_rows,
                                         const DeviceArray<std::int32_t>& batch) {
    if (pool == nullptr) return nullptr;
    gather_rows(pool, order, num_rows, 2, batch.data(), nullptr);
    return batch.data();
  }

  const PoolOfRows& pool_;
  Caller caller_;
  DeviceArray<std::uint16_t> batch_;
  DeviceArray<std::int32_t> token_ids_, row_class_;
  Answers answers_;
  Mismatches mismatches_;
  std::map<std::string, std::int64_t> calls_;
  std::int64_t rows_ = 0;
};

class BatchInvariance : public DeviceTest {};

struct Compared {
  const void *found, *wanted;
  std::int64_t width;
};

// Every batch of T rows, 1 <= T <= 8,193, has T different rows of the pool in an order of its own.
TEST_F(BatchInvariance, EveryRowCountOfGlm) {
  const PoolOfRows pool(glm_spec(), 1);
  pool.expect_alone_equal_the_cpu(17);
  Batches batches(pool, kPoolRows);
  for (std::int64_t num_rows = 1; num_rows <= kPoolRows; ++num_rows) {
    // A step that 3 and 2731 do not divide takes every row of the pool once.
    const std::int64_t step = 3 * num_rows + 1;
    batches.run(num_rows, {num_rows * 37, num_rows % 2 == 0 || step % 2731 == 0 ? 1 : step, kPoolRows});
  }
  batches.expect_same();
  EXPECT_EQ(batches.rows(), kPoolRows * (kPoolRows + 1) / 2);
}

constexpr std::int64_t kBatchSizes[] = {
    1,    2,    3,    4,    5,    7,    8,    9,    15,   16,   17,   31,   32,    33,    48,    49,    63,
    64,   65,   96,   116,  117,  127,  128,  129,  192,  193,  255,  256,  257,   511,   512,   513,   1023,
    1024, 1025, 2047, 2048, 2049, 4095, 4096, 4097, 8191, 8192, 8193, 8194, 13107, 13108, 65535, 65536, 65537};

struct SpecCase {
  const char* name;
  samebits_router_spec spec;
};

// Small H, so that many rows are cheap; H = 40 and 24 are padded, and their rows copied.
std::vector<SpecCase> spec_cases() {
  using cpu::test::plain_spec, cpu::test::sigmoid_bias_spec;
  std::vector<SpecCase> cases = {{"sigmoid, bias, top 8 of 288, H 64", sigmoid_bias_spec(64, 288, 8)},
                                 {"softmax, top 5 of 160, H 40", plain_spec(40, 160, 5)},
                                 {"sigmoid, bias, 8 groups, top 8 of 256, H 272", sigmoid_bias_spec(272, 256, 8)},
                                 {"sigmoid, bias, top 64 of 2304, H 24", sigmoid_bias_spec(24, 2304, 64)}};
  samebits_router_spec& grouped = cases[2].spec;
  grouped.n_group = 8, grouped.topk_group = 4;
  grouped.group_score = SAMEBITS_GROUP_SCORE_TOP2_SUM, grouped.group_mask = SAMEBITS_GROUP_MASK_NEG_INF;
  return cases;
}

TEST_F(BatchInvariance, BatchSizesAtWhichKernelsChange) {
  for (const SpecCase& c : spec_cases()) {
    SCOPED_TRACE(c.name);
    std::printf("  %s\n", c.name);
    const PoolOfRows pool(c.spec, 2);
    pool.expect_alone_equal_the_cpu(1);
    Batches batches(pool, 65537);
    for (const std::int64_t num_rows : kBatchSizes) {
      for (const RowOrder& order :
           {RowOrder{0, 1, kPoolRows}, RowOrder{5000, 4096, kPoolRows}, RowOrder{num_rows * 11, 8192, kPoolRows}}) {
        batches.run(num_rows, order);
      }
    }
    batches.expect_same();
  }
}

// Specs of every feature, each with rows without an answer: their class or token id does not exist.
TEST_F(BatchInvariance, DrawnSpecs) {
  constexpr std::int32_t kHiddenSizes[] = {8, 40, 256, 272};
  constexpr std::uint64_t kSpecs = 24;
  for (std::uint64_t seed = 0; seed < kSpecs; ++seed) {
    samebits_router_spec spec = draw_spec(seed + 1000);
    spec.hidden_size = kHiddenSizes[seed % std::size(kHiddenSizes)];
    if (seed % 3 == 0) spec.input_norm = SAMEBITS_INPUT_NORM_RMSNORM_UNWEIGHTED, spec.input_norm_eps = 1e-6f;
    spec.input_scale_vector = seed % 4 == 1;
    SCOPED_TRACE("seed " + std::to_string(seed));
    const PoolOfRows pool(spec, seed);
    pool.expect_alone_equal_the_cpu(1);
    Batches batches(pool, kPoolRows + 1);
    for (const std::int64_t num_rows : kBatchSizes) {
      if (num_rows <= kPoolRows + 1) batches.run(num_rows, {num_rows * 11, 8192, kPoolRows});
    }
    batches.expect_same();
    if (HasFailure()) return;
  }
}

// One row at each place of a batch whose other rows are all NaN, or all Inf, or huge.
TEST_F(BatchInvariance, NonFiniteNeighbours) {
  constexpr std::int64_t kRow = 3, kMaxRows = 520;
  constexpr std::uint16_t kNeighbours[] = {0x7fff, 0x7f80, 0xff80, 0x7f7f};
  for (const samebits_router_spec& spec : {glm_spec(), cpu::test::sigmoid_bias_spec(40, 160, 6)}) {
    const PoolOfRows pool(spec, 3);
    const std::int64_t h = pool.hidden_size();
    Caller caller(pool.router(), kMaxRows, nullptr);
    const Answers answers(pool.router(), kMaxRows);
    const Bookkeeping bookkeeping(pool.router(), kMaxRows);  // with which up to 16 rows are one launch
    const Mismatches mismatches;
    std::int64_t compared = 0;
    for (const std::uint16_t neighbour : kNeighbours) {
      const DeviceArray<std::uint16_t> batch(
          std::vector<std::uint16_t>(static_cast<std::size_t>(kMaxRows * h), neighbour));
      for (const std::int64_t num_rows : {2, 8, 9, 17, 64, 65, 256, 257, 520}) {
        for (std::int64_t place = 0; place < num_rows; ++place) {
          std::uint16_t* at = batch.data() + place * h;
          const auto bytes = static_cast<std::size_t>(h) * 2;
          check(cudaMemcpyAsync(at, pool.row(kRow), bytes, cudaMemcpyDeviceToDevice), "copy");
          caller.poison_workspace();
          caller.route(batch.data(), num_rows, answers, 0, nullptr, {}, place % 2 == 0 ? &bookkeeping : nullptr);
          for (const auto& [found, wanted, width] :
               {Compared{answers.ids(place), pool.alone().ids(kRow), pool.columns()},
                Compared{answers.weights(place), pool.alone().weights(kRow), pool.columns()},
                Compared{answers.logits(place), pool.alone().logits(kRow), pool.gate_rows()}}) {
            count_different(found, wanted, {0, 1, 1}, 1, width, mismatches.get(), nullptr);
          }
          const std::uint16_t* other = batch.data() + (place == 0 ? num_rows - 1 : 0) * h;
          if (num_rows > 1) check(cudaMemcpyAsync(at, other, bytes, cudaMemcpyDeviceToDevice), "copy");
          ++compared;
        }
      }
    }
    check(cudaDeviceSynchronize(), "neighbours");
    EXPECT_EQ(mismatches.read(), 0u) << "32-bit words of " << compared << " rows, H " << h;
    std::printf("  a row among other rows that are all NaN, Inf, -Inf or the largest bf16, H %lld: %lld places\n",
                static_cast<long long>(h), static_cast<long long>(compared));
  }
}

}  // namespace
}  // namespace samebits::cuda::test
