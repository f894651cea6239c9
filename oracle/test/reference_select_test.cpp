#include "oracle/reference/select.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>

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

constexpr float kInf = INFINITY;
const float kNaN = std::bit_cast<float>(0x7fc00000u);

Ids select_ids(const std::vector<float>& keys, std::int64_t k, std::vector<std::uint8_t> excluded = {}) {
  excluded.resize(keys.size(), 0);
  return select<float>(keys, excluded, k).ids;
}

TEST(RankKey, OrderIsTotal) {
  EXPECT_THAT(select_ids({kNaN, -kInf, 0.0f, -0.0f, kInf, kNaN, -1.0f, kInf}, 8), ElementsAre(4, 7, 2, 3, 6, 1, 0, 5));
  EXPECT_THAT(select_ids({-0.0f, 0.0f}, 2), ElementsAre(0, 1));
}

TEST(RankKey, BaseBiasAndRounding) {
  RouterSpec spec = spec_of(3, 1, ScoreFunc::kSigmoid);
  const std::vector<float> logits = {-2.0f, 0.0f, kNaN}, scores = {0.25f, 0.5f, the_nan()},
                           bias = {7.001f, -0.5f, 1.0f};
  EXPECT_EQ(rank_keys<float>(spec, logits, scores, {})[0], 0.25f);
  spec.selection.bias = BiasType::kFp32;
  const std::vector<float> keys = rank_keys<float>(spec, logits, scores, bias);
  EXPECT_EQ(keys[0], 0.25f + 7.001f);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(keys[1]), 0u);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(keys[2]), 0x7fffffffu);
  spec.selection.bias = BiasType::kBf16;
  EXPECT_EQ(rank_keys<float>(spec, logits, scores, bias)[0], 7.25f);
  spec.selection.rank_by = RankBy::kLogit;
  EXPECT_EQ(rank_keys<float>(spec, logits, scores, bias)[0], 5.0f);
}

TEST(RankKey, NonFiniteBiases) {
  const RouterSpec spec = spec_of(4, 4, ScoreFunc::kSigmoid, true);
  const RowAnswer<float> answer = route(spec, {0, 0, 0, 0}, {-kInf, kNaN, kInf, 0});
  EXPECT_THAT(answer.ids, ElementsAre(2, 3, 0, 1));
  EXPECT_THAT(answer.weights, Each(0.25f));  // weights come from the unbiased score
}

TEST(Select, ExcludedExpertsAreNeverChosen) {
  EXPECT_THAT(select_ids({9, 8, kNaN, -kInf}, 2, {1, 1, 0, 0}), ElementsAre(3, 2));
  EXPECT_THAT(select_ids({9, 8}, 2, {1, 0}), ElementsAre(1, -1));  // no valid spec gets here
}

TEST(Select, BoundaryOfTheCut) {
  const RowAnswer<float> answer = route(spec_of(5, 2, ScoreFunc::kIdentity), {1, 5, 3, 4, 2});
  EXPECT_EQ(answer.last_chosen, 3);
  EXPECT_EQ(answer.first_rejected, 2);
  EXPECT_EQ(route(spec_of(2, 2, ScoreFunc::kIdentity), {1, 5}).first_rejected, -1);
}

// Many ties, NaN and both zeros; some experts excluded.
TEST(Select, TheChosenAndTheCutAreThoseOfAFullSort) {
  const float values[] = {kNaN, -kInf, -1.0f, -0.0f, 0.0f, 0.5f, 2.0f, kInf};
  std::mt19937 random(5);
  for (std::size_t size = 1; size <= 40; ++size) {
    std::vector<float> keys(size);
    std::vector<std::uint8_t> excluded(size);
    for (float& key : keys) key = values[random() % std::size(values)];
    for (std::uint8_t& e : excluded) e = random() % 4 == 0;
    Ids sorted;
    for (std::size_t e = 0; e < size; ++e) {
      if (excluded[e] == 0) sorted.push_back(static_cast<std::int32_t>(e));
    }
    std::stable_sort(sorted.begin(), sorted.end(), [&](std::int32_t a, std::int32_t b) {
      const float x = keys[static_cast<std::size_t>(a)], y = keys[static_cast<std::size_t>(b)];
      return !std::isnan(x) && (std::isnan(y) || x > y);
    });
    for (std::size_t k = 1; k <= sorted.size(); ++k) {
      const Selected selected = select<float>(keys, excluded, static_cast<std::int64_t>(k));
      ASSERT_EQ(selected.ids, Ids(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(k)));
      ASSERT_EQ(selected.last_chosen, sorted[k - 1]);
      ASSERT_EQ(selected.first_rejected, k < sorted.size() ? sorted[k] : -1);
    }
  }
}

TEST(Groups, MaximumAndTopTwoSum) {
  RouterSpec::Selection selection;
  selection.n_group = 4;
  selection.group_score = GroupScore::kMax;
  const std::vector<float> keys = {0.9f, 0.1f, 0.6f, 0.6f, kNaN, -1.0f, kNaN, kNaN};
  std::vector<float> scores = group_scores<float>(selection, keys);
  EXPECT_EQ(scores[0], 0.9f);
  EXPECT_EQ(scores[2], -1.0f);
  EXPECT_TRUE(std::isnan(scores[3]));
  selection.group_score = GroupScore::kTop2Sum;
  scores = group_scores<float>(selection, keys);
  EXPECT_EQ(scores[0], 0.9f + 0.1f);
  EXPECT_EQ(scores[1], 1.2f);
  EXPECT_TRUE(std::isnan(scores[2]));
  const std::vector<float> wide = {kNaN, 2.0f, 1.0f, kNaN};
  selection.n_group = 1;
  EXPECT_THAT(group_scores<float>(selection, wide), ElementsAre(3.0f));
}

TEST(Groups, NanGroupsRankLastAndTiesGoToTheLowerGroup) {
  RouterSpec::Selection selection;
  selection.topk_group = 2;
  EXPECT_THAT(kept_groups<float>(selection, std::vector<float>{kNaN, 1, 1, 1}), ElementsAre(0, 1, 1, 0));
  EXPECT_THAT(kept_groups<float>(selection, std::vector<float>{kNaN, kNaN, -kInf}), ElementsAre(1, 0, 1));
  EXPECT_THAT(kept_groups<float>(selection, std::vector<float>{-0.0f, 0.0f, 0.0f}), ElementsAre(1, 1, 0));
}

TEST(Groups, InfinitiesThatCancelMakeANanGroup) {
  const RouterSpec spec =
      with_groups(spec_of(4, 2, ScoreFunc::kIdentity), 2, 1, GroupScore::kTop2Sum, GroupMask::kNegInf);
  EXPECT_THAT(route(spec, {kInf, -kInf, -5, -6}).ids, ElementsAre(2, 3));
}

TEST(Groups, ZeroMaskCompetesWithKeyZeroEvenForNan) {
  const RouterSpec spec = with_groups(spec_of(6, 4, ScoreFunc::kIdentity), 3, 2, GroupScore::kMax, GroupMask::kZero);
  // Groups {5, -1}, {NaN, -9}, {4, -2}: the second is rejected, its keys become +0.
  const RowAnswer<float> answer = route(spec, {5, -1, kNaN, -9, 4, -2});
  EXPECT_THAT(answer.ids, ElementsAre(0, 4, 2, 3));
  EXPECT_THAT(answer.excluded, Each(0));
  EXPECT_THAT(answer.group_kept, ElementsAre(1, 0, 1));
  EXPECT_EQ(answer.keys[3], 0.0f);
  EXPECT_EQ(answer.scores[3], -9.0f);
  EXPECT_EQ(answer.weights[2], 0.0f);   // NaN score
  EXPECT_EQ(answer.weights[3], -9.0f);  // the unbiased score, not the key
}

TEST(Groups, ABiasedWeightIsTheKeyBeforeTheMask) {
  RouterSpec spec = with_groups(spec_of(4, 3, ScoreFunc::kIdentity), 2, 1, GroupScore::kMax, GroupMask::kZero);
  spec.weights.source = WeightSource::kBiasedScore;
  const RowAnswer<float> answer = route(spec, {2, 1, -3, -4}, {0.5f, 0.5f, 0.5f, 0.5f});
  EXPECT_THAT(answer.ids, ElementsAre(0, 1, 2));
  EXPECT_THAT(answer.weights, ElementsAre(2.5f, 1.5f, -2.5f));
}

TEST(Groups, NegInfMaskFillsFromKeptGroupsOnly) {
  const RouterSpec spec = with_groups(spec_of(6, 4, ScoreFunc::kIdentity), 3, 2, GroupScore::kMax, GroupMask::kNegInf);
  const RowAnswer<float> answer = route(spec, {5, kNaN, 1, 1, 4, -kInf});
  EXPECT_THAT(answer.ids, ElementsAre(0, 4, 5, 1));
  EXPECT_THAT(answer.excluded, ElementsAre(0, 0, 1, 1, 0, 0));
  EXPECT_EQ(answer.first_rejected, -1);
}

TEST(Route, ByIndexOrderKeepsTheSumOfKeyOrder) {
  RouterSpec spec = spec_of(4, 3, ScoreFunc::kIdentity, true);
  spec.weights.eps = 0;
  spec.weights.eps_mode = EpsMode::kNone;
  const std::vector<float> logits = {1.0f, 1.0f, -9.0f, 0x1p24f};
  const RowAnswer<float> by_key = route(spec, logits);
  EXPECT_THAT(by_key.ids, ElementsAre(3, 0, 1));
  EXPECT_EQ(by_key.sum, 0x1p24f);
  spec.selection.sort = SlotOrder::kByIndex;
  const RowAnswer<float> by_index = route(spec, logits);
  EXPECT_THAT(by_index.ids, ElementsAre(0, 1, 3));
  EXPECT_THAT(by_index.weights, ElementsAre(by_key.weights[1], by_key.weights[2], by_key.weights[0]));
  EXPECT_EQ(by_index.sum, 0x1p24f);  // 1 + 1 first would give 2^24 + 2
  EXPECT_EQ(by_index.last_chosen, 1);
}

TEST(Route, AfterTopkScoresOnlyTheChosen) {
  RouterSpec spec = spec_of(4, 2, ScoreFunc::kSoftmax);
  spec.score.stage = ScoreStage::kAfterTopk;
  spec.selection.rank_by = RankBy::kLogit;
  const RowAnswer<float> answer = route(spec, {0, 2, -1, 3});
  EXPECT_THAT(answer.ids, ElementsAre(3, 1));
  const float sum = 1.0f + tc256::exp(-1.0f);
  EXPECT_THAT(answer.weights, ElementsAre(1.0f / sum, tc256::exp(-1.0f) / sum));
  EXPECT_THAT(answer.scores, ElementsAre(0.0f, answer.weights[1], 0.0f, answer.weights[0]));
  spec.score.func = ScoreFunc::kSigmoid;
  EXPECT_THAT(route(spec, {0, 2, -1, 3}).weights, ElementsAre(tc256::sigmoid(3.0f), tc256::sigmoid(2.0f)));
}

TEST(Route, AfterTopkWithNonFiniteLogits) {
  RouterSpec spec = spec_of(4, 3, ScoreFunc::kSoftmax);
  spec.score.stage = ScoreStage::kAfterTopk;
  spec.selection.rank_by = RankBy::kLogit;
  EXPECT_THAT(route(spec, {kInf, 1, kInf, kNaN}).weights, ElementsAre(0.5f, 0.5f, 0.0f));
  EXPECT_THAT(route(spec, row(4, -kInf)).weights, Each(0.0f));
  EXPECT_THAT(route(spec, row(4, kNaN)).weights, Each(0.0f));
  EXPECT_THAT(route(spec, {kNaN, kNaN, 7, kNaN}).weights, ElementsAre(1.0f, 0.0f, 0.0f));
}

TEST(Route, AllExpertsAndOneExpert) {
  const RowAnswer<float> all = route(spec_of(3, 3, ScoreFunc::kSoftmax, true), {1, 3, 2});
  EXPECT_THAT(all.ids, ElementsAre(1, 2, 0));
  EXPECT_THAT(route(spec_of(1, 1, ScoreFunc::kSigmoid, true), {kNaN}).weights, ElementsAre(0.0f));
  EXPECT_THAT(route(spec_of(4, 1, ScoreFunc::kSigmoid, true), {0, 9, 1, 2}).weights, ElementsAre(1.0f));
}

TEST(Route, Bf16ScoresAreRankedAsRounded) {
  RouterSpec spec = spec_of(2, 1, ScoreFunc::kSigmoid);
  EXPECT_THAT(route(spec, {6.0f, 6.03125f}).ids, ElementsAre(1));
  spec.score.dtype = FloatType::kBf16;
  EXPECT_THAT(route(spec, {6.0f, 6.03125f}).ids, ElementsAre(0));
}

TEST(Route, RefusesTensorsOfTheWrongSize) {
  RouterSpec spec = spec_of(2, 1, ScoreFunc::kSigmoid);
  EXPECT_THROW(route(spec, {1, 2, 3}), std::invalid_argument);
  EXPECT_THROW(route(spec, {1, 2}, {1}), std::invalid_argument);
  spec.weights.per_expert_scale = true;
  EXPECT_THROW(route(spec, {1, 2}), std::invalid_argument);
  spec.weights.per_expert_scale = false;
  spec.weights.global_scale = true;
  EXPECT_THROW(route(spec, {1, 2}), std::invalid_argument);
  spec.weights.global_scale = false;
  spec.selection.method = SelectionMethod::kHashTable;
  EXPECT_THROW(route(spec, {1, 2}), std::invalid_argument);
}

}  // namespace
}  // namespace samebits::oracle
