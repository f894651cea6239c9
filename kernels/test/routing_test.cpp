// Selection and weights from given logits: small answers by hand, and one clause of the contract each.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/common/bits.h"
#include "kernels/cpu/select.h"
#include "kernels/cpu/simd.h"
#include "kernels/test/test_router.h"

namespace samebits::cpu::test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNaN = std::numeric_limits<float>::quiet_NaN();

using Ids = std::vector<std::int32_t>;
using Floats = std::vector<float>;

float sigmoid(float x) {
  return apply_elementwise(Elementwise::kSigmoid, x);
}

// A row of logits through a router without a gate weight.
Routed route_row(const samebits_router_spec& spec, const Floats& logits, const Floats& selection_bias = {}) {
  Constants constants;
  constants.selection_bias = selection_bias;
  return TestRouter(spec, constants).route_from_logits(logits);
}

samebits_router_spec sigmoid_spec(std::int32_t num_experts, std::int32_t top_k) {
  samebits_router_spec spec = plain_spec(0, num_experts, top_k);
  spec.score_func = SAMEBITS_SCORE_SIGMOID;
  return spec;
}

TEST(Selection, LargestFirstThenLowerId) {
  EXPECT_EQ(route_row(sigmoid_spec(6, 3), {0, 2, 1, 2, 1, 1}).ids, (Ids{1, 3, 2}));
  EXPECT_EQ(route_row(sigmoid_spec(4, 4), {0, 0, 0, 0}).ids, (Ids{0, 1, 2, 3}));
  EXPECT_EQ(route_row(sigmoid_spec(5, 2), {-1, -0.0f, 0.0f, -0.0f, -2}).ids, (Ids{1, 2}));
}

// Both ways of choosing, on keys with many ties, NaN, infinities and both zeros, with and without excluded entries.
TEST(Selection, TheHeapChoosesWhatTheListChooses) {
  const Floats values = {0.0f, -0.0f, kNaN, kInf, -kInf, 1.0f, 1.0f, -2.0f, 3.5f, 0x1p-149f};
  for (const std::int64_t n : {1, 2, 65, 200}) {
    Floats keys(static_cast<std::size_t>(n));
    std::vector<std::uint8_t> excluded(keys.size());
    for (std::size_t i = 0; i < keys.size(); ++i) {
      keys[i] = values[draw(1, i) % values.size()];
      excluded[i] = draw(2, i) % 4 == 0;
    }
    const auto excluded_count = std::accumulate(excluded.begin(), excluded.end(), std::int64_t{0});
    for (const bool masked : {false, true}) {
      const std::uint8_t* mask = masked ? excluded.data() : nullptr;
      for (std::int64_t k = 1; k <= n - (masked ? excluded_count : 0); ++k) {
        Ids list(static_cast<std::size_t>(k), -7), heap(static_cast<std::size_t>(k), -7);
        best_keys(keys.data(), mask, n, k, list.data(), ranks_before);
        best_keys_by_heap(keys.data(), mask, n, k, heap.data());
        ASSERT_EQ(list, heap) << "n " << n << ", k " << k << ", masked " << masked;
      }
    }
  }
}

// Every expert chosen and every group scored, where the work of K^2 steps would never end at the 65536 that are legal.
TEST(Selection, AllOfManyExpertsAreSorted) {
  constexpr std::int32_t kExperts = 4096;
  samebits_router_spec spec = sigmoid_spec(kExperts, kExperts);
  spec.rank_by = SAMEBITS_RANK_BY_LOGIT;
  Floats logits = normal_fp32(3, kExperts);
  Ids expected(kExperts);
  std::iota(expected.begin(), expected.end(), 0);
  std::stable_sort(expected.begin(), expected.end(), [&](std::int32_t a, std::int32_t b) {
    return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
  });
  const Routed by_key = route_row(spec, logits);
  EXPECT_EQ(by_key.ids, expected);
  spec.sort = SAMEBITS_SORT_BY_INDEX;
  const Routed by_index = route_row(spec, logits);
  for (std::size_t slot = 0; slot < kExperts; ++slot) {
    const auto id = static_cast<std::size_t>(expected[slot]);
    ASSERT_EQ(by_index.ids[id], expected[slot]);
    ASSERT_EQ(by_index.weights[id], by_key.weights[slot]);
  }
  // Groups of one expert: the best groups are the best experts.
  samebits_router_spec grouped = sigmoid_spec(kExperts, 100);
  grouped.rank_by = SAMEBITS_RANK_BY_LOGIT;
  grouped.n_group = kExperts;
  grouped.topk_group = 1000;
  grouped.group_score = SAMEBITS_GROUP_SCORE_MAX;
  grouped.group_mask = SAMEBITS_GROUP_MASK_NEG_INF;
  EXPECT_EQ(route_row(grouped, logits).ids, Ids(expected.begin(), expected.begin() + 100));
}

TEST(Selection, SaturatedScoresAreTies) {
  EXPECT_EQ(route_row(sigmoid_spec(4, 2), {20, 30, 40, 50}).ids, (Ids{0, 1}));
}

TEST(Selection, MinusInfThenNaNLast) {
  samebits_router_spec spec = sigmoid_spec(5, 5);
  spec.rank_by = SAMEBITS_RANK_BY_LOGIT;
  EXPECT_EQ(route_row(spec, {kNaN, -kInf, 1, kInf, -5}).ids, (Ids{3, 2, 4, 1, 0}));
  EXPECT_EQ(route_row(sigmoid_spec(4, 3), {kNaN, kNaN, 3, kNaN}).ids, (Ids{2, 0, 1}));
}

TEST(Selection, BiasChoosesAndScoreWeighs) {
  samebits_router_spec spec = sigmoid_bias_spec(0, 6, 2);
  spec.routed_scaling_factor = 1.0f;
  // Scores 0.881, 0.870, 0.769 in places 0, 2, 5.
  const Floats logits = {2.0f, -9, 1.9f, -9, -9, 1.2f}, bias = {8.13f, 8, 8.03f, 8, 8, 8.0f};
  const Routed routed = route_row(spec, logits, bias);
  EXPECT_EQ(routed.ids, (Ids{0, 2}));
  const float first = sigmoid(2.0f), second = sigmoid(1.9f);
  EXPECT_EQ(routed.weights, (Floats{first / (first + second), second / (first + second)}));
  EXPECT_NEAR(routed.weights[0], 0.503, 0.0005);
}

TEST(Selection, Bf16BiasIsRoundedBeforeItIsAdded) {
  samebits_router_spec spec = sigmoid_bias_spec(0, 8, 2);
  Floats bias(8);
  for (std::size_t i = 0; i < 8; ++i) bias[i] = 7.001f + 0.001f * static_cast<float>(i);
  EXPECT_EQ(route_row(spec, Floats(8, 0.0f), bias).ids, (Ids{7, 6}));
  spec.selection_bias_dtype = SAMEBITS_BF16;
  EXPECT_EQ(route_row(spec, Floats(8, 0.0f), bias).ids, (Ids{0, 1}));
}

samebits_router_spec grouped_spec(std::int32_t group_score, std::int32_t group_mask) {
  samebits_router_spec spec = sigmoid_bias_spec(0, 6, 2);  // groups {0, 1}, {2, 3}, {4, 5}
  spec.n_group = 3;
  spec.topk_group = 1;
  spec.group_score = group_score;
  spec.group_mask = group_mask;
  return spec;
}

TEST(Groups, MaxAndTopTwoSum) {
  const Floats bias(6, 0.0f), logits = {3, -9, 2, 2, 0, 0};
  EXPECT_EQ(route_row(grouped_spec(SAMEBITS_GROUP_SCORE_MAX, SAMEBITS_GROUP_MASK_NEG_INF), logits, bias).ids,
            (Ids{0, 1}));
  EXPECT_EQ(route_row(grouped_spec(SAMEBITS_GROUP_SCORE_TOP2_SUM, SAMEBITS_GROUP_MASK_NEG_INF), logits, bias).ids,
            (Ids{2, 3}));
}

TEST(Groups, TieGoesToTheLowerGroup) {
  EXPECT_EQ(route_row(grouped_spec(SAMEBITS_GROUP_SCORE_TOP2_SUM, SAMEBITS_GROUP_MASK_NEG_INF), Floats(6, 1.0f),
                      Floats(6, 0.0f))
                .ids,
            (Ids{0, 1}));
}

// With negative keys an expert of a rejected group, at key 0, wins under the zero mask and cannot under -inf.
TEST(Groups, ZeroMaskLetsRejectedExpertsWin) {
  const Floats logits(6, 0.0f), bias = {-2, -2, -1, -1.25f, -2, -2};
  EXPECT_EQ(route_row(grouped_spec(SAMEBITS_GROUP_SCORE_MAX, SAMEBITS_GROUP_MASK_NEG_INF), logits, bias).ids,
            (Ids{2, 3}));
  EXPECT_EQ(route_row(grouped_spec(SAMEBITS_GROUP_SCORE_MAX, SAMEBITS_GROUP_MASK_ZERO), logits, bias).ids, (Ids{0, 1}));
}

TEST(Groups, NaNMembersCountOnlyWithoutOthers) {
  samebits_router_spec spec = sigmoid_bias_spec(0, 6, 3);
  spec.n_group = 2, spec.topk_group = 1;
  spec.group_score = SAMEBITS_GROUP_SCORE_TOP2_SUM, spec.group_mask = SAMEBITS_GROUP_MASK_NEG_INF;
  EXPECT_EQ(route_row(spec, {kNaN, 2, 2, 1, 1, 1}, Floats(6, 0.0f)).ids, (Ids{1, 2, 0}));
  EXPECT_EQ(route_row(spec, {kNaN, kNaN, 9, 1, 1, 1}, Floats(6, 0.0f)).ids, (Ids{3, 4, 5}));
  // Every group score is NaN: the lower group, and its NaN members fill the row; excluded ones never do.
  EXPECT_EQ(route_row(spec, {kNaN, kNaN, 9, kNaN, 9, kNaN}, Floats(6, 0.0f)).ids, (Ids{2, 0, 1}));
}

TEST(Weights, AfterTopkSoftmaxIsOverTheChosen) {
  samebits_router_spec spec = plain_spec(0, 4, 2);
  spec.score_stage = SAMEBITS_SCORE_AFTER_TOPK, spec.rank_by = SAMEBITS_RANK_BY_LOGIT;
  const Routed routed = route_row(spec, {1, 3, 2, 3});
  EXPECT_EQ(routed.ids, (Ids{1, 3}));
  EXPECT_EQ(routed.weights, (Floats{0.5f, 0.5f}));
}

TEST(Weights, EpsModes) {
  samebits_router_spec spec = sigmoid_spec(2, 2);
  spec.renormalize = SAMEBITS_RENORM_L1;
  const float s = sigmoid(-30.0f), sum = s + s;
  EXPECT_EQ(route_row(spec, {-30, -30}).weights, (Floats{0.5f, 0.5f}));
  spec.eps = 1e-6f, spec.eps_mode = SAMEBITS_EPS_ADD;
  EXPECT_EQ(route_row(spec, {-30, -30}).weights, (Floats{s / (sum + 1e-6f), s / (sum + 1e-6f)}));
  spec.eps_mode = SAMEBITS_EPS_CLAMP_MIN;
  EXPECT_EQ(route_row(spec, {-30, -30}).weights, (Floats{s / 1e-6f, s / 1e-6f}));
  EXPECT_EQ(route_row(spec, {30, 30}).weights, (Floats{0.5f, 0.5f}));
}

TEST(Weights, ScaleStages) {
  samebits_router_spec spec = sigmoid_spec(3, 3);
  spec.renormalize = SAMEBITS_RENORM_L1;
  spec.routed_scaling_factor = 2.827f;
  const Floats logits = {0.3f, 0.2f, 0.1f};
  const float a = sigmoid(0.3f), b = sigmoid(0.2f), c = sigmoid(0.1f), sum = (a + b) + c;
  EXPECT_EQ(route_row(spec, logits).weights, (Floats{a / sum * 2.827f, b / sum * 2.827f, c / sum * 2.827f}));
  spec.scale_stage = SAMEBITS_SCALE_BEFORE_DIVIDE;
  EXPECT_EQ(route_row(spec, logits).weights, (Floats{a * 2.827f / sum, b * 2.827f / sum, c * 2.827f / sum}));
  spec.scale_stage = SAMEBITS_SCALE_ON_EXPERT_OUTPUT;
  EXPECT_EQ(route_row(spec, logits).weights, (Floats{a / sum, b / sum, c / sum}));
  spec.renormalize = SAMEBITS_RENORM_NONE;
  EXPECT_EQ(route_row(spec, logits).weights, (Floats{a, b, c}));
  spec.scale_stage = SAMEBITS_SCALE_AFTER_RENORM;
  EXPECT_EQ(route_row(spec, logits).weights, (Floats{a * 2.827f, b * 2.827f, c * 2.827f}));
}

TEST(Weights, ZeroSumGivesZeros) {
  samebits_router_spec spec = sigmoid_spec(3, 2);
  spec.renormalize = SAMEBITS_RENORM_L1;
  EXPECT_EQ(route_row(spec, {-kInf, -kInf, -kInf}).weights, (Floats{0, 0}));
  spec = plain_spec(0, 3, 2);
  spec.renormalize = SAMEBITS_RENORM_L1;
  EXPECT_EQ(route_row(spec, {-kInf, -kInf, -kInf}).weights, (Floats{0, 0}));
}

TEST(Weights, NaNRow) {
  for (const std::int32_t renormalize : {SAMEBITS_RENORM_NONE, SAMEBITS_RENORM_L1}) {
    samebits_router_spec spec = plain_spec(0, 4, 3);
    spec.renormalize = renormalize;
    const Routed routed = route_row(spec, {kNaN, kNaN, kNaN, kNaN});
    EXPECT_EQ(routed.ids, (Ids{0, 1, 2}));
    EXPECT_EQ(routed.weights, (Floats{0, 0, 0}));
  }
}

TEST(Weights, InfiniteScoresShare) {
  samebits_router_spec spec = plain_spec(0, 4, 3);
  spec.score_func = SAMEBITS_SCORE_SQRT_SOFTPLUS;
  spec.routed_scaling_factor = 2.0f;
  spec.renormalize = SAMEBITS_RENORM_L1;
  const Floats logits = {kInf, 1, kInf, 2};
  EXPECT_EQ(route_row(spec, logits).weights, (Floats{1, 1, 0}));
  spec.eps = 2.0f, spec.eps_mode = SAMEBITS_EPS_ADD;
  EXPECT_EQ(route_row(spec, logits).weights, (Floats{0.5f, 0.5f, 0}));
  spec.eps = 0.0f, spec.eps_mode = SAMEBITS_EPS_NONE, spec.renormalize = SAMEBITS_RENORM_NONE;
  const float largest = std::numeric_limits<float>::max();
  EXPECT_EQ(route_row(spec, logits).weights, (Floats{largest, largest, 0}));
  spec.weights_dtype = SAMEBITS_BF16;
  EXPECT_EQ(route_row(spec, logits).weights, (Floats{0, 0, 0})) << "bf16 cannot hold it";
}

TEST(Weights, Bf16RoundingPoints) {
  samebits_router_spec spec = sigmoid_spec(3, 2);
  spec.score_dtype = SAMEBITS_BF16;
  // 6.5 and 7 both round to 1 in bf16: a tie, the lower id is first.
  const Routed tied = route_row(spec, {6.5f, 7.0f, 0.0f});
  EXPECT_EQ(tied.ids, (Ids{0, 1}));
  EXPECT_EQ(tied.weights, (Floats{1, 1}));
  spec.score_dtype = SAMEBITS_FP32, spec.weights_dtype = SAMEBITS_BF16;
  EXPECT_EQ(route_row(spec, {0.3f, 0.2f, 0.1f}).weights,
            (Floats{round_to_bf16(sigmoid(0.3f)), round_to_bf16(sigmoid(0.2f))}));
}

TEST(Weights, SumIsInSlotOrderAlsoWhenSortedByIndex) {
  samebits_router_spec spec = sigmoid_spec(40, 20);
  spec.renormalize = SAMEBITS_RENORM_L1;
  const Floats logits = normal_fp32(17, 40, 2.0f);
  const Routed by_key = route_row(spec, logits);
  spec.sort = SAMEBITS_SORT_BY_INDEX;
  const Routed by_index = route_row(spec, logits);
  EXPECT_TRUE(std::is_sorted(by_index.ids.begin(), by_index.ids.end()));
  for (std::size_t c = 0; c < 20; ++c) {
    const auto at = std::find(by_key.ids.begin(), by_key.ids.end(), by_index.ids[c]) - by_key.ids.begin();
    ASSERT_LT(at, 20);
    EXPECT_EQ(by_index.weights[c], by_key.weights[static_cast<std::size_t>(at)]);
  }
}

// Large shapes, and every k: the list against a sort.
TEST(Selection, EqualsAStableSortForManyShapes) {
  for (const std::int32_t num_experts : {1, 2, 7, 64, 257, 2304}) {
    for (const std::int32_t top_k : {1, 2, 8, 63, 64, 2304}) {
      if (top_k > num_experts) continue;
      Floats logits = normal_fp32(static_cast<std::uint64_t>(num_experts), num_experts);
      for (std::size_t e = 0; e < logits.size(); e += 3) logits[e] = std::round(logits[e] * 4) / 4;  // ties
      Ids order(logits.size());
      std::iota(order.begin(), order.end(), 0);
      samebits_router_spec spec = sigmoid_spec(num_experts, top_k);
      spec.rank_by = SAMEBITS_RANK_BY_LOGIT;
      std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        return logits[static_cast<std::size_t>(a)] > logits[static_cast<std::size_t>(b)];
      });
      order.resize(static_cast<std::size_t>(top_k));
      EXPECT_EQ(route_row(spec, logits).ids, order) << num_experts << ", " << top_k;
    }
  }
}

TEST(Logits, LinearBiasThenRounding) {
  samebits_router_spec spec = sigmoid_spec(3, 1);
  spec.hidden_size = 1;
  spec.linear_bias_dtype = SAMEBITS_FP32;
  Constants constants;
  constants.gate_weight = {0x3f80, 0x3f80, 0x7f80};
  constants.linear_bias = {0.1f, 1e-3f, -kInf};
  const auto logits = [&] { return TestRouter(spec, constants).route({0x3f80}).logits; };
  EXPECT_TRUE(same_bits(logits(), {1.0f + 0.1f, 1.0f + 1e-3f, from_bits(kNaNBits)}));
  spec.linear_bias_dtype = SAMEBITS_BF16;
  EXPECT_TRUE(same_bits(logits(), {1.0f + round_to_bf16(0.1f), 1.0f + round_to_bf16(1e-3f), from_bits(kNaNBits)}));
  spec.logits_dtype = SAMEBITS_BF16;
  EXPECT_TRUE(same_bits(logits(), {0x1.1ap0f, 1.0f, from_bits(kNaNBits)}));
}

TEST(Logits, GivenOnesAreFinishedAndReturned) {
  samebits_router_spec spec = sigmoid_spec(2, 1);
  spec.logits_dtype = SAMEBITS_BF16;
  const Floats logits = {1.00001f, 1.00002f};
  const Routed routed = route_row(spec, logits);
  EXPECT_EQ(routed.ids, (Ids{1}));
  EXPECT_EQ(routed.logits, logits);
  EXPECT_TRUE(same_bits(route_row(spec, {from_bits(0xff800001u), 0}).logits, {from_bits(kNaNBits), 0}));
}

}  // namespace
}  // namespace samebits::cpu::test
