// Selection by table, per group and by sparsemixer; row classes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "oracle/emulate/tc256.h"
#include "oracle/test/reference_rows.h"

namespace samebits::oracle {
namespace {

using test::spec_of;
using testing::ElementsAre;

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNan = std::bit_cast<float>(0x7fffffffu);

RouterSpec hash_spec(std::int64_t experts, std::int64_t k) {
  RouterSpec spec = spec_of(experts, k, ScoreFunc::kIdentity, true);
  spec.selection.method = SelectionMethod::kHashTable;
  return spec;
}

TEST(HashTable, IdsInTableOrderWhateverTheLogits) {
  const std::vector<float> logits = {8, 4, 2, 1};
  const std::vector<std::int32_t> table = {3, 0};
  const auto answer = route_row(hash_spec(4, 2), std::span(logits), {.table_ids = table});
  EXPECT_THAT(answer.ids, ElementsAre(3, 0));
  EXPECT_THAT(answer.weights, ElementsAre(1.0f / 9.0f, 8.0f / 9.0f));
  EXPECT_TRUE(answer.keys.empty());
  EXPECT_EQ(answer.first_rejected, -1);
}

TEST(HashTable, TheSumRunsInTableOrder) {
  // (1 + 2^24) - 2^24 is 0, (2^24 - 2^24) + 1 is 1.
  const std::vector<float> logits = {0x1p24f, -0x1p24f, 1};
  const std::vector<std::int32_t> lost = {2, 0, 1}, kept = {0, 1, 2};
  EXPECT_EQ(route_row(hash_spec(3, 3), std::span(logits), {.table_ids = lost}).sum, 0.0f);
  EXPECT_EQ(route_row(hash_spec(3, 3), std::span(logits), {.table_ids = kept}).sum, 1.0f);
}

TEST(HashTable, TokensOutsideTheTableHaveNoAnswer) {
  RouterInputs inputs;
  inputs.num_tokens = 4;
  inputs.gate_rows = 3;
  inputs.hash_table = {0, 1, 2, 0};
  inputs.token_ids = {1, -1, 2, std::numeric_limits<std::int64_t>::max()};
  const RouterSpec spec = hash_spec(3, 2);
  EXPECT_THAT(row_constants(spec, inputs, 0).table_ids, ElementsAre(2, 0));
  const std::vector<float> logits = {1, 2, 3};
  for (const std::int64_t row : {1, 2, 3}) {
    const RowConstants constants = row_constants(spec, inputs, row);
    EXPECT_FALSE(constants.routable) << row;
    const auto answer = route_row(spec, std::span(logits), constants);
    EXPECT_THAT(answer.ids, ElementsAre(-1, -1));
    EXPECT_THAT(answer.weights, ElementsAre(0.0f, 0.0f));
    EXPECT_THAT(answer.logits, ElementsAre(1.0f, 2.0f, 3.0f));
  }
}

TEST(RowClass, PicksTheBiasOfTheRow) {
  RouterSpec spec = spec_of(2, 1, ScoreFunc::kSigmoid);
  spec.selection.bias = BiasType::kFp32;
  spec.selection.bias_variants = {"text", "image"};
  RouterInputs inputs;
  inputs.num_tokens = 4;
  inputs.gate_rows = 2;
  inputs.selection_bias = {1, 0, 0, 1};
  const std::vector<float> logits = {0, 0};
  const auto ids = [&](std::int64_t row) {
    return route_row(spec, std::span(logits), row_constants(spec, inputs, row)).ids;
  };
  EXPECT_THAT(ids(3), ElementsAre(0)) << "absent classes are 0";
  inputs.row_class = {0, 1, 2, -1};
  EXPECT_THAT(ids(0), ElementsAre(0));
  EXPECT_THAT(ids(1), ElementsAre(1));
  EXPECT_THAT(ids(2), ElementsAre(-1));
  EXPECT_THAT(ids(3), ElementsAre(-1));
  spec.selection.bias = BiasType::kNone;
  EXPECT_THAT(ids(3), ElementsAre(0)) << "without a bias, classes have no meaning";
}

RouterSpec per_group_spec(std::int64_t experts, std::int64_t k, std::int64_t n_group) {
  RouterSpec spec = spec_of(experts, k, ScoreFunc::kIdentity);
  spec.selection.n_group = spec.selection.topk_group = n_group;
  spec.selection.topk_scope = TopkScope::kPerGroup;
  return spec;
}

TEST(PerGroup, EveryGroupGivesItsBestInTheOrderOfKeys) {
  // The second group holds the three largest, but gives two.
  const auto answer = test::route(per_group_spec(6, 4, 2), {1, 3, 2, 7, 9, 8});
  EXPECT_THAT(answer.ids, ElementsAre(4, 5, 1, 2));
  EXPECT_EQ(answer.last_chosen, 2);  // 2 - 1 and 8 - 7 are equal: the lower group
  EXPECT_EQ(answer.first_rejected, 0);
}

TEST(PerGroup, TheCutIsThatOfTheNearestGroup) {
  const auto answer = test::route(per_group_spec(4, 2, 2), {5, 1, 2, 2});
  EXPECT_THAT(answer.ids, ElementsAre(0, 2));
  EXPECT_EQ(answer.last_chosen, 2);
  EXPECT_EQ(answer.first_rejected, 3);
}

TEST(PerGroup, NanAndInfinitiesStayInTheirGroup) {
  EXPECT_THAT(test::route(per_group_spec(4, 2, 2), {kNan, kNan, kInf, kInf}).ids, ElementsAre(2, 0));
  EXPECT_THAT(test::route(per_group_spec(4, 2, 2), {kNan, -kInf, 5, 6}).ids, ElementsAre(3, 1));
}

TEST(PerGroup, WithoutRejectedExpertsThereIsNoCut) {
  EXPECT_EQ(test::route(per_group_spec(4, 4, 2), {1, 2, 3, 4}).first_rejected, -1);
}

RouterSpec sparsemixer_spec(std::int64_t experts) {
  RouterSpec spec = spec_of(experts, 2, ScoreFunc::kSoftmax);
  spec.selection.method = SelectionMethod::kSparsemixer;
  spec.selection.rank_by = RankBy::kLogit;
  spec.sparsemixer_jitter_eps = 0.01;
  return spec;
}

TEST(Sparsemixer, FarExpertsLeaveEachPassAWeightOfOne) {
  const auto answer = test::route(sparsemixer_spec(3), {1, 2, 3});
  EXPECT_THAT(answer.ids, ElementsAre(2, 1));
  EXPECT_THAT(answer.weights, ElementsAre(1.0f, 1.0f));
}

TEST(Sparsemixer, NearExpertsShare) {
  // (100 - 99) / 100 and (99 - 99) / 99 are below 0.02; (100 - 97) / 100 and (99 - 97) / 99 are not.
  const auto answer = test::route(sparsemixer_spec(4), {99, 97, 100, 99});
  EXPECT_THAT(answer.ids, ElementsAre(2, 0));
  const float e = tc256::exp(-1.0f);
  EXPECT_EQ(answer.weights[0], 1.0f / (e + 1.0f + e));
  EXPECT_EQ(answer.weights[1], 0.5f);  // 97 would share if the threshold of the first pass still held
}

TEST(Sparsemixer, TheDenominatorIsTheLargerMagnitude) {
  // (1 - -100) / 100 > 0.02, and for negative logits |z_j| counts: (-100 - -101) / 101.
  const auto answer = test::route(sparsemixer_spec(2), {-101, -100});
  EXPECT_THAT(answer.ids, ElementsAre(1, 0));
  EXPECT_EQ(answer.weights[0], 1.0f / (tc256::exp(-1.0f) + 1.0f));
  EXPECT_EQ(answer.weights[1], 1.0f);
}

TEST(Sparsemixer, ZerosInfinitiesAndNan) {
  EXPECT_THAT(test::route(sparsemixer_spec(2), {0, 0}).weights, ElementsAre(0.5f, 1.0f)) << "0 / 0 takes part";
  EXPECT_THAT(test::route(sparsemixer_spec(3), {kInf, 5, kInf}).weights, ElementsAre(0.5f, 1.0f));
  EXPECT_THAT(test::route(sparsemixer_spec(2), {-kInf, -kInf}).weights, ElementsAre(0.0f, 0.0f));
  const auto nan = test::route(sparsemixer_spec(2), {kNan, 3});
  EXPECT_THAT(nan.ids, ElementsAre(1, 0));
  EXPECT_THAT(nan.weights, ElementsAre(1.0f, 0.0f));
}

}  // namespace
}  // namespace samebits::oracle
