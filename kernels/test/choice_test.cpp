// Which experts a row gets where something else than its best keys decides: classes, tables, groups with a share each,
// zero experts, shared experts.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "kernels/common/bits.h"
#include "kernels/test/test_router.h"

namespace samebits::cpu::test {
namespace {

using Ids = std::vector<std::int32_t>;
using Floats = std::vector<float>;

constexpr float kInf = std::numeric_limits<float>::infinity();
const float kNaN = std::numeric_limits<float>::quiet_NaN();

samebits_router_spec sigmoid_spec(std::int32_t num_experts, std::int32_t top_k) {
  samebits_router_spec spec = plain_spec(0, num_experts, top_k);
  spec.score_func = SAMEBITS_SCORE_SIGMOID;
  return spec;
}

Floats repeated(const Floats& row, int times) {
  Floats rows;
  for (int i = 0; i < times; ++i) rows.insert(rows.end(), row.begin(), row.end());
  return rows;
}

TEST(RowClasses, PickTheirBias) {
  samebits_router_spec spec = sigmoid_bias_spec(0, 4, 1);
  spec.num_bias_variants = 3;
  Constants constants;
  constants.selection_bias = {0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1};
  const TestRouter router(spec, constants);
  CallOptions options;
  options.row_class = {0, 2, 1, 3, -1, 0};
  options.bookkeeping = true;
  const Routed routed = router.route_from_logits(repeated({0, 0, 0, 0}, 6), options);
  EXPECT_EQ(routed.ids, (Ids{1, 3, 2, -1, -1, 1}));
  EXPECT_EQ(routed.weights, (Floats{2.5f, 2.5f, 2.5f, 0, 0, 2.5f}));
  EXPECT_EQ(routed.logits, Floats(24, 0.0f)) << "logits of rows without an answer are written";
  EXPECT_EQ(routed.tokens_per_expert, (Ids{0, 2, 1, 1}));
  EXPECT_EQ(routed.position_of_slot, (Ids{0, 3, 2, -1, -1, 1}));
  EXPECT_EQ(router.route_from_logits(repeated({0, 0, 0, 0}, 2)).ids, (Ids{1, 1})) << "absent: class 0";
}

TEST(RowClasses, RoundEveryBiasToBf16) {
  samebits_router_spec spec = sigmoid_bias_spec(0, 2, 1);
  spec.num_bias_variants = 2;
  spec.selection_bias_dtype = SAMEBITS_BF16;
  Constants constants;
  constants.selection_bias = {7, 7.001f, 7, 7.001f};
  CallOptions options;
  options.row_class = {0, 1};
  EXPECT_EQ(TestRouter(spec, constants).route_from_logits({0, 0, 0, 0}, options).ids, (Ids{0, 0}));
}

TEST(RowClasses, HaveABiasForEveryExpertThatCompetes) {
  samebits_router_spec spec = sigmoid_bias_spec(0, 1, 1);
  spec.zero_experts = 2, spec.zero_type = SAMEBITS_ZERO_EXPERTS_IDENTITY;
  spec.num_bias_variants = 2;
  Constants constants;
  constants.selection_bias = {0, 0, 5, 3, 0, 1};
  CallOptions options;
  options.row_class = {0, 1};
  EXPECT_EQ(TestRouter(spec, constants).route_from_logits({0, 0, 0, 0, 0, 0}, options).ids, (Ids{2, 0}));
}

TEST(RowClasses, MeanNothingWithoutABias) {
  CallOptions options;
  options.row_class = {7, -9};
  EXPECT_EQ(TestRouter(sigmoid_spec(2, 1), {}).route_from_logits({0, 1, 1, 0}, options).ids, (Ids{1, 0}));
}

samebits_router_spec hash_spec() {
  samebits_router_spec spec = sigmoid_spec(5, 2);
  spec.selection_method = SAMEBITS_SELECT_HASH_TABLE;
  spec.hash_vocab_size = 3;
  spec.renormalize = SAMEBITS_RENORM_L1;
  return spec;
}

TEST(HashTable, TableOrderAndWeightsFromTheGate) {
  Constants constants;
  constants.hash_table = {4, 0, 0, 4, 2, 1};
  CallOptions options;
  options.token_ids = {0, 1, 2, 3, -1, INT32_MAX};
  options.bookkeeping = true;
  // Scores are 1 for +inf and 0 for -inf: values by hand.
  const Routed routed =
      TestRouter(hash_spec(), constants).route_from_logits(repeated({kInf, 0, 0, 9, -kInf}, 6), options);
  EXPECT_EQ(routed.ids, (Ids{4, 0, 0, 4, 2, 1, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(routed.weights, (Floats{0, 1, 1, 0, 0.5f, 0.5f, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(routed.logits.size(), 30u);
  EXPECT_EQ(routed.logits[29], -kInf);
  EXPECT_EQ(routed.expert_offsets, (Ids{0, 2, 3, 4, 4, 6}));
}

TEST(HashTable, SortsByIndexAndScoresNaNAsZero) {
  samebits_router_spec spec = hash_spec();
  spec.sort = SAMEBITS_SORT_BY_INDEX;
  Constants constants;
  constants.hash_table = {4, 0, 0, 4, 2, 1};
  CallOptions options;
  options.token_ids = {0, 2};
  const Routed routed =
      TestRouter(spec, constants).route_from_logits({0, 0, 0, 0, kNaN, kNaN, kNaN, kNaN, 0, 0}, options);
  EXPECT_EQ(routed.ids, (Ids{0, 4, 1, 2}));
  EXPECT_EQ(routed.weights, (Floats{1, 0, 0, 0}));
}

TEST(PerGroup, EachGroupGivesItsShareAndKeysOrderThem) {
  samebits_router_spec spec = sigmoid_spec(6, 4);
  spec.rank_by = SAMEBITS_RANK_BY_LOGIT;
  spec.n_group = spec.topk_group = 2;
  spec.topk_scope = SAMEBITS_TOPK_PER_GROUP;
  const TestRouter router(spec, {});
  EXPECT_EQ(router.route_from_logits({9, 8, 7, 1, 2, 3}).ids, (Ids{0, 1, 5, 4}));
  EXPECT_EQ(router.route_from_logits({1, 3, 2, 3, 1, 3}).ids, (Ids{1, 3, 5, 2}));
  EXPECT_EQ(router.route_from_logits({kNaN, kNaN, 1, -kInf, 5, kNaN}).ids, (Ids{4, 2, 3, 0}));
}

TEST(PerGroup, OneGroupIsTheGlobalChoice) {
  samebits_router_spec spec = sigmoid_spec(200, 90);
  const Floats logits = normal_fp32(4, 200);
  const Routed global = TestRouter(spec, {}).route_from_logits(logits);
  spec.topk_scope = SAMEBITS_TOPK_PER_GROUP;
  EXPECT_EQ(TestRouter(spec, {}).route_from_logits(logits).ids, global.ids);
}

samebits_router_spec zero_expert_spec(std::int32_t zero_type) {
  samebits_router_spec spec = plain_spec(0, 2, 2);
  spec.zero_experts = 2;
  spec.zero_type = zero_type;
  return spec;
}

TEST(ZeroExperts, CompeteAndTakePartInTheSoftmax) {
  const Routed routed =
      TestRouter(zero_expert_spec(SAMEBITS_ZERO_EXPERTS_IDENTITY), {}).route_from_logits({0, 0, 0, 0});
  EXPECT_EQ(routed.ids, (Ids{0, 1}));
  EXPECT_EQ(routed.weights, (Floats{0.25f, 0.25f}));
  CallOptions options;
  options.bookkeeping = true;
  const Routed other =
      TestRouter(zero_expert_spec(SAMEBITS_ZERO_EXPERTS_IDENTITY), {}).route_from_logits({-kInf, 0, -kInf, 0}, options);
  EXPECT_EQ(other.ids, (Ids{1, 3}));
  EXPECT_EQ(other.weights, (Floats{0.5f, 0.5f}));
  EXPECT_EQ(other.tokens_per_expert, (Ids{0, 1, 0, 1})) << "counts have G entries";
}

TEST(ZeroExperts, AreRemappedLastOfAll) {
  samebits_router_spec spec = zero_expert_spec(SAMEBITS_ZERO_EXPERTS_IDENTITY_REMAPPED_TO_ID0_WEIGHT0);
  CallOptions options;
  options.bookkeeping = true;
  const Routed routed = TestRouter(spec, {}).route_from_logits({-kInf, 0, -kInf, 0}, options);
  EXPECT_EQ(routed.ids, (Ids{1, 0}));
  EXPECT_EQ(routed.weights, (Floats{0.5f, 0}));
  EXPECT_EQ(routed.tokens_per_expert, (Ids{1, 1, 0, 0}));
  // After the sort by index, so that ids need not ascend, and twice in one row.
  spec.sort = SAMEBITS_SORT_BY_INDEX;
  EXPECT_EQ(TestRouter(spec, {}).route_from_logits({-kInf, 0, 0, -kInf}).ids, (Ids{1, 0}));
  EXPECT_EQ(TestRouter(spec, {}).route_from_logits({-kInf, -kInf, 0, 0}).ids, (Ids{0, 0}));
}

TEST(ZeroExperts, RemappingLeavesSharedExpertsAlone) {
  samebits_router_spec spec = sigmoid_spec(2, 1);
  spec.zero_experts = 1, spec.zero_type = SAMEBITS_ZERO_EXPERTS_IDENTITY_REMAPPED_TO_ID0_WEIGHT0;
  spec.shared_experts = 1, spec.shared_mode = SAMEBITS_SHARED_IN_GATE;
  const Routed routed = TestRouter(spec, {}).route_from_logits({0, 0, 1, 0});
  EXPECT_EQ(routed.ids, (Ids{0, 3}));
  EXPECT_EQ(routed.weights, (Floats{0, 0.5f}));
}

TEST(SharedExperts, FollowTheChosenAndNeverCompete) {
  samebits_router_spec spec = sigmoid_spec(3, 1);
  spec.zero_experts = 1, spec.zero_type = SAMEBITS_ZERO_EXPERTS_IDENTITY;
  spec.shared_experts = 2, spec.shared_mode = SAMEBITS_SHARED_IN_GATE;
  spec.renormalize = SAMEBITS_RENORM_L1;
  CallOptions options;
  options.bookkeeping = true;
  const Routed routed = TestRouter(spec, {}).route_from_logits({-1, 0, -1, -1, kInf, 0}, options);
  EXPECT_EQ(routed.ids, (Ids{1, 4, 5}));
  EXPECT_EQ(routed.weights, (Floats{0.25f, 0.5f, 0.25f}));
  EXPECT_EQ(routed.tokens_per_expert, (Ids{0, 1, 0, 0, 1, 1}));
  EXPECT_EQ(routed.logits.size(), 6u);
}

}  // namespace
}  // namespace samebits::cpu::test
