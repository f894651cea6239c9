// Shrinking of cases with features: every proposal is valid, and faults end in a handful of numbers.
#include <gtest/gtest.h>

#include <algorithm>

#include "feature_specs.h"
#include "oracle/spec/validate.h"
#include "properties/shrink.h"
#include "properties/shrink_edit.h"
#include "properties/test/test_specs.h"

namespace samebits::properties {
namespace {

using oracle::RouterInputs;
using oracle::RouterSpec;

void expect_valid(const Case& c) {
  EXPECT_TRUE(oracle::find_problems(c.spec).empty()) << c.spec.name;
  const RouterInputs inputs = materialize(c);
  for (std::int64_t row = 0; row < inputs.num_tokens; ++row) {
    const oracle::RowConstants constants = oracle::row_constants(c.spec, inputs, row);
    EXPECT_TRUE(std::all_of(constants.table_ids.begin(), constants.table_ids.end(),
                            [&](std::int32_t id) { return id >= 0 && id < oracle::ranked_experts(c.spec); }));
    std::vector<std::int32_t> ids(constants.table_ids.begin(), constants.table_ids.end());
    std::sort(ids.begin(), ids.end());
    EXPECT_EQ(std::adjacent_find(ids.begin(), ids.end()), ids.end());
  }
}

TEST(FeatureShrink, EveryProposalIsValid) {
  for (const RouterSpec& spec : feature_specs()) {
    for (const Case& c : {directed(spec).front(), directed(spec).back()}) {
      for (const Case& start : {c, with_explicit_tensors(c), from_finished_logits(c)}) {
        rc::Seq<Case> simpler = simpler_cases(start);
        int count = 0;
        for (auto next = simpler.next(); next && count < 1200; next = simpler.next(), ++count) expect_valid(*next);
        EXPECT_GT(count, 20) << spec.name;
      }
    }
  }
}

TEST(FeatureShrink, ExplicitTensorsAreTheGeneratedOnes) {
  for (const RouterSpec& spec : feature_specs()) {
    for (const Case& c : directed(spec)) {
      const RouterInputs generated = materialize(c), given = materialize(with_explicit_tensors(c));
      EXPECT_EQ(hash_of(generated), hash_of(given)) << spec.name << ", " << c.description.hazard;
      EXPECT_EQ(generated.token_ids_int32, given.token_ids_int32);
    }
  }
}

// The same part of a case, taken before or after its tensors became explicit.
TEST(FeatureShrink, PartsOfExplicitTensorsAreThoseOfTheGenerated) {
  for (const RouterSpec& spec : {classes_spec(), zero_spec(), shared_spec(), prepared_spec(), table_spec()}) {
    const Case c = directed_case(spec, "dispatch_boundary");
    const auto compare = [&](const std::optional<Case>& a, const std::optional<Case>& b) {
      ASSERT_TRUE(a && b);
      const RouterInputs x = materialize(*a), y = materialize(*b);
      EXPECT_EQ(x.gate_weight_bf16, y.gate_weight_bf16) << spec.name;
      EXPECT_EQ(x.hidden_states, y.hidden_states);
      EXPECT_EQ(x.selection_bias, y.selection_bias);
      EXPECT_EQ(x.per_expert_scale, y.per_expert_scale);
      EXPECT_EQ(x.input_scale_vector, y.input_scale_vector);
      EXPECT_EQ(x.row_class, y.row_class);
      EXPECT_EQ(x.token_ids, y.token_ids);
      EXPECT_EQ(a->spec.special.zero_experts, b->spec.special.zero_experts);
    };
    const Case given = with_explicit_tensors(c);
    const std::vector<std::int64_t> experts = {0, 2, 3, 4, 7, 8, 9, 15}, rows = {1, 4, 5};
    compare(keep_experts(c, experts, 1), keep_experts(given, experts, 1));
    compare(keep_rows(c, rows), keep_rows(given, rows));
    compare(keep_columns(c, experts), keep_columns(given, experts));
    if (spec.special.zero_experts > 0) compare(keep_zero_experts(c, {1, 4, 5}), keep_zero_experts(given, {1, 4, 5}));
    if (oracle::shared_in_gate(spec) > 0) compare(keep_shared_experts(c, {1}), keep_shared_experts(given, {1}));
  }
}

TEST(FeatureShrink, UsedTokensAreRenumbered) {
  Case c = directed_case(table_spec(), "token_edges");
  c = with_explicit_tensors(c);
  const RouterInputs before = materialize(c);
  const auto small = with_used_vocabulary(c);
  ASSERT_TRUE(small);
  const RouterInputs after = materialize(*small);
  EXPECT_LT(after.hash_table.size(), before.hash_table.size());
  for (std::int64_t row = 0; row < before.num_tokens; ++row) {
    const auto a = oracle::row_constants(c.spec, before, row), b = oracle::row_constants(small->spec, after, row);
    EXPECT_EQ(a.routable, b.routable);
    EXPECT_TRUE(std::equal(a.table_ids.begin(), a.table_ids.end(), b.table_ids.begin(), b.table_ids.end()));
  }
}

// A mistake, shrunk from the directed case that shows it.
Case shrunk(const RouterSpec& spec, const char* hazard, const char* law, const char* mistake) {
  const Case c = directed_case(spec, hazard);
  const Fails fails = [&](const Case& tried) -> std::optional<Violation> {
    FakeRouter router(contract_claims(), mistaken(tried.spec, mistake));
    return judge_case(tried, router, law).violation;
  };
  const ShrinkResult result = shrink(c, fails, {1500});
  expect_valid(result.minimal);
  return result.minimal;
}

TEST(FeatureShrink, TableFaultEndsInOneTokenOfTwoExperts) {
  const CaseDescription d = shrunk(table_spec(), "token_edges", "hash_routing", "the table's ids sorted").description;
  EXPECT_EQ(d.num_tokens, 1);
  EXPECT_EQ(d.num_experts, 2);
  EXPECT_EQ(d.vocab_size, 1);
}

TEST(FeatureShrink, ZeroExpertFaultKeepsOneZeroExpert) {
  const CaseDescription d =
      shrunk(zero_spec(), "zero_experts", "selection", "the zero experts left out of softmax and choice").description;
  EXPECT_EQ(d.num_tokens, 1);
  EXPECT_EQ(d.num_experts, 1);
  EXPECT_EQ(d.zero_experts, 1);
}

TEST(FeatureShrink, SharedExpertFaultKeepsOneSharedExpert) {
  const CaseDescription d =
      shrunk(shared_spec(), "shared_in_gate", "weights", "the shared experts left out of the sum").description;
  EXPECT_EQ(d.num_tokens, 1);
  EXPECT_EQ(d.num_experts, 1);
  EXPECT_EQ(d.shared_in_gate, 1);
}

TEST(FeatureShrink, PerGroupFaultKeepsTwoGroups) {
  const CaseDescription d = shrunk(per_group_spec(), "dispatch_boundary", "selection",
                                   "the best of all experts instead of the best of each group")
                                .description;
  EXPECT_EQ(d.num_tokens, 1);
  EXPECT_EQ(d.n_group, 2);
  EXPECT_EQ(d.top_k, 2);
  EXPECT_EQ(d.num_experts, 4);
}

TEST(FeatureShrink, ClassFaultKeepsOneRowOfTheOtherClass) {
  const Case c = shrunk(classes_spec(), "dispatch_boundary", "selection",
                        "the selection bias of the first row class for every row");
  EXPECT_EQ(c.description.num_tokens, 1);
  EXPECT_EQ(materialize(c).row_class, std::vector<std::int32_t>{1});
}

TEST(FeatureShrink, SlotScaleFaultKeepsTwoExperts) {
  const CaseDescription d =
      shrunk(prepared_spec(), "dispatch_boundary", "weights", "the learned scale of the slot instead of the expert's")
          .description;
  EXPECT_EQ(d.num_tokens, 1);
  EXPECT_LE(d.num_experts, 2);
}

}  // namespace
}  // namespace samebits::properties
