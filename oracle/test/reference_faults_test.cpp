// Rows on which public routers went wrong, each with the right answer. The projects and numbers name the reports.

#include <gmock/gmock.h>

#include <bit>
#include <numeric>
#include <set>

#include "oracle/emulate/fp32.h"
#include "oracle/test/reference_rows.h"

namespace samebits::oracle {
namespace {

using test::Ids;
using test::route;
using test::row;
using test::spec_of;
using test::with_groups;
using testing::Each;
using testing::ElementsAre;
using testing::FloatNear;

constexpr float kInf = INFINITY;
const float kNaN = std::bit_cast<float>(0x7fc00000u);

Ids first_ids(std::int32_t k) {
  Ids ids(static_cast<std::size_t>(k));
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

void expect_sound(const RowAnswer<float>& answer) {
  EXPECT_EQ(std::set<std::int32_t>(answer.ids.begin(), answer.ids.end()).size(), answer.ids.size());
  for (const std::int32_t id : answer.ids) {
    EXPECT_GE(id, 0);
    EXPECT_LT(id, static_cast<std::int32_t>(answer.logits.size()));
  }
  for (const float w : answer.weights) EXPECT_TRUE(std::isfinite(w));
}

// oneapi-src/oneDPL 2713, NVIDIA/cub 218: a bit map that tells -0 from +0.
TEST(PublicFaults, SignedZerosTie) {
  RouterSpec spec = spec_of(8, 1, ScoreFunc::kIdentity);
  EXPECT_THAT(route(spec, row(8, -1, {{0, -0.0f}, {1, 0.0f}})).ids, ElementsAre(0));
  spec.shape.top_k = 2;
  EXPECT_THAT(route(spec, row(8, -1, {{3, 0.0f}, {1, -0.0f}})).ids, ElementsAre(1, 3));
}

// sgl-project/sglang 30989: ties at the cut, absorbed sigmoids, NaN weights.
TEST(PublicFaults, AbsorbedSigmoidsTieAtTheCut) {
  std::vector<float> bias(256, 11.0f);
  for (std::size_t e = 0; e < 6; ++e) bias[e] = 11.30f;
  for (std::size_t e = 100; e < 110; ++e) bias[e] = 11.25f;
  const RowAnswer<float> answer = route(spec_of(256, 8, ScoreFunc::kSigmoid, true), row(256, -40), bias);
  EXPECT_THAT(answer.ids, ElementsAre(0, 1, 2, 3, 4, 5, 100, 101));
  EXPECT_THAT(answer.weights, Each(FloatNear(0.12496f, 5e-6f)));  // 1/8 of S / (S + 1e-20), S = 3.4e-17
}

// vllm-project/vllm 39391, sgl-project/sglang 30079: NaN rows gave duplicates, or an id past the end.
TEST(PublicFaults, NanRowsHaveDistinctIds) {
  for (const ScoreFunc func : {ScoreFunc::kSoftmax, ScoreFunc::kSigmoid}) {
    const RowAnswer<float> answer = route(spec_of(128, 8, func, true), row(128, kNaN));
    EXPECT_EQ(answer.ids, first_ids(8));
    EXPECT_THAT(answer.weights, Each(0.0f));
  }
  const RowAnswer<float> one_nan_row =
      route(spec_of(8, 2, ScoreFunc::kSoftmax, true), row(8, 0, {{0, kNaN}, {1, 2}, {2, 1}}));
  EXPECT_THAT(one_nan_row.ids, ElementsAre(1, 2));
  EXPECT_THAT(one_nan_row.weights, ElementsAre(FloatNear(0.731059f, 1e-6f), FloatNear(0.268941f, 1e-6f)));
}

// lightseekorg/tokenspeed 605: the index was recovered from the value of the maximum.
TEST(PublicFaults, InfinitiesComeFirstThenTheBestFinite) {
  for (const ScoreFunc func : {ScoreFunc::kIdentity, ScoreFunc::kSqrtSoftplus}) {
    const RowAnswer<float> answer =
        route(spec_of(32, 4, func, true), row(32, 0, {{3, kInf}, {7, kInf}, {9, kNaN}, {20, 5.0f}}));
    EXPECT_THAT(answer.ids, ElementsAre(3, 7, 20, 0));
    EXPECT_THAT(answer.weights, ElementsAre(0.5f, 0.5f, 0.0f, 0.0f));
  }
}

// flashinfer-ai/flashinfer 1347: index -1 when nothing is finite.
TEST(PublicFaults, RowsWithoutFiniteLogitsChooseTheLowestId) {
  for (const float x : {-kInf, kNaN}) {
    for (const ScoreFunc func : {ScoreFunc::kSoftmax, ScoreFunc::kSigmoid, ScoreFunc::kSqrtSoftplus}) {
      const RowAnswer<float> answer = route(spec_of(16, 1, func, true), row(16, x));
      EXPECT_THAT(answer.ids, ElementsAre(0));
      expect_sound(answer);
    }
  }
}

// ROCm/aiter 4247: a NaN at the head of a lane hid the rest; an infinite softplus made NaN weights.
TEST(PublicFaults, NanHidesNobody) {
  for (const std::size_t stride : {8u, 32u, 64u}) {
    std::vector<float> logits = row(256 + 6 * 64, 0, {{5, kNaN}});
    Ids expected;
    for (std::size_t m = 1; m <= 6; ++m) {
      logits[5 + stride * m] = 10.0f - static_cast<float>(m);
      expected.push_back(static_cast<std::int32_t>(5 + stride * m));
    }
    const RouterSpec spec = spec_of(static_cast<std::int64_t>(logits.size()), 6, ScoreFunc::kSqrtSoftplus, true);
    EXPECT_EQ(route(spec, logits).ids, expected);
  }
  const RowAnswer<float> infinite = route(spec_of(256, 6, ScoreFunc::kSqrtSoftplus, true), row(256, 0, {{0, kInf}}));
  EXPECT_THAT(infinite.ids, ElementsAre(0, 1, 2, 3, 4, 5));
  EXPECT_THAT(infinite.weights, ElementsAre(1, 0, 0, 0, 0, 0));
}

// ROCm/aiter 1056: a NaN broke the count of groups.
TEST(PublicFaults, NanInAGroupedRow) {
  const RouterSpec spec =
      with_groups(spec_of(256, 8, ScoreFunc::kSigmoid, true), 8, 4, GroupScore::kTop2Sum, GroupMask::kNegInf);
  std::vector<float> logits(256);
  for (std::size_t e = 0; e < 256; ++e) logits[e] = static_cast<float>(e % 31) * 0.1f + (e / 32 == 3 ? 2.0f : 0.0f);
  logits[3 * 32 + 30] = kNaN;  // the best expert of the best group
  for (const bool whole_group : {false, true}) {
    if (whole_group) std::fill(logits.begin() + 96, logits.begin() + 128, kNaN);
    const RowAnswer<float> answer = route(spec, logits, std::vector<float>(256, 0.5f));
    EXPECT_EQ(std::accumulate(answer.group_kept.begin(), answer.group_kept.end(), 0), 4);
    EXPECT_EQ(answer.group_kept[3], whole_group ? 0 : 1);
    EXPECT_THAT(answer.ids, Each(testing::Ne(126)));
    expect_sound(answer);
  }
}

// alibaba/rtp-llm 303: duplicates for infinite rows.
TEST(PublicFaults, SoftmaxOfInfiniteRows) {
  const RowAnswer<float> plus = route(spec_of(64, 4, ScoreFunc::kSoftmax, true), row(64, 0, {{10, kInf}}));
  EXPECT_THAT(plus.ids, ElementsAre(10, 0, 1, 2));
  EXPECT_THAT(plus.weights, ElementsAre(1, 0, 0, 0));
  const RowAnswer<float> minus = route(spec_of(64, 4, ScoreFunc::kSoftmax, true), row(64, -kInf));
  EXPECT_EQ(minus.ids, first_ids(4));
  EXPECT_THAT(minus.weights, Each(0.0f));
}

// vllm-project/vllm 32058, microsoft/onnxruntime 28980: padding outranked real -Inf experts.
TEST(PublicFaults, MinusInfExpertsAreRealCandidates) {
  const RouterSpec grouped =
      with_groups(spec_of(160, 4, ScoreFunc::kIdentity), 8, 1, GroupScore::kMax, GroupMask::kNegInf);
  EXPECT_THAT(route(grouped, row(160, -kInf, {{65, 1.0f}, {70, 2.0f}})).ids, ElementsAre(70, 65, 60, 61));
  EXPECT_THAT(route(spec_of(20, 4, ScoreFunc::kIdentity), row(20, -kInf, {{4, -3e38f}, {9, 1.0f}})).ids,
              ElementsAre(9, 4, 0, 1));
}

// flashinfer-ai/flashinfer 3803 and 3946, sgl-project/sglang 31017: 0/0 when every sigmoid underflows.
TEST(PublicFaults, UnderflowedSigmoidsGiveZeroWeights) {
  std::vector<float> bias(256, 0.0f);
  std::fill_n(bias.begin(), 8, 12.0f);
  const RouterSpec plain = spec_of(256, 8, ScoreFunc::kSigmoid, true);
  for (const RouterSpec& spec : {plain, with_groups(plain, 8, 4, GroupScore::kTop2Sum, GroupMask::kNegInf)}) {
    const RowAnswer<float> answer = route(spec, row(256, -120), bias);
    EXPECT_EQ(answer.ids, first_ids(8));
    EXPECT_THAT(answer.weights, Each(0.0f));
  }
  RouterSpec bare = spec_of(8, 2, ScoreFunc::kSigmoid, true);
  bare.weights.eps_mode = EpsMode::kNone;
  bare.weights.eps = 0;
  const RowAnswer<float> answer = route(bare, row(8, -120));
  EXPECT_THAT(answer.ids, ElementsAre(0, 1));
  EXPECT_THAT(answer.weights, Each(0.0f));
}

// flashinfer-ai/flashinfer 3875: the score recovered as (score + bias) - bias is gone.
TEST(PublicFaults, WeightsSurviveALargeBias) {
  std::vector<float> logits = row(896, -20), bias(896, 0.0f);
  for (std::size_t e = 0; e < 16; ++e) {
    bias[e] = 12.0f;
    logits[e] = e == 0 ? -16.0f : -17.5f;
  }
  RouterSpec spec = spec_of(896, 16, ScoreFunc::kSigmoid, true);
  spec.weights.routed_scaling_factor = 2.5;
  const RowAnswer<float> answer = route(spec, logits, bias);
  EXPECT_EQ(answer.ids, first_ids(16));
  EXPECT_THAT(answer.weights[0], FloatNear(0.5751f, 1e-4f));
  for (std::size_t i = 1; i < 16; ++i) EXPECT_THAT(answer.weights[i], FloatNear(0.1283f, 1e-4f));
}

// NVIDIA/TransformerEngine 2009: maxima that started from 0, a mask that outranked the rest.
TEST(PublicFaults, NegativeRows) {
  const RowAnswer<float> softmax =
      route(spec_of(20, 2, ScoreFunc::kSoftmax, true), row(20, -200, {{3, -198.0f}, {4, -199.0f}}));
  EXPECT_THAT(softmax.ids, ElementsAre(3, 4));
  EXPECT_THAT(softmax.weights, ElementsAre(FloatNear(0.7311f, 1e-4f), FloatNear(0.2689f, 1e-4f)));
  std::vector<float> keys(40);
  for (std::size_t e = 0; e < 40; ++e) keys[e] = -5.0f - 0.1f * static_cast<float>((e * 7 + 3) % 40);
  // (e * 7 + 3) mod 40 is 0, 1, 2 for e = 11, 34, 17.
  EXPECT_THAT(route(spec_of(40, 3, ScoreFunc::kIdentity), keys).ids, ElementsAre(11, 34, 17));
}

// vllm-project/vllm 12002: the weight was the biased score.
TEST(PublicFaults, WeightsAreUnbiased) {
  const std::vector<float> bias = row(8, 0, {{0, 8.0f}}), logits = row(8, -5, {{0, -2.0f}, {1, 2.0f}});
  RouterSpec spec = spec_of(8, 2, ScoreFunc::kSigmoid, true);
  for (const bool renormalize : {true, false}) {
    if (!renormalize) spec.weights.renormalize = Renormalize::kNone;
    const RowAnswer<float> answer = route(spec, logits, bias);
    EXPECT_THAT(answer.ids, ElementsAre(0, 1));
    EXPECT_THAT(answer.weights, ElementsAre(FloatNear(0.1192f, 1e-4f), FloatNear(0.8808f, 1e-4f)));
  }
  spec.weights.source = WeightSource::kBiasedScore;
  EXPECT_THAT(route(spec, logits, bias).weights, ElementsAre(FloatNear(8.1192f, 1e-4f), FloatNear(0.8808f, 1e-4f)));
}

// huggingface/transformers 39581: the bias of a softmax router entered the weights.
TEST(PublicFaults, SoftmaxBiasRanksButDoesNotWeigh) {
  const RowAnswer<float> answer = route(spec_of(4, 2, ScoreFunc::kSoftmax), {3, 1, 0, -2}, {0, 0, 0, 1});
  EXPECT_THAT(answer.ids, ElementsAre(3, 0));
  EXPECT_THAT(answer.keys[3], FloatNear(1.0057f, 1e-4f));
  EXPECT_THAT(answer.weights, ElementsAre(FloatNear(0.00565f, 1e-5f), FloatNear(0.8390f, 1e-4f)));
}

// sgl-project/sglang 35160, lablup/mlxcel 391: without renormalisation the softmax is over all experts.
TEST(PublicFaults, SoftmaxIsOverAllExpertsUnlessTheStageSaysOtherwise) {
  RouterSpec spec = spec_of(4, 2, ScoreFunc::kSoftmax);
  EXPECT_THAT(route(spec, {3, 1, 0, -2}).weights, ElementsAre(FloatNear(0.8390f, 1e-4f), FloatNear(0.1135f, 1e-4f)));
  spec.score.stage = ScoreStage::kAfterTopk;
  spec.selection.rank_by = RankBy::kLogit;
  EXPECT_THAT(route(spec, {3, 1, 0, -2}).weights, ElementsAre(FloatNear(0.8808f, 1e-4f), FloatNear(0.1192f, 1e-4f)));
}

// The scale was squared, lost, or applied only with (or without) renormalisation: vllm 24119, sglang 8333, and others.
TEST(PublicFaults, ScaleIsAppliedOnce) {
  RouterSpec spec = spec_of(4, 2, ScoreFunc::kSigmoid, true);
  spec.weights.routed_scaling_factor = 2.5;
  const auto sum = [&] {
    const RowAnswer<float> answer = route(spec, {2, 1, 0, -1});
    return answer.weights[0] + answer.weights[1];
  };
  EXPECT_THAT(sum(), FloatNear(2.5f, 1e-6f));
  spec.weights.renormalize = Renormalize::kNone;
  EXPECT_THAT(sum(), FloatNear(2.5f * (0.880797f + 0.731059f), 1e-5f));
}

// vllm-project/vllm 13474: groups scored by the maximum instead of the two best.
TEST(PublicFaults, GroupScoreDecidesTheGroup) {
  const std::vector<float> bias = {0.9f, 0.1f, 0.6f, 0.6f, 0, 0, 0, 0};
  RouterSpec spec = with_groups(spec_of(8, 2, ScoreFunc::kSigmoid), 4, 1, GroupScore::kTop2Sum, GroupMask::kNegInf);
  EXPECT_THAT(route(spec, row(8, 0), bias).ids, ElementsAre(2, 3));
  spec.selection.group_score = GroupScore::kMax;
  EXPECT_THAT(route(spec, row(8, 0), bias).ids, ElementsAre(0, 1));
}

// sgl-project/sglang 3705, huggingface/transformers 45440: rejected groups filled with 0 beat negative keys.
TEST(PublicFaults, MaskDecidesAgainstNegativeKeys) {
  const std::vector<float> keys = {0.5f, -0.2f, 0.4f, -0.3f, -1, -1, -1, -1};
  RouterSpec spec = with_groups(spec_of(8, 3, ScoreFunc::kIdentity), 4, 2, GroupScore::kTop2Sum, GroupMask::kNegInf);
  EXPECT_THAT(route(spec, keys).ids, ElementsAre(0, 2, 1));
  spec.selection.group_mask = GroupMask::kZero;
  EXPECT_THAT(route(spec, keys).ids, ElementsAre(0, 2, 4));
}

// flashinfer-ai/flashinfer 1723: the number of groups was bounded by a constant.
TEST(PublicFaults, TheBestExpertOfARejectedGroupIsAbsent) {
  std::vector<float> keys(256, 0.0f);
  for (std::size_t g = 0; g < 4; ++g) keys[g * 32 + 1] = keys[g * 32 + 2] = 0.9f;
  keys[4 * 32] = 0.95f;
  const RouterSpec spec =
      with_groups(spec_of(256, 8, ScoreFunc::kIdentity), 8, 4, GroupScore::kTop2Sum, GroupMask::kNegInf);
  EXPECT_THAT(route(spec, keys).ids, ElementsAre(1, 2, 33, 34, 65, 66, 97, 98));
}

// InternLM/lmdeploy 3030: the softmax ran over the kept groups only.
TEST(PublicFaults, SoftmaxIsTakenBeforeTheGroupMask) {
  const RouterSpec spec = with_groups(spec_of(8, 2, ScoreFunc::kSoftmax), 4, 1, GroupScore::kMax, GroupMask::kZero);
  const RowAnswer<float> answer = route(spec, {3, 1, 2.9f, 2.9f, 0, 0, 0, 0});
  EXPECT_THAT(answer.ids, ElementsAre(0, 1));
  const double total = std::exp(0.0) + std::exp(-2.0) + 2 * std::exp(-0.1) + 4 * std::exp(-3.0);
  EXPECT_THAT(answer.weights, ElementsAre(FloatNear(static_cast<float>(1 / total), 1e-6f),
                                          FloatNear(static_cast<float>(std::exp(-2.0) / total), 1e-6f)));
}

}  // namespace
}  // namespace samebits::oracle
