// The tensors and hazards of features that only some routers have.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <set>

#include "feature_specs.h"
#include "oracle/emulate/tc256.h"
#include "oracle/tensors/bf16.h"
#include "properties/test/routed.h"
#include "properties/test/test_specs.h"

namespace samebits::properties {
namespace {

using oracle::RouterInputs;
using oracle::RouterSpec;
using RowAnswer = oracle::RowAnswer<float>;

Case case_of(const RouterSpec& spec, std::int64_t num_tokens) {
  Case c = small_case(spec, num_tokens);
  c.description.zero_experts = spec.special.zero_experts;
  c.description.shared_in_gate = oracle::shared_in_gate(spec);
  if (spec.hash.vocab_size) c.description.vocab_size = *spec.hash.vocab_size;
  c.spec = apply_shape(spec, c.description);
  return c;
}

Case changed(Case c, void (*change)(CaseDescription&)) {
  const RouterSpec spec = c.spec;
  change(c.description);
  c.spec = apply_shape(spec, c.description);
  return c;
}

TEST(HashTable, HoldsDistinctIdsInRangeAndDoesNotDependOnItsSize) {
  const Case c = case_of(table_spec(), 40);
  const RouterInputs all = materialize(c);
  ASSERT_EQ(all.hash_table.size(), 300u * 4u);
  std::set<std::vector<std::int32_t>> distinct_rows;
  for (std::size_t first = 0; first < all.hash_table.size(); first += 4) {
    const std::vector<std::int32_t> row(all.hash_table.begin() + static_cast<std::ptrdiff_t>(first),
                                        all.hash_table.begin() + static_cast<std::ptrdiff_t>(first + 4));
    distinct_rows.insert(row);
    EXPECT_EQ(std::set(row.begin(), row.end()).size(), 4u);
    EXPECT_TRUE(std::all_of(row.begin(), row.end(), [](std::int32_t id) { return id >= 0 && id < 16; }));
  }
  EXPECT_GE(distinct_rows.size(), 290u);
  const RouterInputs fewer = materialize(changed(c, [](CaseDescription& d) { d.vocab_size = 50; }));
  EXPECT_TRUE(std::equal(fewer.hash_table.begin(), fewer.hash_table.end(), all.hash_table.begin()));
  EXPECT_LT(*std::max_element(fewer.token_ids.begin(), fewer.token_ids.end()), 50);
}

TEST(HashTable, KeepsThePlacesOfExpertsThatStay) {
  const Case c = case_of(table_spec(), 4);
  const RouterInputs all = materialize(c);
  const RouterInputs without_3 = materialize(changed(c, [](CaseDescription& d) {
    d.num_experts = 15;
    d.keep_experts = {0, 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  }));
  int same = 0;
  for (std::size_t first = 0; first < all.hash_table.size(); first += 4) {
    const auto row = all.hash_table.begin() + static_cast<std::ptrdiff_t>(first);
    if (std::find(row, row + 4, 3) != row + 4) continue;
    ++same;
    for (std::size_t i = 0; i < 4; ++i) {
      const std::int32_t id = all.hash_table[first + i];
      EXPECT_EQ(without_3.hash_table[first + i], id > 3 ? id - 1 : id);
    }
  }
  EXPECT_GT(same, 100);
}

TEST(SelectionBias, ClassesDiffer) {
  Case c = case_of(classes_spec(), 40);
  const RouterInputs inputs = materialize(c);
  ASSERT_EQ(inputs.selection_bias.size(), 32u);
  EXPECT_LT(*std::max_element(inputs.selection_bias.begin(), inputs.selection_bias.begin() + 16), 11.97f);
  EXPECT_GT(*std::min_element(inputs.selection_bias.begin() + 16, inputs.selection_bias.end()), 11.95f);
  EXPECT_EQ(std::set(inputs.row_class.begin(), inputs.row_class.end()), (std::set<std::int32_t>{0, 1}));
  // The wrong class chooses other experts in most rows.
  RouterInputs text = inputs;
  text.row_class.clear();
  const std::vector<RowAnswer> right = route(c, inputs), wrong = route(c, text);
  int other = 0, images = 0;
  for (std::size_t row = 0; row < right.size(); ++row) {
    if (inputs.row_class[row] == 0) continue;
    ++images;
    other += right[row].ids != wrong[row].ids;
  }
  EXPECT_GT(images, 10);
  EXPECT_GT(other, images * 3 / 4);
}

TEST(Plants, ReachTheTensorsOfEveryFeature) {
  Case c = case_of(prepared_spec(), 4);
  c.description.plants = {{TensorId::kInputScaleVector, 0, 3, 0x40000000u},
                          {TensorId::kPerExpertScale, 0, 15, 0x40400000u}};
  const RouterInputs prepared = materialize(c);
  EXPECT_EQ(prepared.input_scale_vector[3], 2.0f);
  EXPECT_EQ(prepared.per_expert_scale[15], 3.0f);
  c = case_of(shared_spec(), 4);
  c.description.plants = {{TensorId::kGlobalScale, 0, 0, 0x40000000u}, {TensorId::kGateWeight, 17, 0, 0x40000000u}};
  const RouterInputs shared = materialize(c);
  EXPECT_EQ(shared.global_scale, std::vector<float>{2.0f});
  EXPECT_EQ(shared.gate_weight_bf16[17 * 64], 0x4000);
  c = case_of(table_spec(), 4);
  c.description.plants = {{TensorId::kTokenIds, 2, 0, 0x80000000u}, {TensorId::kTokenIds, 3, 0, 7}};
  const RouterInputs table = materialize(c);
  EXPECT_EQ(table.token_ids[2], std::numeric_limits<std::int32_t>::min());
  EXPECT_EQ(table.token_ids[3], 7);
  c = case_of(classes_spec(), 4);
  c.description.plants = {{TensorId::kRowClass, 1, 0, 0xffffffffu}, {TensorId::kSelectionBias, 1, 2, 0}};
  const RouterInputs classes = materialize(c);
  EXPECT_EQ(classes.row_class[1], -1);
  EXPECT_EQ(classes.selection_bias[16 + 2], 0.0f);
  EXPECT_NE(classes.selection_bias[2], 0.0f);
  c.description.plants = {{TensorId::kTokenIds, 0, 0, 0}};
  EXPECT_THROW(materialize(c), std::invalid_argument);
}

TEST(SelectRows, TokensAndClassesTravelWithTheirRows) {
  for (const RouterSpec& spec : {table_spec(), classes_spec()}) {
    const RouterInputs inputs = materialize(case_of(spec, 6));
    RunRequest request;
    request.rows = {5, 0, 0, 3};
    request.replace = {RowReplacement::kKeep, RowReplacement::kNaN, RowReplacement::kKeep, RowReplacement::kHuge};
    const RouterInputs some = select_rows(inputs, request);
    for (std::size_t r = 0; r < request.rows.size(); ++r) {
      const auto row = static_cast<std::size_t>(request.rows[r]);
      if (!inputs.token_ids.empty()) {
        EXPECT_EQ(some.token_ids.at(r), inputs.token_ids[row]);
      }
      if (!inputs.row_class.empty()) {
        EXPECT_EQ(some.row_class.at(r), inputs.row_class[row]);
      }
    }
    EXPECT_EQ(some.hash_table, inputs.hash_table);
  }
}

TEST(FeatureHazard, SoftcapSaturatesAndARatioOfExponentialsOverflows) {
  const Case c = directed_case(softcap_spec(), "softcap");
  RouterSpec bare = c.spec;
  bare.logits.softcap.reset();
  const std::vector<std::int64_t> row = {0};
  std::set<int> zones;
  for (const float z : oracle::tc256_logits(bare, materialize(c), row)) {
    const float x = std::fabs(z) / 30.0f;
    zones.insert(x < 9.0f ? 0 : x < 44.4f ? 1 : x < 88.7f ? 2 : 3);
  }
  EXPECT_EQ(zones.count(2) + zones.count(3), 2u);
}

TEST(FeatureHazard, TokenIdsAtTheEdgesAndRepeated) {
  const Case c = directed_case(table_spec(), "token_edges");
  const RouterInputs inputs = materialize(c);
  const std::int64_t vocab = c.description.vocab_size;
  for (const std::int64_t edge : {std::int64_t{0}, vocab - 1, vocab, std::int64_t{-1}, std::int64_t{2147483647}}) {
    EXPECT_THAT(inputs.token_ids, testing::Contains(edge));
  }
  EXPECT_GE(std::count(inputs.token_ids.begin(), inputs.token_ids.end(), vocab / 2), 3);
  // Ids outside of the table that are inside when cut to 32 bits, from above and from below; the ends of int64.
  constexpr std::int64_t kWrap = std::int64_t{1} << 32;
  const auto in_table_from = [vocab](std::int64_t least) {
    return testing::Contains(testing::AllOf(testing::Ge(least), testing::Lt(least + vocab)));
  };
  EXPECT_THAT(inputs.token_ids, in_table_from(kWrap));
  EXPECT_THAT(inputs.token_ids, in_table_from(-kWrap));
  EXPECT_THAT(inputs.token_ids, testing::Contains(std::numeric_limits<std::int64_t>::min()));
  EXPECT_THAT(inputs.token_ids, testing::Contains(std::numeric_limits<std::int64_t>::max()));

  Case narrow = c;
  narrow.description.token_ids_int32 = true;
  for (const std::int64_t id : materialize(narrow).token_ids) EXPECT_EQ(id, static_cast<std::int32_t>(id));
  EXPECT_EQ(directed_case(table_spec(), "own_vocabulary").description.vocab_size, 300);
}

TEST(FeatureHazard, ScoresUnderflowAtTheTablesExpertsAndNotElsewhere) {
  const Case c = directed_case(table_spec(), "table_underflow");
  int zero = 0, large_elsewhere = 0;
  for (const RowAnswer& answer : route(c, materialize(c))) {
    zero += answer.sum == 0.0f;
    large_elsewhere += answer.sum == 0.0f && *std::max_element(answer.scores.begin(), answer.scores.end()) > 1.0f;
  }
  EXPECT_GE(zero, 4);
  EXPECT_GE(large_elsewhere, 1);
}

TEST(FeatureHazard, ZeroExpertsAreChosenNeverAlwaysAndSometimes) {
  const Case c = directed_case(zero_spec(), "zero_experts");
  std::set<std::int64_t> counts;
  for (const RowAnswer& answer : route(c, materialize(c))) {
    counts.insert(std::count_if(answer.ids.begin(), answer.ids.end(), [](std::int32_t id) { return id >= 16; }));
  }
  EXPECT_TRUE(counts.count(0) == 1 && counts.count(2) == 1 && counts.count(4) == 1);
}

TEST(FeatureHazard, SharedExpertsDominateAndVanish) {
  const Case c = directed_case(shared_spec(), "shared_in_gate");
  RouterInputs inputs = materialize(c);
  inputs.global_scale = {1.0f};
  const std::vector<RowAnswer> answers = route(c, inputs);
  const auto shared_part = [](const RowAnswer& answer) { return (answer.weights[4] + answer.weights[5]) / 8.0f; };
  EXPECT_LT(shared_part(answers[1]), 1e-30f);
  EXPECT_GT(shared_part(answers[2]), 0.999f);
  EXPECT_LT(shared_part(answers[3]), 1e-30f);
}

TEST(FeatureHazard, SparsemixerMeetsItsThresholdWithinOneStep) {
  const Case c = directed_case(sparsemixer_spec(), "sparsemixer_threshold");
  const float threshold = 2.0f * 0.01f;
  std::set<int> met[2];  // by pass
  for (const RowAnswer& answer : route(c, materialize(c))) {
    for (std::size_t pass = 0; pass < 2; ++pass) {
      const float t = answer.logits[static_cast<std::size_t>(answer.expert_ids[pass])];
      for (std::size_t j = 0; j < answer.logits.size(); ++j) {
        const float z = answer.logits[j];
        const std::int64_t distance = oracle::ulp_distance((t - z) / std::max(std::fabs(z), t), threshold);
        if (distance <= 1)
          met[pass].insert((t - z) / std::max(std::fabs(z), t) > threshold ? 1 : distance == 0 ? 0 : -1);
      }
    }
  }
  EXPECT_EQ(met[0].size(), 3u);
  EXPECT_EQ(met[1].size(), 3u);
}

TEST(FeatureHazard, PreparedRowsHaveEveryKindOfNorm) {
  const Case c = directed_case(prepared_spec(), "prepared_input");
  const RouterInputs inputs = materialize(c);
  const auto norm = [&](std::int64_t row) {
    double sum = 0.0;
    for (std::int64_t h = 0; h < 64; ++h) {
      const double x = oracle::bf16_to_fp32(inputs.hidden_states[static_cast<std::size_t>(row * 64 + h)]);
      sum += x * x;
    }
    return sum;
  };
  EXPECT_EQ(norm(0), 0.0);
  EXPECT_GT(norm(2), static_cast<double>(std::numeric_limits<float>::max()));
  EXPECT_LT(norm(3), static_cast<double>(std::numeric_limits<float>::denorm_min()));
  EXPECT_THAT(inputs.input_scale_vector, testing::Contains(0.0f));
  const RouterInputs bad = materialize(directed_case(prepared_spec(), "non_finite_scale_vector"));
  EXPECT_TRUE(
      std::any_of(bad.input_scale_vector.begin(), bad.input_scale_vector.end(), [](float v) { return std::isnan(v); }));
}

TEST(FeatureHazard, LearnedScalesOfEveryKindAreMet) {
  const Case c = directed_case(prepared_spec(), "learned_scales");
  const RouterInputs inputs = materialize(c);
  std::set<int> kinds;
  for (const RowAnswer& answer : route(c, inputs)) {
    for (const std::int32_t id : answer.ids) {
      const float scale = inputs.per_expert_scale[static_cast<std::size_t>(id)];
      kinds.insert(std::isnan(scale) ? 0 : std::isinf(scale) ? 1 : scale == 0.0f ? 2 : scale < 0.0f ? 3 : 4);
    }
  }
  EXPECT_EQ(kinds.size(), 5u);
}

// Golden hashes, as in materialize_test.
TEST(Features, GoldenHashesOfGeneratedCases) {
  std::vector<std::uint64_t> hashes;
  for (const RouterSpec& spec : feature_specs()) {
    std::uint64_t hash = 0;
    for (const Case& c : directed(spec)) hash = hash * 31 + hash_of(materialize(c));
    hashes.push_back(hash);
  }
  const std::vector<std::uint64_t> golden = {0xe8480c4fbe3d40ebu, 0x44930fda19276f15u, 0x1c4999ef3e83d509u,
                                             0x7af82f765c1595e4u, 0x7af82f765c1595e4u, 0x6a1c3caae3e79257u,
                                             0xd6d98b4f0b772337u, 0x70e3be077b8eb32au, 0x882790181191c234u,
                                             0x822f6e9545ff4912u, 0xd3f72852fc03251au};
  EXPECT_EQ(hashes, golden);
}

}  // namespace
}  // namespace samebits::properties
