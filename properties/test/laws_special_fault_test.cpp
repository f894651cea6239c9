// The laws that are judged from special runs (run.h) find the faults that they are for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <map>

#include "laws_fake_router.h"
#include "oracle/tensors/bf16.h"
#include "properties/generate.h"

namespace samebits::properties {
namespace {

using oracle::RouterInputs;
using testing::HasSubstr;
using Status = RunResult::Status;

struct SpecialFault {
  const char* name;
  const char* law;
  Fault fault;
  bool in_special = false;  // plant_in_special
};

void change_first_weight(RunResult& r) {
  r.outputs.topk_weights[0] = std::nextafter(r.outputs.topk_weights[0], 0.0f);
}

std::vector<SpecialFault> special_faults() {
  return {
      {"rows_read_at_the_width", "layout",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (q.layout.input_gap > 0) change_first_weight(r);
       }},
      {"unaligned_rows_read_wrong", "layout",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (q.layout.shifted) r.outputs.router_logits[3] += 1.0f;
       }},
      {"half_of_an_int64_id_written", "layout",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (q.layout.ids_int64) {
           r.outputs.topk_ids[0] = static_cast<std::int64_t>((std::uint64_t{q.poison} << 32) |
                                                             static_cast<std::uint64_t>(r.outputs.topk_ids[0]));
         }
       }},
      {"padding_id_zero_extended", "layout",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (!q.layout.ids_int64) return;
         for (std::int64_t& id : r.outputs.topk_ids) id = static_cast<std::int64_t>(static_cast<std::uint32_t>(id));
       }},
      {"bf16_weights_cut_off", "layout",
       [](const RunRequest& q, const RouterInputs& in, RunResult& r) {
         // 1.0 + 1/128 - 2^-23 and its like are cut to the value below.
         if (q.layout.weights_bf16 && in.num_tokens > 0) {
           for (float& w : r.outputs.topk_weights) {
             w = std::bit_cast<float>(std::bit_cast<std::uint32_t>(w) - (w == 0.0f ? 0u : 0x10000u));
           }
         }
       }},
      {"gap_written", "layout",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (q.layout.output_gap == 0) return;
         r.gaps_intact = false;
         r.damage = "between rows: topk_ids (72 bytes): 4 bytes were changed";
       }},
      {"layout_of_the_contract_refused", "layout",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (!q.layout.shifted) return;
         r = RunResult{};
         r.status = Status::kError;
         r.refused = true;
         r.message = "unaligned";
       }},
      {"constants_read_at_the_width", "layout",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (q.constants_gap > 0) change_first_weight(r);
       }},
      {"workspace_keeps_a_value", "history",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (q.id == "history/many_one_many") change_first_weight(r);
       }},
      {"longer_call_leaves_its_tail", "history",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (q.id == "history/one_after_many") r.outputs.topk_ids[1] = r.outputs.topk_ids[0];
       }},
      {"counters_are_not_reset", "history",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (!q.earlier.empty() && q.want_bookkeeping) ++r.outputs.bookkeeping.tokens_per_expert[0];
       }},
      {"graph_keeps_what_it_was_captured_with", "history",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (q.launch == Launch::kGraph) r.outputs.topk_ids[0] = -1;
       }},
      {"rows_read_before_they_are_there", "ordering",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (q.launch == Launch::kLateInput && q.late_input == InputTensor::kRows) change_first_weight(r);
       }},
      {"valid_rows_read_before_they_are_there", "ordering",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (q.launch == Launch::kLateInput && q.late_input == InputTensor::kNumValidRows) r.outputs.topk_ids[0] = -1;
       }},
      {"device_computes_no_more", "device_health",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (q.id == "repeat") r.device_problem = "a kernel after it computed 0, expected is 32640";
       }},
      {"call_allocates", "device_health",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (q.launch != Launch::kGraph) return;
         r = RunResult{};
         r.status = Status::kError;
         r.device_problem = "the call cannot be captured";
       }},
      {"error_after_writing", "total_dispatch",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (q.id != "main") return;
         r = RunResult{};
         r.status = Status::kError;
         r.outputs_untouched = false;
         r.damage = "topk_ids: 16 bytes were changed";
       }},
      {"wrong_call_served", "total_dispatch",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (q.misuse != Misuse::kNone) r = RunResult{};
       },
       true},
      {"wrong_call_fails_later", "total_dispatch",
       [](const RunRequest&, const RouterInputs&, RunResult& r) { r.refused = false; }, true},
      {"wrong_call_writes", "total_dispatch",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) { r.outputs_untouched = q.misuse == Misuse::kNone; },
       true},
      {"repeated_row_differs", "metamorphic",
       [](const RunRequest& q, const RouterInputs&, RunResult& r) {
         if (q.id == "tiled/17") change_first_weight(r);
       }},
  };
}

Claims device_claims() {
  Claims claims = contract_claims();
  claims.device_memory = true;
  return claims;
}

class SpecialFaultTest : public testing::TestWithParam<SpecialFault> {};

TEST_P(SpecialFaultTest, IsFoundByItsLaw) {
  const SpecialFault& planted = GetParam();
  FakeRouter honest(device_claims());
  FakeRouter faulty(device_claims(), planted.in_special ? Fault{} : planted.fault);
  if (planted.in_special) faulty.plant_in_special(planted.fault);
  std::int64_t relevant = 0;
  std::optional<Violation> found;
  for (std::uint64_t key = 0; key < 8; ++key) {  // which special runs there are depends on the key
    Case c = small_case(small_spec(), 8, key);
    c.description.num_valid_rows = 6;
    const LawOutcome good = judge_case(c, honest, planted.law);
    EXPECT_FALSE(good.violation) << good.violation->summary;
    relevant += good.relevant;
    const LawOutcome bad = judge_case(c, faulty, planted.law);
    if (!found) found = bad.violation;
  }
  EXPECT_GE(relevant, find_law(planted.law)->min_relevant);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->law, planted.law);
  EXPECT_FALSE(found->observed.empty() || found->expected.empty()) << found->summary;
  EXPECT_EQ(found->summary.find('\n'), std::string::npos) << "a summary is one line";
}

INSTANTIATE_TEST_SUITE_P(Laws, SpecialFaultTest, testing::ValuesIn(special_faults()),
                         [](const auto& fault) { return fault.param.name; });

// No other law looks at special runs, so that a fault has one name.
TEST(SpecialRuns, AreJudgedByTheirOwnLaws) {
  FakeRouter router(device_claims(), [](const RunRequest& q, const RouterInputs&, RunResult& r) {
    if (!is_ordinary(q)) r.outputs.topk_ids[0] = 1'000'000;
  });
  router.plant_in_special([](const RunRequest& q, const RouterInputs&, RunResult& r) {
    if (q.variation != Variation::kNone) r.outputs.topk_ids[0] = 1'000'000;
  });
  EXPECT_THAT(broken_laws(small_case(small_spec(), 20), router),
              testing::ElementsAre("layout", "history", "ordering", "metamorphic"));
}

TEST(LayoutLaw, LetsABoundedRouterRefuseALayoutButDoesNotCountIt) {
  const Fault refuse = [](const RunRequest& q, const RouterInputs&, RunResult& r) {
    if (q.layout == Layout{} && q.constants_gap == 0) return;
    r = RunResult{};
    r.status = Status::kError;
    r.refused = true;
  };
  FakeRouter bounded(bounded_claims(), refuse);
  const Case c = small_case(small_spec(), 8);
  EXPECT_THAT(broken_laws(c, bounded), testing::IsEmpty());
  EXPECT_EQ(judge_case(c, bounded, "layout").relevant, 0);
}

TEST(LayoutLaw, LetsABoundedRouterRoundAWiderWeight) {
  // bf16 halfway between 1 and 1 + 2^-7 is 1 + 2^-8: the fp32 weight lies on it, the wider one may lie above.
  const float tie = 1.0f + 0x1p-8f;
  const Fault wider = [=](const RunRequest& q, const RouterInputs& in, RunResult& r) {
    const auto valid = r.outputs.topk_weights.begin() + in.valid_rows() * 4;
    std::fill(r.outputs.topk_weights.begin(), valid, q.layout.weights_bf16 ? 1.0f + 0x1p-7f : tie);
  };
  Claims claims = bounded_claims();
  FakeRouter bounded(claims, wider), exact(contract_claims(), wider);
  const Case c = small_case(small_spec(), 4);
  EXPECT_FALSE(judge_case(c, bounded, "layout").violation);
  EXPECT_TRUE(judge_case(c, exact, "layout").violation);
}

TEST(DeviceLaws, DoNotApplyToHostMemory) {
  for (const char* law : {"ordering", "device_health"}) {
    EXPECT_TRUE(find_law(law)->not_applicable(small_spec(), contract_claims())) << law;
    EXPECT_FALSE(find_law(law)->not_applicable(small_spec(), device_claims())) << law;
  }
}

// Specs that together have every relation.
std::vector<oracle::RouterSpec> related_specs() {
  oracle::RouterSpec softmax = small_spec();
  softmax.score.func = oracle::ScoreFunc::kSoftmax;
  softmax.selection.bias = oracle::BiasType::kNone;
  softmax.shape.num_experts = 32;
  return {small_spec(), grouped_spec(), softmax};
}

// Judges the relation of one kind alone: `fault` changes the answers of that derived router.
LawOutcome judge_relation(Variation variation, const Fault& fault) {
  LawOutcome all;
  for (const oracle::RouterSpec& spec : related_specs()) {
    FakeRouter router(contract_claims());
    router.plant_in_special([&](const RunRequest& q, const RouterInputs& in, RunResult& r) {
      if (q.variation == variation && fault) fault(q, in, r);
    });
    for (std::uint64_t key = 0; key < 16; ++key) {
      const Case c = small_case(spec, 4, key);
      const RouterInputs inputs = materialize(c);
      std::vector<RunRequest> plan;
      for (const RunRequest& q : plan_runs(c, router.claims())) {
        if (q.id == "main" || q.variation == variation || q.variation == base_of(spec, variation)) plan.push_back(q);
      }
      std::erase_if(plan, [](const RunRequest& q) { return q.variation == Variation::kNone && q.id != "main"; });
      const auto results = judge(c, router.claims(), inputs, router.run(c, inputs, plan), {"metamorphic"});
      all.relevant += results.front().outcome.relevant;
      if (!all.violation) all.violation = results.front().outcome.violation;
    }
  }
  return all;
}

struct BrokenRelation {
  Variation variation;
  Fault fault;
};

TEST(MetamorphicLaw, FindsEveryBrokenRelation) {
  const Fault weight = [](const RunRequest&, const RouterInputs&, RunResult& r) { change_first_weight(r); };
  const Fault halve = [](const RunRequest&, const RouterInputs&, RunResult& r) {
    for (float& w : r.outputs.topk_weights) w *= 0.5f;
  };
  const Fault other_expert = [](const RunRequest&, const RouterInputs&, RunResult& r) {
    r.outputs.topk_ids[0] = (r.outputs.topk_ids[0] + 1) % 16;
  };
  const Fault percent = [](const RunRequest&, const RouterInputs&, RunResult& r) {
    r.outputs.topk_weights[0] *= 1.0f + 0x1p-16f;
  };
  const std::vector<BrokenRelation> broken = {
      {Variation::kPermutedExperts, other_expert}, {Variation::kPermutedExperts, weight},
      {Variation::kDoubledScale, halve},           {Variation::kDoubledScale, other_expert},
      {Variation::kOtherScale, other_expert},      {Variation::kBf16Weights, other_expert},
      {Variation::kBf16Weights, weight},           {Variation::kAllGroups, weight},
      {Variation::kShiftedLogits, weight},         {Variation::kAppendedExpert, weight},
      {Variation::kAppendedExpert, other_expert},  {Variation::kRaisedBiases, weight},
      {Variation::kRaisedBiases, other_expert},    {Variation::kSoftmaxOfChosen, percent},
  };
  for (const BrokenRelation& relation : broken) {
    const LawOutcome good = judge_relation(relation.variation, {});
    EXPECT_FALSE(good.violation) << good.violation->summary;
    EXPECT_GE(good.relevant, 8) << name_of(relation.variation);
    EXPECT_TRUE(judge_relation(relation.variation, relation.fault).violation) << name_of(relation.variation);
  }
}

// Fewer than k experts have a key that is not NaN: the appended one, whose key is -Inf, takes the place of a NaN.
TEST(MetamorphicLaw, TheAppendedExpertMayTakeThePlaceOfOneWhoseKeyIsNaN) {
  oracle::RouterSpec spec = small_spec();
  spec.shape.num_experts = spec.shape.top_k = 2;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  FakeRouter router(contract_claims());
  std::int64_t met = 0;
  for (std::uint64_t key = 0; key < 16; ++key) {
    Case c = logits_case(spec, {{0.0f, 0.0f}}, {nan, 0.0f});
    c.description.data_key = key;
    for (const RunRequest& q : plan_runs(c, router.claims())) met += q.variation == Variation::kAppendedExpert ? 1 : 0;
    const LawOutcome outcome = judge_case(c, router, "metamorphic");
    EXPECT_FALSE(outcome.violation) << outcome.violation->summary;
  }
  EXPECT_GT(met, 0);
}

}  // namespace
}  // namespace samebits::properties
