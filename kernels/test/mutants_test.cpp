// Each mutant differs from the good router where its fault lies, and nowhere else.
#include <gtest/gtest.h>

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
  return mutant == nullptr ? tc256_steps() : *mutant->steps;
}

void expect_same(const Routed& a, const Routed& b) {
  EXPECT_TRUE(same_bits(a.ids, b.ids));
  EXPECT_TRUE(same_bits(a.weights, b.weights));
  EXPECT_TRUE(same_bits(a.logits, b.logits));
}

TEST(Mutants, ListIsComplete) {
  std::set<std::string> names;
  for (const mutants::Mutant& mutant : mutants::all_mutants()) {
    names.insert(mutant.name);
    EXPECT_STREQ(mutant.steps->name, mutant.name);
    EXPECT_GT(std::string(mutant.fault).size(), 10u);
    EXPECT_GT(std::string(mutant.source).size(), 5u);
  }
  EXPECT_EQ(names,
            (std::set<std::string>{"row_dependent_split", "bf16_bias", "ties_to_higher_id", "softcap_by_exponentials",
                                   "softmax_without_zero_experts", "text_bias_for_image_rows", "hash_ids_by_score",
                                   "uniform_hash_weights", "biased_weights", "sparsemixer_with_kept_mask",
                                   "sum_without_shared_experts", "expert_scale_by_slot"}));
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

}  // namespace
}  // namespace samebits::cpu::test
