// Bits do not depend on the number of rows, the position of a row, its neighbours, threads or the SIMD target.
#include <gtest/gtest.h>

#include <cfenv>
#include <thread>
#include <vector>
#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include "kernels/test/simd_target.h"
#include "kernels/test/test_router.h"

namespace samebits::cpu::test {
namespace {

constexpr std::int32_t kHidden = 600, kExperts = 70, kTopK = 6;
constexpr std::int64_t kRows = 83;

class Invariance : public ::testing::Test {
 protected:
  Invariance() : hidden_(normal_bf16(11, kRows * kHidden)) {
    hidden_[3 * kHidden + 5] = 0x7fc0;  // row 3: NaN
    hidden_[20 * kHidden] = 0x7f80;     // row 20: Inf
    for (std::int64_t k = 0; k < kHidden; ++k) hidden_[static_cast<std::size_t>(40 * kHidden + k)] = 0;
  }
  ~Invariance() override { set_num_threads(0); }

  void expect_rows(const Routed& found, std::int64_t found_first, const Routed& all, std::int64_t first,
                   std::int64_t count) const {
    EXPECT_TRUE(same_bits(rows_of(found.ids, kTopK, found_first, count), rows_of(all.ids, kTopK, first, count)));
    EXPECT_TRUE(
        same_bits(rows_of(found.weights, kTopK, found_first, count), rows_of(all.weights, kTopK, first, count)));
    EXPECT_TRUE(
        same_bits(rows_of(found.logits, kExperts, found_first, count), rows_of(all.logits, kExperts, first, count)));
  }

  samebits_router_spec spec_ = sigmoid_bias_spec(kHidden, kExperts, kTopK);
  TestRouter router_{spec_, random_constants(spec_, 5)};
  std::vector<std::uint16_t> hidden_;
};

TEST_F(Invariance, NumberOfRows) {
  const Routed all = router_.route(hidden_);
  for (const std::int64_t count : {1, 2, 15, 16, 17, 31, 32, 33, 64, 82}) {
    SCOPED_TRACE(count);
    expect_rows(router_.route(rows_of(hidden_, kHidden, 0, count)), 0, all, 0, count);
  }
}

TEST_F(Invariance, PositionAndNeighbours) {
  const Routed all = router_.route(hidden_);
  std::vector<std::uint16_t> reversed;
  for (std::int64_t r = kRows - 1; r >= 0; --r) {
    const auto row = rows_of(hidden_, kHidden, r, 1);
    reversed.insert(reversed.end(), row.begin(), row.end());
  }
  const Routed backwards = router_.route(reversed);
  for (std::int64_t r = 0; r < kRows; ++r) {
    SCOPED_TRACE(r);
    expect_rows(backwards, kRows - 1 - r, all, r, 1);
    if (r % 9 == 3) expect_rows(router_.route(rows_of(hidden_, kHidden, r, 1)), 0, all, r, 1);
  }
}

TEST_F(Invariance, Threads) {
  set_num_threads(1);
  const Routed one = router_.route(hidden_);
  for (const int threads : {2, 3, 7}) {
    SCOPED_TRACE(threads);
    set_num_threads(threads);
    expect_rows(router_.route(hidden_), 0, one, 0, kRows);
  }
}

TEST_F(Invariance, SimdTarget) {
  const Routed best = router_.route(hidden_);
  for (const std::int64_t target : simd_targets()) {
    const ForcedTarget forced(target);
    SCOPED_TRACE(hwy::TargetName(target));
    const Routed routed = router_.route(hidden_);
    EXPECT_EQ(routed.kernel_name, std::string("cpu/tc256/") + hwy::TargetName(target));
    expect_rows(routed, 0, best, 0, kRows);
  }
}

TEST_F(Invariance, RunToRunAndPoison) {
  CallOptions other;
  other.poison = 0x7fffffffu;
  expect_rows(router_.route(hidden_, other), 0, router_.route(hidden_), 0, kRows);
}

TEST_F(Invariance, ConcurrentCallers) {
  set_num_threads(2);
  const Routed expected = router_.route(hidden_);
  std::vector<Routed> found(4);
  std::vector<std::thread> callers;
  for (Routed& result : found) callers.emplace_back([&result, this] { result = router_.route(hidden_); });
  for (std::thread& caller : callers) caller.join();
  for (const Routed& result : found) expect_rows(result, 0, expected, 0, kRows);
}

// Programs linked with -ffast-math flush subnormals; a caller may have set any rounding. Neither reaches the router.
TEST_F(Invariance, FloatingPointModeOfTheCaller) {
  auto small = normal_bf16(3, 4 * kHidden, 0x1p-120f);
  const Routed expected = router_.route(small), expected_normal = router_.route(hidden_);
  std::fesetround(FE_UPWARD);
#if defined(__SSE__)
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040u);  // flush to zero, denormals are zero
#endif
  const Routed found = router_.route(small), found_normal = router_.route(hidden_);
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
#if defined(__SSE__)
  EXPECT_EQ(_mm_getcsr() & 0x8040u, 0x8040u);
  _mm_setcsr(before);
#endif
  std::fesetround(FE_TONEAREST);
  expect_rows(found, 0, expected, 0, 4);
  expect_rows(found_normal, 0, expected_normal, 0, kRows);
}

}  // namespace
}  // namespace samebits::cpu::test
