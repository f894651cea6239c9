// Bits do not depend on the number of rows, the position of a row, its neighbours, threads or the SIMD target.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <string>
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

// A spec, named after what it has.
struct Case {
  const char* name;
  void (*change)(samebits_router_spec&);
};

// Together they have every feature.
const Case kCases[] = {
    {"sigmoid_bias", [](samebits_router_spec&) {}},
    {"prepared_input_softcap_scales",
     [](samebits_router_spec& s) {
       s.input_norm = SAMEBITS_INPUT_NORM_RMSNORM_UNWEIGHTED, s.input_norm_eps = 1e-6f;
       s.input_scale_vector = 1, s.input_scale_rsqrt_hidden_size = 2;
       s.temperature = 0.7f, s.softcap = 1.5f;
       s.per_expert_scale = s.global_scale = 1;
     }},
    {"classes_biased_zero_experts",
     [](samebits_router_spec& s) {
       s.score_func = SAMEBITS_SCORE_SOFTMAX, s.num_bias_variants = 3, s.weight_source = SAMEBITS_WEIGHT_BIASED_SCORE;
       s.zero_experts = 20, s.zero_type = SAMEBITS_ZERO_EXPERTS_IDENTITY_REMAPPED_TO_ID0_WEIGHT0;
     }},
    {"hash_table_identity_shared",
     [](samebits_router_spec& s) {
       s.selection_bias_dtype = SAMEBITS_DTYPE_NONE, s.score_func = SAMEBITS_SCORE_IDENTITY;
       s.selection_method = SAMEBITS_SELECT_HASH_TABLE, s.hash_vocab_size = 50;
       s.shared_experts = 3, s.shared_mode = SAMEBITS_SHARED_IN_GATE;
     }},
    {"log_space_shared_per_group",
     [](samebits_router_spec& s) {
       s.renormalize = SAMEBITS_RENORM_LOG_SPACE_L1, s.eps_mode = SAMEBITS_EPS_NONE, s.eps = 0;
       s.shared_experts = 2, s.shared_mode = SAMEBITS_SHARED_IN_GATE;
       s.n_group = s.topk_group = 2, s.topk_scope = SAMEBITS_TOPK_PER_GROUP;
     }},
    {"sparsemixer",
     [](samebits_router_spec& s) {
       s.selection_bias_dtype = SAMEBITS_DTYPE_NONE, s.score_func = SAMEBITS_SCORE_SOFTMAX;
       s.rank_by = SAMEBITS_RANK_BY_LOGIT;
       s.selection_method = SAMEBITS_SELECT_SPARSEMIXER, s.sparsemixer_jitter_eps = 0.3f;
     }},
};

samebits_router_spec spec_of(const Case& c) {
  samebits_router_spec spec = sigmoid_bias_spec(kHidden, kExperts, kTopK);
  c.change(spec);
  return spec;
}

// What the rows [first, first + count) of the whole batch are beside their hidden states; a few have no answer.
CallOptions row_options(std::int64_t first, std::int64_t count) {
  CallOptions options;
  for (std::int64_t r = first; r < first + count; ++r) {
    options.token_ids.push_back(static_cast<std::int32_t>(r * 7 % 52 - 1));
    options.row_class.push_back(static_cast<std::int32_t>(r % 10 == 9 ? 7 : r % 3));
  }
  return options;
}

class Invariance : public ::testing::TestWithParam<Case> {
 protected:
  Invariance() : hidden_(normal_bf16(11, kRows * kHidden)) {
    hidden_[3 * kHidden + 5] = 0x7fc0;  // row 3: NaN
    hidden_[20 * kHidden] = 0x7f80;     // row 20: Inf
    for (std::int64_t k = 0; k < kHidden; ++k) hidden_[static_cast<std::size_t>(40 * kHidden + k)] = 0;
  }
  ~Invariance() override { set_num_threads(0); }

  Routed route_all(CallOptions options = row_options(0, kRows)) const { return router_.route(hidden_, options); }
  Routed route_rows(std::int64_t first, std::int64_t count) const {
    return router_.route(rows_of(hidden_, kHidden, first, count), row_options(first, count));
  }

  void expect_rows(const Routed& found, std::int64_t found_first, const Routed& all, std::int64_t first,
                   std::int64_t count) const {
    const std::int64_t k = columns_of(spec_), g = rows_of_gate(spec_);
    EXPECT_TRUE(same_bits(rows_of(found.ids, k, found_first, count), rows_of(all.ids, k, first, count)));
    EXPECT_TRUE(same_bits(rows_of(found.weights, k, found_first, count), rows_of(all.weights, k, first, count)));
    EXPECT_TRUE(same_bits(rows_of(found.logits, g, found_first, count), rows_of(all.logits, g, first, count)));
  }

  samebits_router_spec spec_ = spec_of(GetParam());
  TestRouter router_{spec_, random_constants(spec_, 5)};
  std::vector<std::uint16_t> hidden_;
};

TEST_P(Invariance, NumberOfRows) {
  const Routed all = route_all();
  for (const std::int64_t count : {1, 2, 15, 16, 17, 31, 32, 33, 64, 82}) {
    SCOPED_TRACE(count);
    expect_rows(route_rows(0, count), 0, all, 0, count);
  }
}

TEST_P(Invariance, PositionAndNeighbours) {
  const Routed all = route_all();
  std::vector<std::uint16_t> reversed;
  CallOptions options = row_options(0, kRows);
  std::reverse(options.token_ids.begin(), options.token_ids.end());
  std::reverse(options.row_class.begin(), options.row_class.end());
  for (std::int64_t r = kRows - 1; r >= 0; --r) {
    const auto row = rows_of(hidden_, kHidden, r, 1);
    reversed.insert(reversed.end(), row.begin(), row.end());
  }
  const Routed backwards = router_.route(reversed, options);
  for (std::int64_t r = 0; r < kRows; ++r) {
    SCOPED_TRACE(r);
    expect_rows(backwards, kRows - 1 - r, all, r, 1);
    if (r % 9 == 3) expect_rows(route_rows(r, 1), 0, all, r, 1);
  }
}

TEST_P(Invariance, Threads) {
  set_num_threads(1);
  const Routed one = route_all();
  for (const int threads : {2, 3, 7}) {
    SCOPED_TRACE(threads);
    set_num_threads(threads);
    expect_rows(route_all(), 0, one, 0, kRows);
  }
}

TEST_P(Invariance, SimdTarget) {
  const Routed best = route_all();
  for (const std::int64_t target : simd_targets()) {
    const ForcedTarget forced(target);
    SCOPED_TRACE(hwy::TargetName(target));
    const Routed routed = route_all();
    EXPECT_EQ(routed.kernel_name, std::string("cpu/tc256/") + hwy::TargetName(target));
    expect_rows(routed, 0, best, 0, kRows);
  }
}

TEST_P(Invariance, RunToRunAndPoison) {
  CallOptions other = row_options(0, kRows);
  other.poison = 0x7fffffffu;
  expect_rows(route_all(other), 0, route_all(), 0, kRows);
}

TEST_P(Invariance, ConcurrentCallers) {
  set_num_threads(2);
  const Routed expected = route_all();
  std::vector<Routed> found(4);
  std::vector<std::thread> callers;
  for (Routed& result : found) callers.emplace_back([&result, this] { result = route_all(); });
  for (std::thread& caller : callers) caller.join();
  for (const Routed& result : found) expect_rows(result, 0, expected, 0, kRows);
}

// Programs linked with -ffast-math flush subnormals; a caller may have set any rounding. Neither reaches the router.
TEST_P(Invariance, FloatingPointModeOfTheCaller) {
  auto small = normal_bf16(3, 4 * kHidden, 0x1p-120f);
  const Routed expected = router_.route(small, row_options(0, 4)), expected_normal = route_all();
  std::fesetround(FE_UPWARD);
#if defined(__SSE__)
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040u);  // flush to zero, denormals are zero
#endif
  const Routed found = router_.route(small, row_options(0, 4)), found_normal = route_all();
  EXPECT_EQ(std::fegetround(), FE_UPWARD);
#if defined(__SSE__)
  EXPECT_EQ(_mm_getcsr() & 0x8040u, 0x8040u);
  _mm_setcsr(before);
#endif
  std::fesetround(FE_TONEAREST);
  expect_rows(found, 0, expected, 0, 4);
  expect_rows(found_normal, 0, expected_normal, 0, kRows);
}

INSTANTIATE_TEST_SUITE_P(Features, Invariance, ::testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace samebits::cpu::test
