// Each mutant differs from the good router where its fault lies, and nowhere else.
#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "kernels/mutants/mutants.h"
#include "kernels/test/test_router.h"

namespace samebits::cpu::test {
namespace {

const Steps& steps_of(const char* name) {
  const mutants::Mutant* mutant = mutants::find_mutant(name);
  EXPECT_NE(mutant, nullptr) << name;
  return mutant == nullptr ? tc256_steps() : mutant->steps;
}

void expect_same(const Routed& a, const Routed& b) {
  EXPECT_TRUE(same_bits(a.ids, b.ids));
  EXPECT_TRUE(same_bits(a.weights, b.weights));
  EXPECT_TRUE(same_bits(a.logits, b.logits));
}

TEST(Mutants, AreToldApart) {
  std::set<std::string> names;
  for (const mutants::Mutant& mutant : mutants::all_mutants()) {
    EXPECT_TRUE(names.insert(mutant.id).second) << mutant.id;
    EXPECT_TRUE(names.insert(mutant.name).second) << mutant.name;
    EXPECT_EQ(mutants::find_mutant(mutant.id), &mutant);
    EXPECT_EQ(mutants::find_mutant(mutant.name), &mutant);
    EXPECT_STREQ(mutant.steps.name, mutant.name);
    EXPECT_GT(std::string(mutant.fault).size(), 10u) << mutant.name;
  }
  EXPECT_EQ(mutants::find_mutant("none"), nullptr);
}

TEST(Mutants, RowDependentSplitChangesLogitsFrom17Rows) {
  constexpr std::int32_t kHidden = 1024;
  const samebits_router_spec spec = sigmoid_bias_spec(kHidden, 40, 4);
  const Constants constants = random_constants(spec, 1);
  const TestRouter good(spec, constants), mutant(spec, constants, steps_of("row_dependent_split"));
  const auto hidden = normal_bf16(2, 40 * kHidden);
  expect_same(mutant.route(rows_of(hidden, kHidden, 0, 1)), good.route(rows_of(hidden, kHidden, 0, 1)));
  expect_same(mutant.route(rows_of(hidden, kHidden, 0, 16)), good.route(rows_of(hidden, kHidden, 0, 16)));
  const auto more = rows_of(hidden, kHidden, 0, 17);
  EXPECT_FALSE(same_bits(mutant.route(more).logits, good.route(more).logits));
  EXPECT_EQ(mutant.route(hidden).kernel_name.substr(0, 24), "cpu/row_dependent_split/");
}

// 1 in the first half, 2^30 - 2^30 in the second: a chain cuts the 1 beside 2^30, halves do not.
TEST(Mutants, RowDependentSplitShowsInAFewNumbers) {
  const samebits_router_spec spec = plain_spec(32, 1, 1);
  Constants constants;
  constants.gate_weight.assign(32, 0x3f80);
  std::vector<std::uint16_t> row(32, 0), hidden;
  row[0] = 0x3f80, row[16] = 0x4e80, row[17] = 0xce80;
  for (int r = 0; r < 17; ++r) hidden.insert(hidden.end(), row.begin(), row.end());
  const TestRouter good(spec, constants), mutant(spec, constants, steps_of("row_dependent_split"));
  EXPECT_EQ(good.route(hidden).logits, std::vector<float>(17, 0.0f));
  EXPECT_EQ(mutant.route(hidden).logits, std::vector<float>(17, 1.0f));
  EXPECT_EQ(mutant.route(row).logits, std::vector<float>(1, 0.0f));
}

TEST(Mutants, Bf16BiasChangesTheSetOnly) {
  const samebits_router_spec spec = sigmoid_bias_spec(64, 288, 8);
  Constants constants = random_constants(spec, 3);
  const auto hidden = normal_bf16(4, 32 * 64);
  const Routed good = TestRouter(spec, constants).route(hidden);
  const Routed mutant = TestRouter(spec, constants, steps_of("bf16_bias")).route(hidden);
  EXPECT_FALSE(same_bits(mutant.ids, good.ids));
  EXPECT_TRUE(same_bits(mutant.logits, good.logits));
  // A bias that bf16 holds exactly shows nothing.
  constants.selection_bias.assign(288, 11.5f);
  expect_same(TestRouter(spec, constants, steps_of("bf16_bias")).route(hidden),
              TestRouter(spec, constants).route(hidden));
}

TEST(Mutants, TiesToHigherIdNeedATie) {
  const samebits_router_spec spec = plain_spec(0, 6, 3);
  const TestRouter good(spec, {}), mutant(spec, {}, steps_of("ties_to_higher_id"));
  EXPECT_EQ(good.route_from_logits({1, 2, 2, 0, 2, 2}).ids, (std::vector<std::int32_t>{1, 2, 4}));
  EXPECT_EQ(mutant.route_from_logits({1, 2, 2, 0, 2, 2}).ids, (std::vector<std::int32_t>{5, 4, 2}));
  const std::vector<float> distinct = {1, 6, 2, 4, 5, 3};
  expect_same(mutant.route_from_logits(distinct), good.route_from_logits(distinct));
}

// The good router and a mutant on the same call.
struct Pair {
  Pair(const char* name, const samebits_router_spec& spec, const Constants& constants = {})
      : good(spec, constants), mutant(spec, constants, steps_of(name)) {}
  TestRouter good, mutant;
};

TEST(Mutants, SoftcapByExponentials) {
  samebits_router_spec spec = plain_spec(1, 3, 2);
  spec.softcap = 2.0f;
  Constants constants;
  constants.gate_weight = {0x42b4, 0xc2b4, 0};  // 90, -90, 0
  const Pair pair("softcap_by_exponentials", spec, constants);
  EXPECT_EQ(pair.good.route({0x3f80}).logits, (std::vector<float>{2, -2, 0}));
  const std::vector<float> found = pair.mutant.route({0x3f80}).logits;
  EXPECT_TRUE(std::isnan(found[0]));
  EXPECT_EQ(found[1], -2.0f);
  EXPECT_EQ(found[2], 0.0f);
}

TEST(Mutants, SoftmaxWithoutZeroExperts) {
  samebits_router_spec spec = plain_spec(0, 2, 2);
  const Pair without("softmax_without_zero_experts", spec);
  expect_same(without.mutant.route_from_logits({1, 2}), without.good.route_from_logits({1, 2}));
  spec.zero_experts = 2, spec.zero_type = SAMEBITS_ZERO_EXPERTS_IDENTITY;
  const Pair pair("softmax_without_zero_experts", spec);
  EXPECT_EQ(pair.good.route_from_logits({0, 0, 0, 0}).weights, (std::vector<float>{0.25f, 0.25f}));
  EXPECT_EQ(pair.mutant.route_from_logits({0, 0, 0, 0}).weights, (std::vector<float>{0.5f, 0.5f}));
}

TEST(Mutants, TextBiasForImageRows) {
  samebits_router_spec spec = sigmoid_bias_spec(0, 2, 1);
  spec.num_bias_variants = 2;
  Constants constants;
  constants.selection_bias = {0, 1, 1, 0};
  const Pair pair("text_bias_for_image_rows", spec, constants);
  CallOptions options;
  options.row_class = {0, 1};
  EXPECT_EQ(pair.good.route_from_logits({0, 0, 0, 0}, options).ids, (std::vector<std::int32_t>{1, 0}));
  EXPECT_EQ(pair.mutant.route_from_logits({0, 0, 0, 0}, options).ids, (std::vector<std::int32_t>{1, 1}));
}

TEST(Mutants, OfHashTables) {
  samebits_router_spec spec = plain_spec(0, 3, 2);
  spec.score_func = SAMEBITS_SCORE_SIGMOID, spec.renormalize = SAMEBITS_RENORM_L1;
  spec.selection_method = SAMEBITS_SELECT_HASH_TABLE;
  spec.hash_vocab_size = 2;
  Constants constants;
  constants.hash_table = {0, 1, 1, 0};
  CallOptions options;
  options.token_ids = {0, 1};
  const std::vector<float> logits = {0, 90, 5, 0, 90, 5};
  const Pair order("hash_ids_by_score", spec, constants), weights("uniform_hash_weights", spec, constants);
  const Routed good = order.good.route_from_logits(logits, options);
  EXPECT_EQ(good.ids, (std::vector<std::int32_t>{0, 1, 1, 0}));
  EXPECT_EQ(order.mutant.route_from_logits(logits, options).ids, (std::vector<std::int32_t>{1, 0, 1, 0}));
  const Routed uniform = weights.mutant.route_from_logits(logits, options);
  EXPECT_EQ(uniform.ids, good.ids);
  EXPECT_EQ(uniform.weights, std::vector<float>(4, 0.5f));
  EXPECT_NE(good.weights, uniform.weights);
}

TEST(Mutants, BiasedWeights) {
  samebits_router_spec spec = sigmoid_bias_spec(0, 3, 2);
  spec.renormalize = SAMEBITS_RENORM_NONE, spec.eps_mode = SAMEBITS_EPS_NONE, spec.eps = 0;
  spec.routed_scaling_factor = 1;
  Constants constants;
  constants.selection_bias = {2, 1, 0};
  const Pair pair("biased_weights", spec, constants);
  EXPECT_EQ(pair.good.route_from_logits({0, 0, 0}).weights, (std::vector<float>{0.5f, 0.5f}));
  EXPECT_EQ(pair.mutant.route_from_logits({0, 0, 0}).weights, (std::vector<float>{2.5f, 1.5f}));
}

TEST(Mutants, SparsemixerWithKeptMask) {
  samebits_router_spec spec = plain_spec(0, 4, 2);
  spec.selection_method = SAMEBITS_SELECT_SPARSEMIXER, spec.rank_by = SAMEBITS_RANK_BY_LOGIT;
  spec.sparsemixer_jitter_eps = 0.01f;
  const Pair pair("sparsemixer_with_kept_mask", spec);
  // The second is far below the first: masked in pass 0, alone in pass 1.
  EXPECT_EQ(pair.good.route_from_logits({8, 2, 4, 1}).weights, (std::vector<float>{1, 1}));
  EXPECT_EQ(pair.mutant.route_from_logits({8, 2, 4, 1}).weights, (std::vector<float>{1, 0}));
  expect_same(pair.mutant.route_from_logits({8, 8, 8, 8}), pair.good.route_from_logits({8, 8, 8, 8}));
}

TEST(Mutants, SumWithoutSharedExperts) {
  samebits_router_spec spec = plain_spec(0, 3, 2);
  spec.score_func = SAMEBITS_SCORE_SIGMOID, spec.renormalize = SAMEBITS_RENORM_L1;
  spec.shared_experts = 2, spec.shared_mode = SAMEBITS_SHARED_IN_GATE;
  const Pair pair("sum_without_shared_experts", spec);
  EXPECT_EQ(pair.good.route_from_logits({0, 0, 0, 0, 0}).weights, std::vector<float>(4, 0.25f));
  EXPECT_EQ(pair.mutant.route_from_logits({0, 0, 0, 0, 0}).weights, std::vector<float>(4, 0.5f));
}

TEST(Mutants, ExpertScaleBySlot) {
  samebits_router_spec spec = plain_spec(0, 3, 1);
  spec.score_func = SAMEBITS_SCORE_IDENTITY;
  spec.per_expert_scale = 1;
  Constants constants;
  constants.per_expert_scale = {2, 3, 5};
  const Pair pair("expert_scale_by_slot", spec, constants);
  EXPECT_EQ(pair.good.route_from_logits({0, 0, 1}).weights, std::vector<float>{5});
  EXPECT_EQ(pair.mutant.route_from_logits({0, 0, 1}).weights, std::vector<float>{2});
}

}  // namespace
}  // namespace samebits::cpu::test
