// Every law finds the fault that it is for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "laws_fake_router.h"
#include "oracle/reference/answer.h"
#include "oracle/tensors/bf16.h"

namespace samebits::properties {
namespace {

using oracle::RouterInputs;
using testing::Contains;
using testing::HasSubstr;

struct PlantedFault {
  const char* name;
  const char* law;
  Fault fault;
};

std::vector<PlantedFault> planted_faults() {
  return {
      {"duplicate_id", "unique_in_range",
       [](const RunRequest&, const RouterInputs&, RunResult& r) { r.outputs.topk_ids[1] = r.outputs.topk_ids[0]; }},
      {"id_out_of_range", "unique_in_range",
       [](const RunRequest&, const RouterInputs& in, RunResult& r) { r.outputs.topk_ids[0] = in.gate_rows; }},
      {"negative_id_in_a_valid_row", "unique_in_range",
       [](const RunRequest&, const RouterInputs&, RunResult& r) { r.outputs.topk_ids[0] = -1; }},
      {"nan_weight", "finite_isolated",
       [](const RunRequest&, const RouterInputs&, RunResult& r) {
         r.outputs.topk_weights[0] = std::numeric_limits<float>::quiet_NaN();
       }},
      {"nan_neighbour_changes_a_row", "finite_isolated",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (q.id != "loud_neighbours") return;
         for (std::size_t row = 0; row < q.rows.size(); ++row) {
           if (q.replace[row] != RowReplacement::kKeep) continue;
           r.outputs.topk_weights[row * 4] = std::nextafter(r.outputs.topk_weights[row * 4], 0.0f);
           return;
         }
       }},
      {"another_expert", "selection",
       [](const RunRequest&, const RouterInputs& in, RunResult& r) {
         for (std::int64_t e = 0; e < in.gate_rows; ++e) {
           if (std::count(r.outputs.topk_ids.begin(), r.outputs.topk_ids.begin() + 4, e) != 0) continue;
           r.outputs.topk_ids[3] = e;
           return;
         }
       }},
      {"swapped_slots", "order",
       [](const RunRequest&, const RouterInputs&, RunResult& r) {
         std::swap(r.outputs.topk_ids[0], r.outputs.topk_ids[1]);
         std::swap(r.outputs.topk_weights[0], r.outputs.topk_weights[1]);
       }},
      {"weight_one_ulp_off", "weights",
       [](const RunRequest&, const RouterInputs&, RunResult& r) {
         r.outputs.topk_weights[2] = std::nextafter(r.outputs.topk_weights[2], 1.0f);
       }},
      {"scaled_twice", "sum",
       [](const RunRequest&, const RouterInputs&, RunResult& r) {
         for (float& w : r.outputs.topk_weights) w *= 2.5f;
       }},
      {"row_differs_alone", "batch_invariance",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (q.rows.size() == 1) r.outputs.topk_weights[0] = std::nextafter(r.outputs.topk_weights[0], 1.0f);
       }},
      {"place_changes_a_row", "batch_invariance",
       [](const RunRequest&, const RouterInputs&, RunResult& r) {
         r.outputs.topk_weights[0] = std::nextafter(r.outputs.topk_weights[0], 1.0f);
       }},
      {"logit_changes_with_row_count", "batch_invariance",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (q.rows.size() > 16 && q.want_logits) r.outputs.router_logits[5] += 1.0f;
       }},
      {"second_call_differs", "run_to_run",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (q.id == "repeat") std::swap(r.outputs.topk_ids[0], r.outputs.topk_ids[1]);
       }},
      {"second_bookkeeping_differs", "run_to_run",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (q.id == "repeat") {
           std::swap(r.outputs.bookkeeping.slot_of_position[0], r.outputs.bookkeeping.slot_of_position[1]);
         }
       }},
      {"id_left_unwritten", "buffers",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         r.outputs.topk_ids[2] = static_cast<std::int32_t>(q.poison);
       }},
      {"int64_id_left_unwritten", "buffers",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         r.outputs.topk_ids[2] = static_cast<std::int64_t>((std::uint64_t{q.poison} << 32) | q.poison);
       }},
      {"weight_left_unwritten", "buffers",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         r.outputs.topk_weights[2] = std::bit_cast<float>(q.poison);
       }},
      {"count_left_unwritten", "buffers",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (q.want_bookkeeping) r.outputs.bookkeeping.expert_offsets[1] = static_cast<std::int32_t>(q.poison);
       }},
      {"guard_damaged", "buffers",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (q.id != "permuted") return;
         r.guards_intact = false;
         r.damage = "topk_ids, 4 bytes past the end";
       }},
      {"input_written", "buffers",
       [](const RunRequest&, const RouterInputs&, RunResult& r) { r.inputs_intact = false; }},
      {"padding_row_has_an_id", "padding",
       [](const RunRequest&, const RouterInputs& in, RunResult& r) {
         if (in.valid_rows() < in.num_tokens) r.outputs.topk_ids[at(in.valid_rows() * 4)] = 0;
       }},
      {"padding_row_has_a_weight", "padding",
       [](const RunRequest&, const RouterInputs& in, RunResult& r) {
         if (in.valid_rows() < in.num_tokens) r.outputs.topk_weights[at(in.num_tokens * 4 - 1)] = -0.0f;
       }},
      {"padding_logits_written", "padding",
       [](const RunRequest& q, const RouterInputs& in, RunResult& r) {
         if (q.want_logits && in.valid_rows() < in.num_tokens) r.outputs.router_logits.back() = 0.0f;
       }},
      {"count_above_rows_leaves_none", "padding",
       [](const RunRequest& q, const RouterInputs& in, RunResult& r) {
         if (q.num_valid_rows.value_or(0) > in.num_tokens)
           std::fill(r.outputs.topk_ids.begin(), r.outputs.topk_ids.end(), -1);
       }},
      {"no_valid_row_writes_nothing", "buffers",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (q.num_valid_rows != 0) return;
         std::fill(r.outputs.topk_weights.begin(), r.outputs.topk_weights.end(), std::bit_cast<float>(q.poison));
       }},
      {"other_weights_without_logits", "run_to_run",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (!q.want_logits) r.outputs.topk_weights[0] = std::nextafter(r.outputs.topk_weights[0], 0.0f);
       }},
      {"padding_row_counted", "bookkeeping",
       [](const RunRequest& q, const RouterInputs& in, RunResult& r) {
         if (q.want_bookkeeping && in.valid_rows() < in.num_tokens) ++r.outputs.bookkeeping.tokens_per_expert[3];
       }},
      {"slots_of_an_expert_out_of_order", "bookkeeping",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (!q.want_bookkeeping) return;
         std::swap(r.outputs.bookkeeping.slot_of_position[0], r.outputs.bookkeeping.slot_of_position[1]);
       }},
      {"stale_tail", "bookkeeping",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (q.want_bookkeeping) r.outputs.bookkeeping.expert_ids.back() = 2;
       }},
      {"logit_one_ulp_off", "precision",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (q.want_logits) r.outputs.router_logits[7] = std::nextafter(r.outputs.router_logits[7], 100.0f);
       }},
      {"crash", "termination",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (q.rows.size() != 1) return;
         r = RunResult{};
         r.status = RunResult::Status::kCrashed;
         r.message = "SIGSEGV";
       }},
      {"hang", "termination",
       [](const RunRequest&, const RouterInputs&, RunResult& r) { r.status = RunResult::Status::kTimedOut; }},
      {"error", "termination",
       [](const RunRequest&, const RouterInputs&, RunResult& r) { r.status = RunResult::Status::kError; }},
      {"missing_rows", "termination",
       [](const RunRequest&, const RouterInputs&, RunResult& r) { r.outputs.topk_ids.pop_back(); }},
  };
}

class PlantedFaultTest : public testing::TestWithParam<PlantedFault> {};

TEST_P(PlantedFaultTest, IsFoundByItsLaw) {
  Case c = small_case(small_spec(), 8);
  c.description.num_valid_rows = 6;
  FakeRouter honest(contract_claims());
  FakeRouter faulty(contract_claims(), GetParam().fault);
  const LawOutcome good = judge_case(c, honest, GetParam().law);
  EXPECT_FALSE(good.violation);
  EXPECT_GT(good.relevant, 0);
  const LawOutcome bad = judge_case(c, faulty, GetParam().law);
  ASSERT_TRUE(bad.violation);
  EXPECT_EQ(bad.violation->law, GetParam().law);
  EXPECT_FALSE(bad.violation->summary.empty());
  EXPECT_FALSE(bad.violation->observed.empty() && bad.violation->expected.empty());
  EXPECT_EQ(bad.violation->summary.find('\n'), std::string::npos) << "a summary is one line";
}

INSTANTIATE_TEST_SUITE_P(Laws, PlantedFaultTest, testing::ValuesIn(planted_faults()),
                         [](const auto& fault) { return fault.param.name; });

// Four rows in which experts tie across the cut.
Case tied_case() {
  std::vector<float> row(16, 0.0f);
  row[3] = row[9] = 2.0f;
  return logits_case(small_spec(), std::vector<std::vector<float>>(4, row), std::vector<float>(16, 11.5f));
}

void prefer_higher_id(const RunRequest&, const RouterInputs& in, RunResult& r) {
  // The ties at key 11.5 + sigmoid(0) are experts 0, 1, 2, 4, 5, ...: the two lowest are replaced by the two highest.
  for (std::int64_t row = 0; row < in.num_tokens; ++row) {
    r.outputs.topk_ids[at(row * 4 + 2)] = 15;
    r.outputs.topk_ids[at(row * 4 + 3)] = 14;
  }
}

TEST(SelectionLaw, NamesTiesToTheHigherId) {
  FakeRouter router(contract_claims(), prefer_higher_id);
  const LawOutcome outcome = judge_case(tied_case(), router, "selection");
  ASSERT_TRUE(outcome.violation);
  EXPECT_EQ(outcome.violation->expected, "[3, 9, 0, 1]");
  EXPECT_THAT(outcome.violation->notes, Contains(HasSubstr("ties to the higher id")));
}

TEST(SelectionLaw, HoldsABoundedRouterToTheTieRuleThatItClaims) {
  FakeRouter claims_lowest(bounded_claims(), prefer_higher_id);
  const LawOutcome outcome = judge_case(tied_case(), claims_lowest, "selection");
  ASSERT_TRUE(outcome.violation);
  EXPECT_THAT(outcome.violation->notes, Contains(HasSubstr("equal by construction")));

  Claims any_tie = bounded_claims();
  any_tie.tie_rule = TieRule::kAny;
  any_tie.output_order = OutputOrder::kAny;
  FakeRouter claims_nothing(any_tie, prefer_higher_id);
  EXPECT_FALSE(judge_case(tied_case(), claims_nothing, "selection").violation);
}

TEST(SelectionLaw, NamesABiasRoundedToBf16) {
  // sigmoid(0) everywhere; biases that bf16 cannot tell apart, rising with the id.
  std::vector<float> bias(16);
  for (std::size_t e = 0; e < 16; ++e) bias[e] = 7.001f + 0.001f * static_cast<float>(e);
  const Case c = logits_case(small_spec(), {std::vector<float>(16, 0.0f)}, bias);
  FakeRouter router(contract_claims(), [&](const RunRequest&, const RouterInputs& in, RunResult& r) {
    oracle::RouterSpec wrong = c.spec;
    wrong.selection.bias = oracle::BiasType::kBf16;
    for (std::int64_t row = 0; row < in.num_tokens; ++row) {
      const auto answer = oracle::route_row(wrong, std::span(in.router_logits).subspan(at(row) * 16, 16),
                                            {.selection_bias = in.selection_bias});
      std::copy(answer.ids.begin(), answer.ids.end(), r.outputs.topk_ids.begin() + row * 4);
    }
  });
  const LawOutcome outcome = judge_case(c, router, "selection");
  ASSERT_TRUE(outcome.violation);
  EXPECT_EQ(outcome.violation->expected, "[15, 14, 13, 12]");
  EXPECT_THAT(outcome.violation->notes, Contains(HasSubstr("bias rounded to bf16")));
}

TEST(WeightsLaw, NamesWeightsFromTheBiasedScore) {
  const Case c = small_case(small_spec(), 8);
  FakeRouter router(contract_claims(), [&](const RunRequest&, const RouterInputs& in, RunResult& r) {
    // The keys are near 11.7, so renormalised they are nearly equal.
    for (std::int64_t row = 0; row < in.num_tokens; ++row) {
      oracle::RouterSpec wrong = c.spec;
      wrong.weights.source = oracle::WeightSource::kBiasedScore;
      if (r.outputs.router_logits.empty()) return;
      const auto answer =
          oracle::route_row(wrong, std::span<const float>(r.outputs.router_logits).subspan(at(row) * 16, 16),
                            {.selection_bias = in.selection_bias});
      std::copy(answer.weights.begin(), answer.weights.end(), r.outputs.topk_weights.begin() + row * 4);
    }
  });
  const LawOutcome outcome = judge_case(c, router, "weights");
  ASSERT_TRUE(outcome.violation);
  EXPECT_THAT(outcome.violation->notes, Contains(HasSubstr("biased score")));
  EXPECT_FALSE(judge_case(c, router, "selection").violation);
  EXPECT_FALSE(judge_case(c, router, "sum").violation);
  Claims bounded = bounded_claims();
  FakeRouter third_party(bounded, [](const RunRequest&, const RouterInputs&, RunResult& r) {
    for (float& w : r.outputs.topk_weights) w = 0.625f;
  });
  EXPECT_TRUE(judge_case(c, third_party, "weights").violation);
}

TEST(BatchInvarianceLaw, TellsBetweenWhichRowCountsTheBitsChange) {
  const Case c = small_case(small_spec(), 40);
  FakeRouter router(contract_claims(), [](const RunRequest& q, const RouterInputs&, RunResult& r) {
    if (q.rows.size() <= 16) return;
    for (float& x : r.outputs.router_logits) x = std::nextafter(x, 100.0f);
  });
  const LawOutcome outcome = judge_case(c, router, "batch_invariance");
  ASSERT_TRUE(outcome.violation);
  EXPECT_THAT(outcome.violation->notes, Contains("the bits change between T = 16 and T = 17"));
}

TEST(BatchInvarianceLaw, MeetsOtherRowCountsInACaseOfOneRow) {
  const Case c = small_case(small_spec(), 1);
  FakeRouter router(contract_claims(), [](const RunRequest& q, const RouterInputs&, RunResult& r) {
    if (q.rows.size() > 16) r.outputs.topk_weights[0] = 7.0f;
  });
  EXPECT_TRUE(judge_case(c, router, "batch_invariance").violation);
}

TEST(NonFiniteLaw, RefusesANanExpertWhileOthersAreLeft) {
  std::vector<float> row(16, 0.0f);
  row[5] = std::bit_cast<float>(0x7fffffffu);
  const Case c = logits_case(small_spec(), {row, std::vector<float>(16, 1.0f)}, std::vector<float>(16, 0.0f));
  const Fault choose_nan = [](const RunRequest&, const RouterInputs&, RunResult& r) { r.outputs.topk_ids[3] = 5; };
  for (const Claims& claims : {contract_claims(), bounded_claims()}) {
    FakeRouter honest(claims);
    const LawOutcome good = judge_case(c, honest, "non_finite");
    EXPECT_FALSE(good.violation);
    EXPECT_EQ(good.relevant, 1) << "only rows with non-finite values count";
    FakeRouter faulty(claims, choose_nan);
    const LawOutcome bad = judge_case(c, faulty, "non_finite");
    ASSERT_TRUE(bad.violation);
    EXPECT_THAT(bad.violation->summary, HasSubstr("its key is NaN"));
  }
}

TEST(NonFiniteLaw, AllowsNanExpertsWhenTooFewOthersAreLeft) {
  std::vector<float> row(16, std::bit_cast<float>(0x7fffffffu));
  row[8] = 1.0f;
  const Case c = logits_case(small_spec(), {row}, std::vector<float>(16, 0.0f));
  for (const Claims& claims : {contract_claims(), bounded_claims()}) {
    FakeRouter honest(claims);
    const LawOutcome outcome = judge_case(c, honest, "non_finite");
    EXPECT_FALSE(outcome.violation);
    EXPECT_EQ(outcome.relevant, 1);
  }
}

// Terms of both signs that overflow: NaN in fp32 sums, although every operand is finite.
TEST(NonFiniteLaw, CountsNoExpertAsARivalWhoseSumMayOverflow) {
  constexpr std::uint16_t kOne = 0x3f80, kBig = 0x7f00, kNegativeBig = 0xff00;
  oracle::RouterSpec spec = small_spec();
  spec.shape.hidden_size = 2;
  Case c = small_case(spec, 1);
  RouterInputs data;
  data.num_tokens = 1;
  data.hidden_size = 2;
  data.gate_rows = 16;
  data.hidden_states = {kBig, kBig};
  for (int e = 0; e < 16; ++e) {
    data.gate_weight_bf16.push_back(e < 4 ? kOne : kBig);
    data.gate_weight_bf16.push_back(e < 4 ? std::uint16_t{0} : kNegativeBig);
    data.selection_bias.push_back(e < 4 ? std::numeric_limits<float>::quiet_NaN() : 0.0f);
  }
  c.description.data = data;
  FakeRouter honest(bounded_claims(), {}, FakeRouter::Kind::kPlainFp32);
  const LawOutcome good = judge_case(c, honest, "non_finite");
  EXPECT_FALSE(good.violation) << good.violation->summary;
  EXPECT_EQ(good.relevant, 1);

  std::fill(c.description.data->gate_weight_bf16.begin() + 8, c.description.data->gate_weight_bf16.end(), kOne);
  std::fill(c.description.data->hidden_states.begin(), c.description.data->hidden_states.end(), kOne);
  FakeRouter faulty(bounded_claims(), [](const RunRequest&, const RouterInputs&, RunResult& r) {
    for (std::size_t i = 0; i < 4; ++i) r.outputs.topk_ids[i] = static_cast<std::int64_t>(i);
  });
  EXPECT_TRUE(judge_case(c, faulty, "non_finite").violation) << "the others are finite";
}

TEST(SelectionLaw, DoesNotApplyWhereEveryExpertIsChosen) {
  oracle::RouterSpec spec = small_spec();
  EXPECT_FALSE(find_law("selection")->not_applicable(spec, contract_claims()));
  spec.shape.top_k = 16;
  EXPECT_TRUE(find_law("selection")->not_applicable(spec, contract_claims()));
}

// Experts of rejected groups have the key 0, which is not their value.
TEST(SumLaw, TakesBiasedScoresFromBeforeAZeroMask) {
  oracle::RouterSpec spec = grouped_spec();
  spec.selection.group_mask = oracle::GroupMask::kZero;
  spec.weights.source = oracle::WeightSource::kBiasedScore;
  Case c = small_case(spec, 8);
  c.description.bias_offset = -2.0f;  // negative keys, so that experts of rejected groups are chosen
  FakeRouter honest(contract_claims());
  const LawOutcome good = judge_case(c, honest, "sum");
  EXPECT_FALSE(good.violation) << good.violation->summary;
  EXPECT_EQ(good.relevant, 8);
  FakeRouter faulty(contract_claims(), [](const RunRequest&, const RouterInputs&, RunResult& r) {
    for (float& w : r.outputs.topk_weights) w *= 2.5f;
  });
  EXPECT_TRUE(judge_case(c, faulty, "sum").violation);
}

TEST(SumLaw, ZeroSumGivesZeroWeights) {
  oracle::RouterSpec spec = small_spec();
  spec.weights.eps = 0.0;
  spec.weights.eps_mode = oracle::EpsMode::kNone;
  const Case c = logits_case(spec, {std::vector<float>(16, -200.0f)}, std::vector<float>(16, 0.0f));
  FakeRouter honest(contract_claims());
  const LawOutcome good = judge_case(c, honest, "sum");
  EXPECT_FALSE(good.violation);
  EXPECT_EQ(good.relevant, 1);
  FakeRouter faulty(contract_claims(), [](const RunRequest&, const RouterInputs&, RunResult& r) {
    for (float& w : r.outputs.topk_weights) w = 0.625f;
  });
  EXPECT_TRUE(judge_case(c, faulty, "sum").violation);
}

TEST(SumLaw, SaysNothingWhereTheScaledScoreMayOverflow) {
  oracle::RouterSpec spec = small_spec();
  spec.score.func = oracle::ScoreFunc::kIdentity;
  spec.weights.scale_stage = oracle::ScaleStage::kBeforeDivide;
  const auto judged = [&](double scale, std::vector<float> logits) {
    spec.weights.routed_scaling_factor = scale;
    logits.resize(16, 0.0f);
    FakeRouter honest(contract_claims());
    return judge_case(logits_case(spec, {logits}, std::vector<float>(16, 0.0f)), honest, "sum");
  };
  const LawOutcome overflow = judged(1e20, {1e30f, 1e30f, 1e30f, 1e30f});
  EXPECT_FALSE(overflow.violation) << overflow.violation->summary;
  EXPECT_EQ(overflow.relevant, 0) << "1e50 / 4e30 is Inf / 4e30";
  const LawOutcome fits = judged(1e7, {1e30f, 1e30f, 1e30f, 1e30f});
  EXPECT_FALSE(fits.violation) << fits.violation->summary;
  EXPECT_EQ(fits.relevant, 1);
}

TEST(SumLaw, EpsShowsWhereTheSumIsSmall) {
  // Four logits of -46: S is about 4e-20, so the weights sum to 2.5 * S / (S + 1e-20), not to 2.5.
  const Case c = logits_case(small_spec(), {std::vector<float>(16, -46.0f)}, std::vector<float>(16, 11.3f));
  FakeRouter honest(contract_claims());
  EXPECT_FALSE(judge_case(c, honest, "sum").violation);
  for (const Claims& claims : {contract_claims(), bounded_claims()}) {
    FakeRouter faulty(claims, [](const RunRequest&, const RouterInputs&, RunResult& r) {
      for (float& w : r.outputs.topk_weights) w = 0.625f;
    });
    EXPECT_TRUE(judge_case(c, faulty, "sum").violation);
  }
}

}  // namespace
}  // namespace samebits::properties
