#include "properties/generate.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>
#include <set>

#include "oracle/reference/answer.h"
#include "oracle/tensors/bf16.h"
#include "properties/test/routed.h"
#include "properties/test/test_specs.h"

namespace samebits::properties {
namespace {

using oracle::RouterInputs;
using oracle::RouterSpec;
using RowAnswer = oracle::RowAnswer<float>;

// Distance of the keys on both sides of the cut in ulps; -1 when nothing was rejected or one is not finite.
std::int64_t gap_at_cut(const RowAnswer& answer) {
  if (answer.last_chosen < 0 || answer.first_rejected < 0) return -1;
  const float above = answer.keys[static_cast<std::size_t>(answer.last_chosen)];
  const float below = answer.keys[static_cast<std::size_t>(answer.first_rejected)];
  return std::isfinite(above) && std::isfinite(below) ? oracle::ulp_distance(above, below) : -1;
}

template <class T, class Predicate>
std::int64_t count_if(const std::vector<T>& values, Predicate predicate) {
  return std::count_if(values.begin(), values.end(), predicate);
}

std::int64_t rows_with_gap(const std::string& spec, const std::string& hazard, std::int64_t gap) {
  const Case c = directed_case(model(spec), hazard);
  return count_if(route(c, materialize(c)), [&](const RowAnswer& answer) { return gap_at_cut(answer) == gap; });
}

constexpr const char* kSigmoid = "glm-5.3-flash";
constexpr const char* kSoftmax = "qwen3-30b-a3b";
constexpr const char* kGroups = "deepseek-v3";

TEST(Generate, DependsOnSeedAndIndexAlone) {
  const RouterSpec spec = model(kSigmoid);
  for (std::uint64_t index = 0; index < 60; ++index) {
    const Case a = generate_case("s", "", spec, 3, index, {});
    const Case b = generate_case("s", "", spec, 3, index, {});
    EXPECT_EQ(a.description.hazard, b.description.hazard);
    EXPECT_EQ(a.description.num_tokens, b.description.num_tokens);
    EXPECT_EQ(a.description.data_key, b.description.data_key);
    EXPECT_NE(a.description.data_key, generate_case("s", "", spec, 4, index, {}).description.data_key);
  }
}

TEST(Generate, DirectedCasesFitIntoTwenty) {
  for (const RouterSpec& spec : all_models()) {
    for (const bool full : {true, false}) {
      for (const bool logits : {true, false}) {
        if (!full && !logits) continue;
        const GenerateOptions options{full, logits, 0};
        EXPECT_GE(directed_cases(spec, options), 10) << spec.name;
        EXPECT_LE(directed_cases(spec, options), 20) << spec.name;
      }
    }
  }
}

TEST(Generate, EveryCaseIsValidAndOfTheSpecsSize) {
  for (const RouterSpec& spec : all_models()) {
    for (std::uint64_t index = 0; index < 100; ++index) {
      const Case c = generate_case(spec.name, "", spec, 1, index, {});
      EXPECT_TRUE(oracle::find_problems(c.spec).empty()) << spec.name << " " << index;
      EXPECT_EQ(c.description.num_experts, oracle::num_experts(spec));
      EXPECT_EQ(c.description.top_k, oracle::top_k(spec));
      const bool full = c.description.stage == Stage::kFull;
      EXPECT_EQ(c.description.hidden_size, full ? oracle::hidden_size(spec) : 0);
    }
  }
}

TEST(Generate, OptionsAreHonoured) {
  const RouterSpec spec = model(kGroups);
  for (std::uint64_t index = 0; index < 200; ++index) {
    EXPECT_EQ(generate_case("s", "", spec, 1, index, {true, false, 0}).description.stage, Stage::kFull);
    EXPECT_EQ(generate_case("s", "", spec, 1, index, {false, true, 0}).description.stage, Stage::kFromLogits);
    EXPECT_LE(generate_case("s", "", spec, 1, index, {true, true, 16}).description.num_tokens, 16);
  }
  EXPECT_THROW(generate_case("s", "", spec, 1, 0, {false, false, 0}), std::invalid_argument);
}

// The cost of a run: a full-size row costs a third of a millisecond in the oracle, and a case repeats its rows.
TEST(Generate, RowCountsAreBoundedAndCoverTheEdges) {
  const RouterSpec spec = model(kSigmoid);
  std::map<std::int64_t, int> tokens;
  std::map<std::string, int> hazards;
  double full = 0, full_rows = 0, large = 0, fp32_weight = 0;
  for (std::uint64_t index = 0; index < 300; ++index) {
    const CaseDescription d = generate_case("s", "", spec, 1, index, {}).description;
    ++tokens[d.num_tokens];
    ++hazards[d.hazard];
    if (d.stage != Stage::kFull) continue;
    ++full;
    full_rows += static_cast<double>(d.num_tokens);
    large += d.num_tokens > 500;
    fp32_weight += d.gate_weight_dtype == oracle::FloatType::kFp32;
  }
  EXPECT_GT(full, 150);
  EXPECT_LT(full, 210);
  EXPECT_LT(full_rows / full, 45.0);
  EXPECT_GE(large, 1);
  EXPECT_LE(large, 5);
  EXPECT_GE(fp32_weight, 3);
  EXPECT_GE(tokens[1025], 1);
  for (const std::int64_t edge : {1, 2, 15, 16, 17, 18, 31, 32, 33, 63, 64, 65, 127, 128, 129}) {
    EXPECT_GE(tokens[edge], 1) << "T = " << edge;
  }
  for (const auto& [hazard, count] : hazards) EXPECT_GE(count, 1) << hazard;
  EXPECT_GE(hazards.size(), 20u);
}

// Two orders of the same fp32 sum choose other experts in every row.
TEST(Hazard, OrderSensitiveShowsTheOrderInEveryRow) {
  for (const char* name : {kSigmoid, "gpt-oss-120b", "mixtral-8x7b"}) {
    const Case c = directed_case(model(name), "order_sensitive");
    ASSERT_GE(c.description.num_tokens, 17);
    const RouterInputs inputs = materialize(c);
    const auto H = static_cast<std::size_t>(inputs.hidden_size), E = static_cast<std::size_t>(inputs.gate_rows);
    for (std::size_t row = 0; row < 3; ++row) {
      const auto sum = [&](std::size_t expert, std::size_t begin, std::size_t end) {
        float total = 0.0f;
        for (std::size_t i = begin; i < end; ++i) {
          total += oracle::bf16_to_fp32(inputs.hidden_states[row * H + i]) *
                   oracle::bf16_to_fp32(inputs.gate_weight_bf16[expert * H + i]);
        }
        return total;
      };
      std::vector<std::size_t> by_one_chain(E), by_halves(E);
      std::vector<float> one_chain(E), halves(E);
      for (std::size_t expert = 0; expert < E; ++expert) {
        by_one_chain[expert] = by_halves[expert] = expert;
        one_chain[expert] = sum(expert, 0, H);
        halves[expert] = sum(expert, 0, H / 2) + sum(expert, H / 2, H);
      }
      const auto top = [&](std::vector<std::size_t>& ids, const std::vector<float>& logits) {
        std::stable_sort(ids.begin(), ids.end(), [&](auto a, auto b) { return logits[a] > logits[b]; });
        std::vector<float> best;
        for (std::size_t i = 0; i < static_cast<std::size_t>(c.description.top_k); ++i) best.push_back(logits[ids[i]]);
        return best;
      };
      EXPECT_NE(top(by_one_chain, one_chain), top(by_halves, halves)) << name << " row " << row;
    }
  }
}

TEST(Hazard, SingleRowHasGateWeightsOf24Bits) {
  const RouterInputs inputs = materialize(directed_case(model(kSigmoid), "single_row"));
  EXPECT_EQ(inputs.num_tokens, 1);
  EXPECT_GT(count_if(inputs.gate_weight_fp32, [](float w) { return (std::bit_cast<std::uint32_t>(w) & 0xff) != 0; }),
            1000);
}

TEST(Hazard, ExactTiesAndTiesAcrossTheCut) {
  for (const char* name : {kSigmoid, kSoftmax, kGroups, "gpt-oss-120b", "deepseek-v4-flash"}) {
    EXPECT_GE(rows_with_gap(name, "exact_ties", 0), 14) << name;
    EXPECT_GE(rows_with_gap(name, "ties_across_cut", 0), 20) << name;
  }
}

// In doubles the expert with the larger score would win, in fp32 the lower id does.
TEST(Hazard, KeysTieAcrossTheCutThoughScoresDiffer) {
  const Case c = directed_case(model(kSigmoid), "ties_across_cut");
  const std::int64_t absorbed = count_if(route(c, materialize(c)), [](const RowAnswer& answer) {
    const auto above = static_cast<std::size_t>(answer.last_chosen),
               below = static_cast<std::size_t>(answer.first_rejected);
    return answer.keys[above] == answer.keys[below] && answer.scores[above] < answer.scores[below];
  });
  EXPECT_GE(absorbed, 5);
}

TEST(Hazard, UlpGap) {
  // A score in the middle between two keys may round either way, so not every row.
  for (const char* name : {kSigmoid, "deepseek-v4-flash"}) EXPECT_GE(rows_with_gap(name, "ulp_gap", 1), 13) << name;
  // Without a bias the logits are steps of one ulp apart, of bf16 where the spec rounds them.
  for (const char* name : {kSoftmax, "gpt-oss-120b", "deepseek-v2"}) {
    const Case c = directed_case(model(name), "ulp_gap");
    const std::int64_t step = c.spec.gate.logits_dtype == oracle::FloatType::kBf16 ? 0x10000 : 1;
    const std::vector<RowAnswer> answers = route(c, materialize(c));
    const std::int64_t one_step = count_if(answers, [&](const RowAnswer& answer) {
      return oracle::ulp_distance(answer.logits[static_cast<std::size_t>(answer.last_chosen)],
                                  answer.logits[static_cast<std::size_t>(answer.first_rejected)]) == step;
    });
    EXPECT_GE(one_step, 4) << name;
  }
}

TEST(Hazard, Bf16CollapsesTheBiasAndChangesTheSet) {
  const Case c = directed_case(model(kSigmoid), "bf16_collapse");
  RouterInputs inputs = materialize(c);
  std::set<float> distinct, rounded;
  for (const float value : inputs.selection_bias) {
    distinct.insert(value);
    rounded.insert(oracle::round_to_bf16(value));
  }
  EXPECT_GE(distinct.size(), 250u);
  EXPECT_LE(rounded.size(), 10u);
  EXPECT_GE(*distinct.begin(), 11.54f);
  EXPECT_LE(*distinct.rbegin(), 11.96f);
  const std::vector<RowAnswer> exact = route(c, inputs);
  for (float& value : inputs.selection_bias) value = oracle::round_to_bf16(value);
  const std::vector<RowAnswer> coarse = route(c, inputs);
  for (std::size_t row = 0; row < exact.size(); ++row) EXPECT_NE(exact[row].ids, coarse[row].ids) << "row " << row;
}

TEST(Hazard, NegativeKeys) {
  const Case c = directed_case(model(kGroups), "negative_keys");
  for (const RowAnswer& answer : route(c, materialize(c))) {
    EXPECT_EQ(count_if(answer.keys, [](float key) { return key >= 0.0f; }), 0);
  }
}

TEST(Hazard, BestExpertInALosingGroupAndNegativeKeysInAChosenOne) {
  const Case c = directed_case(model(kGroups), "group_hazards");
  int lost = 0, negative = 0;
  for (const RowAnswer& answer : route(c, materialize(c))) {
    const std::size_t size = answer.keys.size() / answer.group_kept.size();
    const auto best =
        static_cast<std::size_t>(std::max_element(answer.keys.begin(), answer.keys.end()) - answer.keys.begin());
    lost += answer.group_kept[best / size] == 0;
    negative += answer.keys[static_cast<std::size_t>(answer.last_chosen)] < 0.0f;
  }
  EXPECT_GE(lost, 3);
  EXPECT_GE(negative, 20);
}

TEST(Hazard, SaturatedAndUnderflowedScores) {
  const Case saturated = directed_case(model(kSigmoid), "saturated");
  for (const RowAnswer& answer : route(saturated, materialize(saturated))) {
    EXPECT_GE(count_if(answer.scores, [](float score) { return score == 1.0f; }), 1);
    EXPECT_GE(count_if(answer.scores, [](float score) { return score == 0.0f; }), 1);
    EXPECT_GE(count_if(answer.scores, [](float score) { return std::fpclassify(score) == FP_SUBNORMAL; }), 1);
  }
}

bool is_subnormal(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL;
}

// The answers of the two rows of a zone: all experts in it, and one far above it.
std::vector<RowAnswer> in_zone(const char* spec, std::size_t zone) {
  const Case c = directed_case(model(spec), "underflow_zero_sum");
  const std::vector<RowAnswer> answers = route(c, materialize(c));
  return {answers[zone], answers[zone + static_cast<std::size_t>(kNumScoreZones)]};
}

TEST(Hazard, ScoresOfZeroAndSubnormalOnesOnBothSidesOfTheCut) {
  const auto zone_of = [](const std::string& name) { return name == "deepseek-v4-flash" ? 2u : 1u; };
  for (const char* name : {kSigmoid, "minimax-m2", "deepseek-v4-flash"}) {
    const std::vector<RowAnswer> zero = in_zone(name, 0);
    EXPECT_EQ(zero[0].sum, 0.0f) << name;
    EXPECT_EQ(count_if(zero[1].scores, [](float score) { return score != 0.0f; }), 1) << name;
    for (const RowAnswer& answer : in_zone(name, zone_of(name))) {
      const float below = answer.scores[static_cast<std::size_t>(answer.first_rejected)];
      EXPECT_TRUE(is_subnormal(answer.scores[static_cast<std::size_t>(answer.last_chosen)])) << name;
      EXPECT_TRUE(is_subnormal(below)) << name;
    }
    EXPECT_GE(count_if(in_zone(name, zone_of(name))[1].weights, is_subnormal), 3) << name;
  }
}

TEST(Hazard, SumsNearTheGuards) {
  const Case c = directed_case(model(kSigmoid), "underflow_zero_sum");
  const std::vector<RowAnswer> answers = route(c, materialize(c));
  const auto uniform = static_cast<std::size_t>(2 * kNumScoreZones);
  ASSERT_EQ(answers.size(), uniform + 4);
  EXPECT_LT(answers[uniform].sum, 1e-29f);
  EXPECT_GT(answers[uniform].sum, 0.0f);
  EXPECT_GT(answers[uniform + 3].sum, 1e-9f);

  for (const auto& [name, zone] : {std::pair(kSigmoid, 3u), {"deepseek-v4-flash", 4u}}) {
    const float sum = in_zone(name, zone)[0].sum;
    EXPECT_GT(sum, 1e-20f * 0x1p-24f) << name;
    EXPECT_LT(sum, 1e-20f * 0x1p24f) << name;
  }
}

TEST(Hazard, SoftplusWhereItsFormulasLoseBits) {
  const RowAnswer absorbed = in_zone("deepseek-v4-flash", 5)[0];
  EXPECT_EQ(count_if(absorbed.logits, [](float x) { return x < -100.0f || x > -17.0f; }), 0);
  const RowAnswer lost = in_zone("deepseek-v4-flash", 6)[0], positive = in_zone("deepseek-v4-flash", 7)[0];
  EXPECT_GE(count_if(lost.logits, [](float x) { return 1.0 + std::exp(x) != 1.0f + std::exp(x); }), 100);
  EXPECT_EQ(count_if(positive.logits, [](float x) { return x < 10.0f || x > 11.5f; }), 0);
}

TEST(Hazard, NonFiniteLogits) {
  const Case c = directed_case(model(kSigmoid), "non_finite_logits");
  const RouterInputs inputs = materialize(c);
  const auto E = static_cast<std::size_t>(inputs.gate_rows);
  std::set<std::int64_t> finite_counts;
  for (std::size_t row = 0; row < static_cast<std::size_t>(inputs.num_tokens); ++row) {
    const auto begin = inputs.router_logits.begin() + static_cast<std::ptrdiff_t>(row * E);
    finite_counts.insert(
        std::count_if(begin, begin + static_cast<std::ptrdiff_t>(E), [](float x) { return std::isfinite(x); }));
  }
  for (const std::int64_t finite : {0, 7, 286, 287, 288}) EXPECT_TRUE(finite_counts.count(finite)) << finite;
}

TEST(Hazard, NonFiniteHiddenWeightAndBias) {
  const auto non_finite = [](float x) { return !std::isfinite(x); };
  const Case hidden = directed_case(model(kSigmoid), "non_finite_hidden");
  const RouterInputs h = materialize(hidden);
  EXPECT_GE(count_if(h.hidden_states, [](std::uint16_t x) { return (x & 0x7fff) > 0x7f80; }), 4096 + 2);  // NaN
  EXPECT_EQ(count_if(h.hidden_states, [](std::uint16_t x) { return (x & 0x7fff) == 0x7f80; }), 3);        // Inf
  const RouterInputs w = materialize(directed_case(model(kSigmoid), "non_finite_weight"));
  EXPECT_EQ(count_if(w.gate_weight_bf16, [](std::uint16_t x) { return (x & 0x7f80) == 0x7f80; }), 3);
  EXPECT_EQ(count_if(materialize(directed_case(model(kSigmoid), "non_finite_bias")).selection_bias, non_finite), 4);
  EXPECT_EQ(count_if(materialize(directed_case(model("gpt-oss-120b"), "non_finite_bias")).linear_bias, non_finite), 4);
}

TEST(Hazard, SignedZeroAndSubnormal) {
  const RouterInputs zero = materialize(directed_case(model(kSigmoid), "signed_zero"));
  const std::int64_t negative = count_if(zero.router_logits, [](float x) { return std::signbit(x); });
  EXPECT_GE(negative, 400);
  EXPECT_LE(negative, 4 * 288 - 400);
  EXPECT_EQ(count_if(zero.router_logits, [](float x) { return x != 0.0f; }), 0);

  const Case c = directed_case(model(kSigmoid), "subnormal");
  const RouterInputs inputs = materialize(c);
  EXPECT_EQ(count_if(inputs.hidden_states, [](std::uint16_t x) { return (x & 0x7f80) != 0 || (x & 0x7f) == 0; }), 0);
  const RowAnswer answer = route(c, inputs).front();
  EXPECT_GE(count_if(answer.logits, [](float x) { return std::fpclassify(x) == FP_SUBNORMAL; }), 10);
}

TEST(Hazard, PaddingRowsAreLoud) {
  const Case c = directed_case(model(kSigmoid), "padding");
  const RouterInputs inputs = materialize(c);
  ASSERT_EQ(inputs.valid_rows(), 6);
  EXPECT_GT(inputs.num_tokens, 6);
  EXPECT_TRUE(std::isnan(oracle::bf16_to_fp32(inputs.hidden_states[static_cast<std::size_t>(6 * inputs.hidden_size)])));
  std::set<std::int64_t> relations;  // of num_valid_rows to T, over many cases
  for (std::uint64_t index = 0; index < 1500; ++index) {
    const CaseDescription d = generate_case("s", "", model(kSigmoid), 1, index, {}).description;
    if (!d.num_valid_rows) continue;
    const std::int64_t valid = *d.num_valid_rows, T = d.num_tokens;
    relations.insert(valid < 0 ? -1 : valid == 0 ? 0 : valid > T ? 4 : valid == T ? 3 : valid == T - 1 ? 2 : 1);
  }
  EXPECT_EQ(relations.size(), 6u);
}

TEST(Hazard, AsManyPaddedRowsAsExperts) {
  RouterSpec spec = model(kSigmoid);
  spec.shape.num_experts = 12;
  const Case c = directed_case(spec, "padding");
  EXPECT_EQ(c.description.num_tokens, 12);
  EXPECT_EQ(materialize(c).valid_rows(), 4);
}

// Where only hidden states are possible, a gate weight yields the wanted logits bit for bit.
TEST(Hazard, LogitsThroughTheGateWeight) {
  const RouterSpec spec = model(kSigmoid);
  for (const char* hazard : {"ties_across_cut", "ulp_gap", "saturated"}) {
    const Case given = directed_case(spec, hazard);
    const Case full = directed_case(spec, hazard, 1, {true, false, 0});
    ASSERT_EQ(full.description.stage, Stage::kFull);
    Case same_key = full;
    same_key.description.data_key = given.description.data_key;
    const std::vector<RowAnswer> from_logits = route(given, materialize(given));
    const std::vector<RowAnswer> from_hidden = route(same_key, materialize(same_key));
    ASSERT_EQ(from_logits.size(), from_hidden.size());
    for (std::size_t row = 0; row < from_logits.size(); ++row) {
      EXPECT_EQ(from_logits[row].logits, from_hidden[row].logits) << hazard << " row " << row;
    }
  }
}

}  // namespace
}  // namespace samebits::properties
