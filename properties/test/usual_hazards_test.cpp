// The hazards of size, order and exponent are really there; and every hazard has a test.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "feature_specs.h"
#include "oracle/emulate/tc256.h"
#include "oracle/reference/answer.h"
#include "oracle/tensors/bf16.h"
#include "properties/generators/hazards.h"
#include "properties/test/test_specs.h"

namespace samebits::properties {
namespace {

using oracle::RouterInputs;
using oracle::RouterSpec;

// The random cases of a hazard among the first `count` of a spec.
std::vector<Case> drawn(const RouterSpec& spec, const std::string& hazard, std::uint64_t count) {
  std::vector<Case> cases;
  for (std::uint64_t i = 0; i < count; ++i) {
    Case c = generate_case(spec.name, "", spec, 1, i, {});
    if (c.description.hazard == hazard) cases.push_back(std::move(c));
  }
  return cases;
}

// Row `row` of the hidden states, without its zeros.
std::vector<double> terms(const RouterInputs& inputs, std::int64_t row) {
  std::vector<double> values;
  for (std::int64_t k = 0; k < inputs.hidden_size; ++k) {
    const float x = oracle::bf16_to_fp32(inputs.hidden_states[static_cast<std::size_t>(row * inputs.hidden_size + k)]);
    if (x != 0.0f) values.push_back(static_cast<double>(x));
  }
  return values;
}

TEST(UsualHazard, DispatchBoundariesAreMetFromBothSides) {
  std::set<std::int64_t> met;
  for (const Case& c : drawn(small_spec(), "dispatch_boundary", 3000)) met.insert(c.description.num_tokens);
  for (const std::int64_t boundary : {16, 32, 64, 128}) {
    for (const std::int64_t count : {boundary - 1, boundary, boundary + 1}) EXPECT_EQ(met.count(count), 1u) << count;
  }
  EXPECT_GT(directed_case(small_spec(), "dispatch_boundary").description.num_tokens, 17);
}

// fl(s + b) has lost bits of s, so that s is not b less than the key.
TEST(UsualHazard, ALargeBiasHidesBitsOfTheScores) {
  const Case c = directed_case(model("glm-5.3-flash"), "large_bias_offset");
  const RouterInputs inputs = materialize(c);
  const auto [least, most] = std::minmax_element(inputs.selection_bias.begin(), inputs.selection_bias.end());
  EXPECT_GE(*least, 7.0f);
  EXPECT_LE(*most - *least, 2.0f);
  std::int64_t lost = 0, chosen = 0;
  const std::vector<float> logits = oracle::tc256_logits(c.spec, inputs, std::vector<std::int64_t>{0, 1, 2});
  const auto width = static_cast<std::size_t>(inputs.gate_rows);
  for (std::size_t row = 0; row < 3; ++row) {
    const auto answer = oracle::route_row(c.spec, std::span(logits).subspan(row * width, width),
                                          oracle::row_constants(c.spec, inputs, static_cast<std::int64_t>(row)));
    for (const std::int32_t id : answer.ids) {
      const auto e = static_cast<std::size_t>(id);
      lost += answer.keys[e] - inputs.selection_bias[e] != answer.scores[e] ? 1 : 0;
      ++chosen;
    }
  }
  EXPECT_GT(2 * lost, chosen);
}

TEST(UsualHazard, ALargeBatchHasMoreRowsThanABlockOf1024AndTheirOrderShows) {
  const Case large = directed_case(small_spec(), "large_batch");
  EXPECT_EQ(large.description.num_tokens, 1025);
  EXPECT_EQ(large.description.hidden, HiddenFamily::kOrderSensitive);
  EXPECT_EQ(large.description.weight, WeightFamily::kOrderSensitive);
}

TEST(UsualHazard, PlainCasesHaveOrdinarySumsAndSumsThatAreExactInAnyOrder) {
  int exact = 0, ordinary = 0;
  for (const Case& c : drawn(small_spec(), "plain", 400)) {
    if (c.description.stage != Stage::kFull) continue;
    const RouterInputs inputs = materialize(c);
    const bool integers = c.description.hidden == HiddenFamily::kSmallInteger;
    (integers ? exact : ordinary) += 1;
    if (!integers || !inputs.gate_weight_fp32.empty()) continue;
    const std::vector<float> logits = oracle::tc256_logits(c.spec, inputs, std::vector<std::int64_t>{0});
    const std::vector<double> exactly = oracle::logits_fp64(c.spec, inputs, 0);
    for (std::size_t e = 0; e < logits.size(); ++e) EXPECT_EQ(static_cast<double>(logits[e]), exactly[e]);
  }
  EXPECT_GT(exact, 3);
  EXPECT_GT(ordinary, 3);
}

TEST(UsualHazard, WideExponentsSpreadTheTermsOfARow) {
  const std::vector<Case> cases = drawn(small_spec(), "wide_exponent", 400);
  ASSERT_GE(cases.size(), 3u);
  int wide_weights = 0;
  for (const Case& c : cases) {
    const std::vector<double> row = terms(materialize(c), 0);
    double least = INFINITY, most = 0.0;
    for (const double x : row) {
      least = std::min(least, std::fabs(x));
      most = std::max(most, std::fabs(x));
    }
    EXPECT_GT(most / least, 0x1p12) << "terms far below the 24 bits of a sum";
    wide_weights += c.description.weight == WeightFamily::kWideExponent ? 1 : 0;
  }
  EXPECT_GE(wide_weights, 1);
}

TEST(UsualHazard, FewTermsLeaveNothingForABoundThatGrowsWithH) {
  const std::vector<Case> cases = drawn(small_spec(), "few_terms", 400);
  ASSERT_GE(cases.size(), 5u);
  for (const Case& c : cases) {
    const RouterInputs inputs = materialize(c);
    for (std::int64_t row = 0; row < inputs.num_tokens; ++row) {
      EXPECT_GE(terms(inputs, row).size(), 1u);
      EXPECT_LE(terms(inputs, row).size(), 3u);
    }
  }
}

// Every class, both neighbours of their range and both ends of the type; and the class decides.
TEST(UsualHazard, RowClassesAreKnownUnknownAndMatter) {
  const Case c = directed_case(classes_spec(), "row_classes");
  const RouterInputs inputs = materialize(c);
  std::map<std::int32_t, int> met;
  for (const std::int32_t row_class : inputs.row_class) ++met[row_class];
  for (const std::int32_t row_class : {0, 1, 2, -1, INT32_MAX, INT32_MIN}) EXPECT_GE(met[row_class], 1) << row_class;
  const std::vector<float> logits = oracle::tc256_logits(c.spec, inputs, std::vector<std::int64_t>{0});
  std::set<std::vector<std::int32_t>> answers;
  for (const std::int32_t row_class : {0, 1, 2}) {
    RouterInputs other = inputs;
    other.row_class.assign(other.row_class.size(), row_class);
    answers.insert(oracle::route_row(c.spec, logits, oracle::row_constants(c.spec, other, 0)).ids);
  }
  EXPECT_EQ(answers.size(), 3u);
}

// Of random cases: both experts whose bias is NaN would be chosen with a bias of 0, and are not.
TEST(UsualHazard, AnExpertThatWouldLeadHasANanForItsBias) {
  for (const char* name : {"glm-5.3-flash", "ernie-4.5-300b-a47b"}) {
    const std::vector<Case> cases = drawn(model(name), "nan_bias_of_leaders", 200);
    ASSERT_GE(cases.size(), 3u) << name;
    for (const Case& c : cases) {
      if (c.description.stage != Stage::kFromLogits) continue;
      const RouterInputs inputs = materialize(c);
      RouterInputs zero = inputs;
      std::vector<std::int32_t> hidden;
      for (std::size_t e = 0; e < zero.selection_bias.size(); ++e) {
        if (!std::isnan(zero.selection_bias[e])) continue;
        hidden.push_back(static_cast<std::int32_t>(e));
        zero.selection_bias[e] = 0.0f;
      }
      EXPECT_EQ(hidden.size(), 2u);
      const auto logits = std::span(inputs.router_logits).first(static_cast<std::size_t>(inputs.gate_rows));
      const auto without = oracle::route_row(c.spec, logits, oracle::row_constants(c.spec, zero, 0)).ids;
      const auto with = oracle::route_row(c.spec, logits, oracle::row_constants(c.spec, inputs, 0)).ids;
      for (const std::int32_t e : hidden) {
        EXPECT_EQ(std::count(without.begin(), without.end(), e), 1) << name << " expert " << e;
        EXPECT_EQ(std::count(with.begin(), with.end(), e), 0) << name << " expert " << e;
      }
    }
  }
}

// A hazard whose tests name it nowhere has none.
TEST(Hazard, EveryOneHasATest) {
  std::string tests;
  for (const char* name :
       {"generate_test.cpp", "edge_hazards_test.cpp", "features_generate_test.cpp", "usual_hazards_test.cpp"}) {
    std::ifstream file(std::filesystem::path(SAMEBITS_FIXTURES_DIR).parent_path() / "properties" / "test" / name);
    std::stringstream text;
    text << file.rdbuf();
    ASSERT_FALSE(text.str().empty()) << name;
    tests += text.str();
  }
  for (const Hazard& hazard : all_hazards()) {
    EXPECT_NE(tests.find('"' + std::string(hazard.label) + '"'), std::string::npos) << hazard.label;
  }
}

}  // namespace
}  // namespace samebits::properties
