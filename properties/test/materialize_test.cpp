#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <set>

#include "oracle/tensors/bf16.h"
#include "properties/generators/random_bits.h"
#include "properties/test/test_specs.h"

namespace samebits::properties {
namespace {

using oracle::RouterInputs;

// Every family once, small enough to compare many shapes.
std::vector<Case> one_case_per_family() {
  oracle::RouterSpec spec = model("glm-5.3-flash");
  std::vector<Case> cases;
  for (int family = 0; family <= 6; ++family) {
    for (const Stage stage : {Stage::kFull, Stage::kFromLogits}) {
      CaseDescription d;
      d.data_key = 77;
      d.stage = stage;
      d.num_tokens = 6;
      d.num_experts = 12;
      d.top_k = 2;
      d.hidden_size = stage == Stage::kFull ? 600 : 0;
      d.hidden = static_cast<HiddenFamily>(family);
      d.weight = static_cast<WeightFamily>(family);
      d.logits = static_cast<LogitsFamily>(family);
      d.selection_bias = static_cast<BiasFamily>(family % 5);
      d.bias_offset = 11.54f;
      d.logits_offset = -1.0f;
      cases.push_back({"glm-5.3-flash", "", apply_shape(spec, d), d});
    }
  }
  return cases;
}

TEST(Materialize, ASmallerCaseKeepsTheValuesOfTheLarger) {
  for (const Case& whole : one_case_per_family()) {
    const RouterInputs all = materialize(whole);
    Case part = whole;
    CaseDescription& d = part.description;
    d.keep_rows = {1, 4};
    d.num_tokens = 2;
    d.keep_experts = {0, 5, 11};
    d.num_experts = 3;
    if (d.stage == Stage::kFull) {
      d.generated_hidden_size = 600;
      d.keep_columns = {3, 16, 17, 255, 599};
      d.hidden_size = 5;
    }
    part.spec = apply_shape(whole.spec, d);
    const RouterInputs some = materialize(part);
    for (std::size_t r = 0; r < 2; ++r) {
      const auto row = static_cast<std::size_t>(d.keep_rows[r]);
      for (std::size_t c = 0; c < d.keep_columns.size(); ++c) {
        EXPECT_EQ(some.hidden_states[r * 5 + c],
                  all.hidden_states[row * 600 + static_cast<std::size_t>(d.keep_columns[c])]);
      }
      for (std::size_t e = 0; e < 3 && d.stage == Stage::kFromLogits; ++e) {
        EXPECT_EQ(
            std::bit_cast<std::uint32_t>(some.router_logits[r * 3 + e]),
            std::bit_cast<std::uint32_t>(all.router_logits[row * 12 + static_cast<std::size_t>(d.keep_experts[e])]));
      }
    }
    for (std::size_t e = 0; e < 3; ++e) {
      const auto expert = static_cast<std::size_t>(d.keep_experts[e]);
      EXPECT_EQ(some.selection_bias[e], all.selection_bias[expert]);
      for (std::size_t c = 0; c < d.keep_columns.size(); ++c) {
        EXPECT_EQ(some.gate_weight_bf16[e * 5 + c],
                  all.gate_weight_bf16[expert * 600 + static_cast<std::size_t>(d.keep_columns[c])]);
      }
    }
    // A prefix needs no lists.
    Case prefix = whole;
    prefix.description.num_tokens = 3;
    const RouterInputs first = materialize(prefix);
    EXPECT_TRUE(std::equal(first.hidden_states.begin(), first.hidden_states.end(), all.hidden_states.begin()));
    EXPECT_EQ(first.gate_weight_bf16, all.gate_weight_bf16);
  }
}

TEST(Materialize, NormalValuesHaveMeanZeroAndVarianceOne) {
  double sum = 0.0, squares = 0.0;
  constexpr int kCount = 1 << 18;
  for (int i = 0; i < kCount; ++i) {
    const double value = normal(random_bits(5, Stream::kHidden, i >> 9, i & 511));
    sum += value;
    squares += value * value;
  }
  // Five standard errors: 1 / sqrt(n) of the mean, at most sqrt(2 / n) of the variance.
  EXPECT_NEAR(sum / kCount, 0.0, 5.0 / std::sqrt(kCount));
  EXPECT_NEAR(squares / kCount, 1.0, 5.0 * std::sqrt(2.0 / kCount));
}

TEST(Materialize, PlantsReachKeptElementsInOrder) {
  Case c = one_case_per_family()[1];
  CaseDescription& d = c.description;
  d.plants = {{TensorId::kRouterLogits, 1, -1, 0x7f800000u},
              {TensorId::kRouterLogits, 1, 3, 0x7fffffffu},
              {TensorId::kSelectionBias, 0, 3, 0x80000000u}};
  d.keep_experts = {2, 3};
  d.num_experts = 2;
  c.spec = apply_shape(c.spec, d);
  const RouterInputs inputs = materialize(c);
  EXPECT_TRUE(std::isinf(inputs.router_logits[2]));
  EXPECT_EQ(std::bit_cast<std::uint32_t>(inputs.router_logits[3]), 0x7fffffffu);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(inputs.selection_bias[1]), 0x80000000u);
  EXPECT_TRUE(std::isfinite(inputs.router_logits[0]));
}

TEST(Materialize, RefusesContradictions) {
  const Case good = one_case_per_family()[0];
  const auto refused = [&](auto change) {
    Case c = good;
    change(c.description);
    EXPECT_THROW(materialize(c), std::invalid_argument);
  };
  refused([](CaseDescription& d) { d.num_tokens = -1; });
  refused([](CaseDescription& d) { d.num_experts = 11; });
  refused([](CaseDescription& d) { d.hidden_size = 0; });
  refused([](CaseDescription& d) { d.keep_rows = {1}; });
  refused([](CaseDescription& d) { d.keep_rows = {0, 1, 2, 3, 4, -1}; });
  refused([](CaseDescription& d) { d.generated_hidden_size = 599; });
  refused([](CaseDescription& d) { d.plants = {{TensorId::kRouterLogits, 0, 0, 0}}; });
  refused([](CaseDescription& d) { d.plants = {{TensorId::kLinearBias, 0, 0, 0}}; });
  refused([](CaseDescription& d) { d.data = RouterInputs{}; });
  EXPECT_NO_THROW(materialize(good));
}

// Golden hashes: a change of any bit of generation breaks every stored seed and case file, so it must be deliberate.
TEST(Materialize, GoldenHashesOfFamilies) {
  const std::vector<std::uint64_t> golden = {
      0xa9957a19299f781du, 0x0c1b7c3f62aaa8b8u, 0x310a84156340ef19u, 0x8a2d192a8182658cu, 0x0af595f0a6db603cu,
      0x4f490792124b64d6u, 0xf0259ccddbcc4a42u, 0x9aed82029354188bu, 0x666e2905c506aba2u, 0x67b4658cbd6839a6u,
      0x89240512e0fc13eeu, 0x9c4c1d269313afe5u, 0x576a7c1f720ad50au, 0x285264e191ac8a04u};
  const std::vector<Case> cases = one_case_per_family();
  ASSERT_EQ(cases.size(), golden.size());
  for (std::size_t i = 0; i < cases.size(); ++i) EXPECT_EQ(hash_of(materialize(cases[i])), golden[i]) << "case " << i;
}

TEST(Materialize, GoldenHashesOfGeneratedCases) {
  struct Golden {
    std::uint64_t seed, index, hash;
  };
  const oracle::RouterSpec spec = model("glm-5.3-flash");
  for (const Golden& golden : std::vector<Golden>{{1, 0, 0x62bbdd2cf5519607u},
                                                  {1, 1, 0x4199d6f46ddb74b6u},
                                                  {1, 3, 0x30e06c6685ffde51u},
                                                  {1, 5, 0x781e1752f741c1a5u},
                                                  {1, 7, 0x9be8afe09a21a4b0u},
                                                  {1, 100, 0x03df5dcb3ef21dc2u},
                                                  {1, 101, 0xf9b30f5573a38cf3u},
                                                  {2, 102, 0xbe75f3e2c8b9a3d4u},
                                                  {7, 299, 0xfbecae97d56e8d33u}}) {
    const Case c = generate_case("glm-5.3-flash", "", spec, golden.seed, golden.index, {});
    EXPECT_EQ(hash_of(materialize(c)), golden.hash)
        << golden.seed << " " << golden.index << " " << c.description.hazard;
  }
}

}  // namespace
}  // namespace samebits::properties
