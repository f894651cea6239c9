#include "properties/shrink.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "oracle/emulate/tc256.h"
#include "oracle/reference/answer.h"
#include "oracle/tensors/bf16.h"
#include "properties/shrink_edit.h"
#include "properties/test/test_specs.h"

namespace samebits::properties {
namespace {

using oracle::RouterInputs;

Violation violation() {
  return {.law = "synthetic", .summary = {}, .observed = {}, .expected = {}, .notes = {}};
}

// A predicate on the materialized tensors, in the form that shrink() takes.
template <class Predicate>
Fails fails_when(Predicate predicate) {
  return [=](const Case& c) -> std::optional<Violation> {
    EXPECT_TRUE(oracle::find_problems(c.spec).empty()) << "an invalid case was proposed";
    if (!predicate(c, materialize(c))) return std::nullopt;
    return violation();
  };
}

std::int64_t count_nonzero(const RouterInputs& inputs) {
  const auto nonzero = [](const auto& values) {
    return std::count_if(values.begin(), values.end(), [](auto value) { return value != 0; });
  };
  return nonzero(inputs.hidden_states) + nonzero(inputs.gate_weight_bf16) + nonzero(inputs.gate_weight_fp32) +
         nonzero(inputs.linear_bias) + nonzero(inputs.selection_bias) + nonzero(inputs.router_logits);
}

std::vector<float> finished_logits(const Case& c, const RouterInputs& inputs) {
  if (inputs.from_logits()) return inputs.router_logits;
  std::vector<std::int64_t> rows(static_cast<std::size_t>(inputs.num_tokens));
  std::iota(rows.begin(), rows.end(), std::int64_t{0});
  return oracle::tc256_logits(c.spec, inputs, rows);
}

std::vector<oracle::RowAnswer<float>> route(const Case& c, const RouterInputs& inputs, const std::vector<float>& bias) {
  const std::vector<float> logits = finished_logits(c, inputs);
  const auto E = static_cast<std::size_t>(inputs.gate_rows);
  std::vector<oracle::RowAnswer<float>> answers;
  for (std::size_t row = 0; row < static_cast<std::size_t>(inputs.valid_rows()); ++row) {
    answers.push_back(oracle::route_row(c.spec, std::span(logits).subspan(row * E, E), {.selection_bias = bias}));
  }
  return answers;
}

TEST(Shrink, ReachesTheSmallestShape) {
  const Case c = directed_case(model("glm-5.3-flash"), "order_sensitive");
  const auto result =
      shrink(c, fails_when([](const Case& tried, const RouterInputs& inputs) {
               return inputs.num_tokens >= 17 && inputs.gate_rows >= 3 && tried.description.stage == Stage::kFull;
             }));
  const CaseDescription& d = result.minimal.description;
  EXPECT_EQ(d.num_tokens, 17);
  EXPECT_EQ(d.num_experts, 3);
  EXPECT_EQ(d.top_k, 1);
  EXPECT_EQ(d.hidden_size, 1);
  ASSERT_TRUE(d.data);
  EXPECT_EQ(count_nonzero(*d.data), 0);
  EXPECT_LT(result.evaluations, 300);
}

TEST(Shrink, KeepsTheValuesThatMatter) {
  const Case c = directed_case(model("glm-5.3-flash"), "dispatch_boundary");
  // One hidden value above 2 meets a negative weight.
  const auto result =
      shrink(c, fails_when([](const Case&, const RouterInputs& inputs) {
               for (std::int64_t row = 0; row < inputs.num_tokens; ++row) {
                 for (std::int64_t column = 0; column < inputs.hidden_size; ++column) {
                   const auto x = inputs.hidden_states[static_cast<std::size_t>(row * inputs.hidden_size + column)];
                   if (oracle::bf16_to_fp32(x) <= 2.0f) continue;
                   for (std::int64_t expert = 0; expert < inputs.gate_rows; ++expert) {
                     if (inputs.gate_weight_bf16[static_cast<std::size_t>(expert * inputs.hidden_size + column)] >> 15)
                       return true;
                   }
                 }
               }
               return false;
             }));
  const RouterInputs inputs = materialize(result.minimal);
  EXPECT_EQ(inputs.hidden_states.size(), 1u);
  EXPECT_EQ(inputs.gate_weight_bf16, std::vector<std::uint16_t>{0xbf80});  // -1
  EXPECT_EQ(inputs.selection_bias, std::vector<float>{0.0f});
  EXPECT_LT(result.evaluations, 500);
}

// The fault of a reduction that is split in two halves for more than 16 rows, from the full size.
TEST(Shrink, AnOrderOfAdditionsNeedsAHandfulOfNumbers) {
  const Case c = directed_case(model("glm-5.3-flash"), "order_sensitive");
  const auto result =
      shrink(c, fails_when([](const Case&, const RouterInputs& inputs) {
               if (inputs.num_tokens <= 16) return false;
               const auto H = static_cast<std::size_t>(inputs.hidden_size);
               for (std::size_t row = 0; row < static_cast<std::size_t>(inputs.num_tokens); ++row) {
                 for (std::size_t expert = 0; expert < static_cast<std::size_t>(inputs.gate_rows); ++expert) {
                   float whole = 0.0f, halves[2] = {0.0f, 0.0f};
                   for (std::size_t i = 0; i < H; ++i) {
                     const float product = oracle::bf16_to_fp32(inputs.hidden_states[row * H + i]) *
                                           oracle::bf16_to_fp32(inputs.gate_weight_bf16[expert * H + i]);
                     whole += product;
                     halves[2 * i >= H] += product;
                   }
                   if (whole != halves[0] + halves[1]) return true;
                 }
               }
               return false;
             }));
  EXPECT_EQ(result.minimal.description.num_tokens, 17);
  EXPECT_EQ(result.minimal.description.num_experts, 1);
  EXPECT_LE(result.minimal.description.hidden_size, 8);
  EXPECT_LE(count_nonzero(materialize(result.minimal)), 10);
  EXPECT_LT(result.evaluations, 1000);
}

TEST(Shrink, AWrongTieRuleNeedsOneRowAndTwoExperts) {
  for (const char* name : {"glm-5.3-flash", "deepseek-v3", "gpt-oss-120b"}) {
    for (const char* hazard : {"exact_ties", "ties_across_cut"}) {
      const Case c = directed_case(model(name), hazard);
      const auto result = shrink(c, fails_when([](const Case& tried, const RouterInputs& inputs) {
                                   for (const auto& answer : route(tried, inputs, inputs.selection_bias)) {
                                     if (answer.first_rejected < 0) continue;
                                     const float above = answer.keys[static_cast<std::size_t>(answer.last_chosen)];
                                     if (above == answer.keys[static_cast<std::size_t>(answer.first_rejected)])
                                       return true;
                                   }
                                   return false;
                                 }));
      const CaseDescription& d = result.minimal.description;
      EXPECT_EQ(d.stage, Stage::kFromLogits) << name;
      EXPECT_EQ(d.num_tokens, 1) << name;
      EXPECT_EQ(d.num_experts, 2) << name;
      EXPECT_EQ(d.top_k, 1) << name;
      EXPECT_EQ(d.n_group, 1) << name;
      EXPECT_EQ(count_nonzero(materialize(result.minimal)), 0) << name;
      EXPECT_LT(result.evaluations, 300) << name;
    }
  }
}

TEST(Shrink, ARoundedBiasNeedsOneRowAndTwoExperts) {
  for (const char* hazard : {"large_bias_offset", "bf16_collapse", "padding"}) {
    const Case c = directed_case(model("glm-5.3-flash"), hazard);
    const auto result = shrink(c, fails_when([](const Case& tried, const RouterInputs& inputs) {
                                 std::vector<float> rounded = inputs.selection_bias;
                                 for (float& value : rounded) value = oracle::round_to_bf16(value);
                                 const auto exact = route(tried, inputs, inputs.selection_bias);
                                 const auto coarse = route(tried, inputs, rounded);
                                 for (std::size_t row = 0; row < exact.size(); ++row) {
                                   if (exact[row].ids != coarse[row].ids) return true;
                                 }
                                 return false;
                               }));
    const CaseDescription& d = result.minimal.description;
    EXPECT_EQ(d.stage, Stage::kFromLogits) << hazard;
    EXPECT_EQ(d.num_tokens, 1) << hazard;
    EXPECT_EQ(d.num_experts, 2) << hazard;
    EXPECT_FALSE(d.num_valid_rows) << hazard;
    EXPECT_LE(count_nonzero(materialize(result.minimal)), 4) << hazard;  // a logit and a bias of each
    EXPECT_LT(result.evaluations, 500) << hazard;
  }
}

// Ids of more than 8 bits that lose the upper ones: all keys are negative, so a zero in one place would win.
TEST(Shrink, AnIdThatIsCutOffNeedsAHandfulOfNumbersAmongNegativeOnes) {
  for (const bool from_hidden_states : {false, true}) {
    const auto cut_off = fails_when([=](const Case& tried, const RouterInputs& inputs) {
      if (from_hidden_states && inputs.from_logits()) return false;
      for (const auto& answer : route(tried, inputs, inputs.selection_bias)) {
        const auto has = [&](std::int32_t id) {
          return std::find(answer.ids.begin(), answer.ids.end(), id) != answer.ids.end();
        };
        if (has(256) && !has(0)) return true;
      }
      return false;
    });
    Case c = directed_case(model("glm-5.3-flash"), "negative_keys");
    if (from_hidden_states) c = directed_case(model("glm-5.3-flash"), "dispatch_boundary");
    while (!cut_off(c)) ++c.description.data_key;
    const auto result = shrink(c, cut_off);
    const CaseDescription& d = result.minimal.description;
    EXPECT_EQ(d.num_tokens, 1);
    EXPECT_EQ(d.num_experts, 257);
    EXPECT_LE(count_nonzero(materialize(result.minimal)), from_hidden_states ? 2 : 1);
    EXPECT_LT(result.evaluations, 1500);
  }
}

TEST(Shrink, PlantedValuesSurviveAlone) {
  const Case c = directed_case(model("glm-5.3-flash"), "non_finite_logits");
  const auto result = shrink(c, fails_when([](const Case&, const RouterInputs& inputs) {
                               return std::any_of(inputs.router_logits.begin(), inputs.router_logits.end(),
                                                  [](float x) { return std::isnan(x); });
                             }));
  const RouterInputs inputs = materialize(result.minimal);
  ASSERT_EQ(inputs.router_logits.size(), 1u);
  EXPECT_TRUE(std::isnan(inputs.router_logits[0]));
  EXPECT_TRUE(result.minimal.description.plants.empty());
}

TEST(Shrink, GroupsThatMatterStay) {
  const Case c = directed_case(model("deepseek-v3"), "group_hazards");
  const auto result = shrink(c, fails_when([](const Case& tried, const RouterInputs& inputs) {
                               for (const auto& answer : route(tried, inputs, inputs.selection_bias)) {
                                 if (answer.group_kept.empty()) continue;
                                 const std::size_t size = answer.keys.size() / answer.group_kept.size();
                                 const auto best =
                                     std::max_element(answer.keys.begin(), answer.keys.end()) - answer.keys.begin();
                                 if (answer.group_kept[static_cast<std::size_t>(best) / size] == 0) return true;
                               }
                               return false;
                             }));
  const CaseDescription& d = result.minimal.description;
  EXPECT_EQ(d.num_tokens, 1);
  EXPECT_EQ(d.n_group, 2);
  EXPECT_EQ(d.topk_group, 1);
  EXPECT_LE(d.num_experts, 6);  // at least two a group for their sum
  EXPECT_EQ(d.top_k, 1);
}

TEST(Shrink, IsDeterministicAndBounded) {
  const Case c = directed_case(model("qwen3-30b-a3b"), "ties_across_cut");
  const auto odd = fails_when([](const Case&, const RouterInputs& inputs) { return hash_of(inputs) % 3 != 0; });
  Case start = c;
  while (!odd(start)) ++start.description.data_key;
  const ShrinkResult a = shrink(start, odd, {.max_evaluations = 150});
  const ShrinkResult b = shrink(start, odd, {.max_evaluations = 150});
  EXPECT_LE(a.evaluations, 150);
  EXPECT_EQ(a.evaluations, b.evaluations);
  EXPECT_EQ(a.steps, b.steps);
  EXPECT_EQ(hash_of(materialize(a.minimal)), hash_of(materialize(b.minimal)));
  int calls = 0;
  const ShrinkResult stopped = shrink(start, odd, {}, [&](int, const Case&) { return ++calls < 5; });
  EXPECT_EQ(calls, 5);
  EXPECT_LE(stopped.evaluations, 6);
}

TEST(Shrink, RefusesACleanCase) {
  const Case c = directed_case(model("qwen3-30b-a3b"), "ties_across_cut");
  EXPECT_THROW(shrink(c, [](const Case&) -> std::optional<Violation> { return std::nullopt; }), std::invalid_argument);
}

TEST(SimplerCases, AreLazyAndValidAndEnd) {
  for (const char* name : {"deepseek-v3", "gpt-oss-120b", "llama-4-scout"}) {
    const oracle::RouterSpec spec = model(name);
    for (const char* hazard : {"non_finite_logits", "padding", "ulp_gap"}) {
      rc::Seq<Case> cases = simpler_cases(directed_case(spec, hazard));
      for (int i = 0; i < 40; ++i) {
        const auto c = cases.next();
        if (!c) break;
        EXPECT_TRUE(oracle::find_problems(c->spec).empty()) << name;
        if (c->description.stage == Stage::kFromLogits) {
          EXPECT_NO_THROW(materialize(*c)) << name << " " << hazard;
        }
      }
    }
  }
  // Down to a case without simpler ones, always taking the first.
  Case c = directed_case(model("deepseek-v3"), "ulp_gap");
  int steps = 0;
  for (rc::Shrinkable<Case> tree = shrinkable(c);; ++steps) {
    const auto next = tree.shrinks().next();
    if (!next) break;
    tree = *next;
    c = tree.value();
    ASSERT_LT(steps, 200);
  }
  EXPECT_EQ(c.description.num_tokens, 1);
  EXPECT_EQ(c.description.num_experts, 1);
  EXPECT_EQ(count_nonzero(materialize(c)), 0);
}

TEST(ShrinkEdit, ExplicitTensorsAreTheSameTensors) {
  for (const char* hazard : {"non_finite_hidden", "padding", "ulp_gap", "non_finite_bias"}) {
    const Case c = directed_case(model("llama-4-scout"), hazard == std::string("non_finite_bias") ? "padding" : hazard);
    const Case given = with_explicit_tensors(c);
    EXPECT_EQ(hash_of(materialize(given)), hash_of(materialize(c)));
    EXPECT_EQ(materialize(given).num_valid_rows, materialize(c).num_valid_rows);
    const std::vector<std::int64_t> rows = {0, 2}, experts = {1, 3, 15};
    EXPECT_EQ(hash_of(materialize(*keep_rows(given, rows))), hash_of(materialize(*keep_rows(c, rows))));
    EXPECT_EQ(hash_of(materialize(*keep_experts(given, experts, 1))),
              hash_of(materialize(*keep_experts(c, experts, 1))));
  }
}

TEST(ShrinkEdit, FinishedLogitsGiveTheSameAnswer) {
  const Case c = directed_case(model("gpt-oss-120b"), "dispatch_boundary");
  const Case from = from_finished_logits(c);
  const RouterInputs full = materialize(c), given = materialize(from);
  EXPECT_TRUE(given.from_logits());
  const auto a = route(c, full, {}), b = route(from, given, {});
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t row = 0; row < a.size(); ++row) {
    EXPECT_EQ(a[row].ids, b[row].ids);
    EXPECT_EQ(a[row].weights, b[row].weights);
  }
}

}  // namespace
}  // namespace samebits::properties
