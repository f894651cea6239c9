// The hazards of places and counts are really there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "oracle/emulate/tc256.h"
#include "oracle/reference/answer.h"
#include "properties/generators/hazards.h"
#include "properties/test/routed.h"
#include "properties/test/test_specs.h"

namespace samebits::properties {
namespace {

using oracle::RouterInputs;
using oracle::RouterSpec;
using RowAnswer = oracle::RowAnswer<float>;

// A case of the hazard from given logits, with one of its choices.
Case edge_case(const RouterSpec& spec, const std::string& label, std::int64_t num_tokens, std::uint64_t choices) {
  for (const Hazard& hazard : edge_hazards()) {
    if (hazard.label != label) continue;
    Case c;
    c.spec_name = spec.name;
    c.description = describe(hazard, spec, {}, {num_tokens, choices});
    c.description.data_key = 7;
    c.spec = apply_shape(spec, c.description);
    return c;
  }
  throw std::invalid_argument("no hazard " + label);
}

std::int64_t gap(const RowAnswer& answer) {
  return oracle::ulp_distance(answer.keys[static_cast<std::size_t>(answer.last_chosen)],
                              answer.keys[static_cast<std::size_t>(answer.first_rejected)]);
}

TEST(EdgeHazard, WinnersAndTiesLieAtTheEdges) {
  std::set<std::int32_t> winners, tied;
  for (const char* name : {"glm-5.3-flash", "kimi-k3", "qwen3-30b-a3b"}) {
    const RouterSpec spec = model(name);
    const auto last = static_cast<std::int32_t>(oracle::num_experts(spec) - 1);
    for (std::uint64_t choices = 0; choices < 16; ++choices) {
      const std::vector<RowAnswer> answers = route(edge_case(spec, "edge_winners", 16, choices << 16));
      for (std::size_t row = 0; row < answers.size(); ++row) {
        winners.insert(answers[row].ids.begin(), answers[row].ids.end());
        if (row % 2 == 0 || !answers[row].group_kept.empty()) continue;
        EXPECT_EQ(gap(answers[row]), 0) << name << " row " << row;
        // In the last slot alone.
        EXPECT_GT(answers[row].keys[static_cast<std::size_t>(answers[row].ids[answers[row].ids.size() - 2])],
                  answers[row].keys[static_cast<std::size_t>(answers[row].last_chosen)]);
        tied.insert({answers[row].last_chosen, answers[row].first_rejected});
      }
    }
    EXPECT_TRUE(winners.count(last)) << name;
    EXPECT_TRUE(tied.count(last)) << name;
  }
  for (const std::int32_t edge : {0, 31, 32, 63, 64, 127, 128, 255, 256, 257, 511, 512, 513}) {
    EXPECT_TRUE(winners.count(edge)) << edge;
    EXPECT_TRUE(tied.count(edge)) << edge;
  }
}

TEST(EdgeHazard, BiasGapsAreZeroOneAndTwoStepsAtEachOffset) {
  const RouterSpec spec = model("glm-5.3-flash");
  std::map<float, std::set<std::int64_t>> gaps;
  for (std::uint64_t offset = 0; offset < 10; ++offset) {
    for (std::uint64_t kind = 0; kind < 3; ++kind) {
      const Case c = edge_case(spec, "bias_gaps", 33, offset << 16 | kind << 24);
      std::map<std::int64_t, int> rows;
      for (const RowAnswer& answer : route(c)) ++rows[gap(answer)];
      for (const auto& [steps, count] : rows) {
        if (count >= 3) gaps[c.description.bias_offset].insert(steps);
      }
    }
  }
  EXPECT_EQ(gaps.size(), 10u);
  for (const auto& [offset, met] : gaps) {
    for (const std::int64_t steps : {0, 1, 2}) EXPECT_TRUE(met.count(steps)) << offset << ": " << steps;
  }
}

TEST(EdgeHazard, ABiasSelectsTheSmallestScores) {
  for (const RowAnswer& answer : route(edge_case(model("glm-5.3-flash"), "bias_inverts", 9, 0))) {
    std::vector<float> scores = answer.scores;
    std::sort(scores.begin(), scores.end());
    for (const std::int32_t id : answer.ids) {
      EXPECT_LE(answer.scores[static_cast<std::size_t>(id)], scores[answer.ids.size()]);
    }
    // Rank by key and by score are opposite.
    EXPECT_LT(answer.scores[static_cast<std::size_t>(answer.ids.front())],
              answer.scores[static_cast<std::size_t>(answer.ids.back())]);
  }
}

TEST(EdgeHazard, NanAtHeadsInGroupsAndInAllButOne) {
  for (const char* name : {"glm-5.3-flash", "deepseek-v3"}) {
    const Case c = edge_case(model(name), "nan_places", 9, 0);
    const RouterInputs inputs = materialize(c);
    const std::int64_t E = inputs.gate_rows;
    const auto nan = [&](std::int64_t row, std::int64_t e) {
      return std::isnan(inputs.router_logits[static_cast<std::size_t>(row * E + e)]);
    };
    std::vector<std::int64_t> counts;
    for (std::int64_t row = 0; row < 9; ++row) {
      counts.push_back(0);
      for (std::int64_t e = 0; e < E; ++e) counts.back() += nan(row, e);
    }
    const std::int64_t group = c.description.n_group > 1 ? E / c.description.n_group : (E + 3) / 4;
    EXPECT_EQ(counts, (std::vector<std::int64_t>{(E + 31) / 32, E / 32, group, group, E - 1, 32,
                                                 (E + group - 1) / group, 0, 0}))
        << name;
    EXPECT_TRUE(nan(0, 0) && nan(0, 32) && nan(1, 31) && nan(1, E - 1) && nan(2, 0) && nan(3, E - 1));
    EXPECT_FALSE(nan(4, E - 1));
  }
}

TEST(EdgeHazard, RowCountsEqualOtherSizes) {
  const RouterSpec spec = model("glm-5.3-flash");
  std::set<std::int64_t> tokens;
  for (std::uint64_t i = 0; i < 5; ++i) {
    tokens.insert(edge_case(spec, "rows_as_sizes", 3, i << 16).description.num_tokens);
  }
  EXPECT_EQ(tokens, (std::set<std::int64_t>{8, 9, 287, 288, 289}));
  for (const Hazard& hazard : edge_hazards()) {
    if (hazard.label != std::string("rows_as_sizes")) continue;
    EXPECT_EQ(describe(hazard, spec, {true, true, 100}, {3, 0}).num_tokens, 100) << "the router's limit";
  }
}

TEST(EdgeHazard, CountsAreSkewed) {
  const RouterSpec spec = model("glm-5.3-flash");
  std::vector<std::set<std::int64_t>> counts_met;
  for (std::uint64_t kind = 0; kind < 4; ++kind) {
    std::map<std::int32_t, std::int64_t> counts;
    for (const RowAnswer& answer : route(edge_case(spec, "skewed_counts", 33, kind << 16))) {
      for (const std::int32_t id : answer.ids) ++counts[id];
    }
    std::set<std::int64_t> met;
    for (const auto& [id, count] : counts) met.insert(count);
    counts_met.push_back(met);
    EXPECT_LE(counts.size(), kind == 3 ? 288u : 24u) << "most experts are empty";
  }
  EXPECT_EQ(counts_met[0], (std::set<std::int64_t>{1, 16}));
  EXPECT_EQ(counts_met[1], (std::set<std::int64_t>{33}));
  EXPECT_EQ(counts_met[2], (std::set<std::int64_t>{3, 15}));
  EXPECT_EQ(counts_met[3], (std::set<std::int64_t>{1}));
}

// The logits of a row of a directed case, which hang on constants that faulty routers flush, clamp or replace.
std::vector<float> logits_of(const Case& c, const RouterInputs& inputs, std::int64_t row) {
  return oracle::tc256_logits(c.spec, inputs, std::vector<std::int64_t>{row});
}
template <class T>
std::int64_t subnormals(const std::vector<T>& values) {
  return std::count_if(values.begin(), values.end(), [](float x) { return std::fpclassify(x) == FP_SUBNORMAL; });
}

TEST(ConstantHazard, LogitsHangOnSubnormalWeights) {
  for (const char* hazard : {"subnormal_bf16_constants", "extreme_fp32_constants"}) {
    const Case c = directed_case(model("qwen3-30b-a3b"), hazard);
    const RouterInputs inputs = materialize(c);
    EXPECT_EQ(inputs.gate_weight_bf16.empty(), hazard == std::string("extreme_fp32_constants"));
    const std::vector<float> logits = logits_of(c, inputs, 0);
    EXPECT_GE(std::count_if(logits.begin(), logits.end(), [](float x) { return x > 0x1p-8f && x < 2.0f; }), 100)
        << hazard;
  }
}

TEST(ConstantHazard, InfinitiesOfFp32WeightsMeetAHalfAndZeros) {
  const Case c = directed_case(model("qwen3-30b-a3b"), "extreme_fp32_constants");
  const RouterInputs inputs = materialize(c);
  EXPECT_EQ(std::count_if(inputs.gate_weight_fp32.begin(), inputs.gate_weight_fp32.end(),
                          [](float x) { return std::isinf(x); }),
            2);
  EXPECT_TRUE(std::isnan(logits_of(c, inputs, 1).front()));
  EXPECT_EQ(logits_of(c, inputs, 2).front(), std::numeric_limits<float>::infinity());
}

TEST(ConstantHazard, BiasesAndScalesAreSubnormal) {
  const Case linear = directed_case(model("gpt-oss-20b"), "subnormal_bf16_constants");
  const RouterInputs inputs = materialize(linear);
  EXPECT_EQ(subnormals(inputs.linear_bias), 32);
  EXPECT_EQ(subnormals(logits_of(linear, inputs, 1)), 32);
  EXPECT_EQ(
      subnormals(materialize(directed_case(model("gemma-4-26b-a4b"), "subnormal_bf16_constants")).per_expert_scale),
      64);
}

TEST(ConstantHazard, ASubnormalBiasRanksAndANanHidesTheBest) {
  const Case c = directed_case(model("glm-5.3-flash"), "bias_of_zero_scores");
  ASSERT_EQ(c.description.stage, Stage::kFromLogits);
  for (const RowAnswer& answer : route(c)) {
    EXPECT_EQ(std::count(answer.ids.begin(), answer.ids.end(), 144), 0) << "the only score that is not 0";
    for (const std::int32_t id : answer.ids) {
      EXPECT_EQ(std::fpclassify(answer.keys[static_cast<std::size_t>(id)]), FP_SUBNORMAL) << id;
    }
    EXPECT_NE(answer.ids.front(), 0) << "as if all keys were 0";
  }
}

TEST(OddShapes, EdgesOfEveryDimensionAreDrawnAndValid) {
  const GenerateOptions options{true, true, 0, true};
  std::set<std::int64_t> experts, top_k, hidden;
  std::uint64_t seed = 0;
  for (const RouterSpec& spec : all_models()) {
    ++seed;
    for (std::uint64_t index = 0; index < 60; ++index) {
      const Case c = generate_case(spec.name, "", spec, seed, index, options);
      EXPECT_TRUE(oracle::find_problems(c.spec).empty()) << spec.name << " " << index;
      experts.insert(c.description.num_experts);
      top_k.insert(c.description.top_k);
      hidden.insert(c.description.hidden_size);
      if (index >= 2) continue;
      EXPECT_EQ(materialize(c).num_tokens, c.description.num_tokens) << spec.name << " " << index;
    }
  }
  for (const std::int64_t edge : {1, 2, 31, 32, 33, 127, 129, 255, 256, 257, 511, 513, 1025}) {
    EXPECT_TRUE(experts.count(edge)) << edge;
  }
  for (const std::int64_t edge : {1, 2, 3, 5, 6, 7, 9, 10, 17}) EXPECT_TRUE(top_k.count(edge)) << edge;
  for (const std::int64_t edge : {1, 15, 16, 17, 255, 257}) EXPECT_TRUE(hidden.count(edge)) << edge;
}

}  // namespace
}  // namespace samebits::properties
