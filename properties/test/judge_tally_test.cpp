#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "laws_fake_router.h"

namespace samebits::properties {
namespace {

const LawTally& tally_of(const Tally& tally, const std::string& law) {
  for (const auto& [candidate, result] : tally.laws()) {
    if (law == candidate->id) return result;
  }
  throw std::invalid_argument(law);
}

std::vector<LawResult> judge_all(const Case& c, Subject& router, const std::vector<std::string>& laws = {}) {
  const oracle::RouterInputs inputs = materialize(c);
  return judge(c, router.claims(), inputs, router.run(c, inputs, plan_runs(c, router.claims())), laws);
}

TEST(Laws, HaveIdsStatementsSourcesAndHazards) {
  std::vector<std::string> ids;
  for (const Law& law : all_laws()) {
    ids.emplace_back(law.id);
    EXPECT_EQ(find_law(law.id), &law);
    EXPECT_FALSE(std::string(law.statement).empty() || std::string(law.source).empty() ||
                 std::string(law.hazards).empty())
        << law.id;
    EXPECT_GT(law.min_relevant, 0) << law.id;
  }
  EXPECT_THAT(ids, testing::ElementsAre("termination", "total_dispatch", "buffers", "run_to_run", "batch_invariance",
                                        "finite_isolated", "layout", "history", "ordering", "device_health",
                                        "unique_in_range", "padding", "non_finite", "metamorphic", "precision",
                                        "selection", "hash_routing", "order", "weights", "sum", "bookkeeping"));
  EXPECT_EQ(find_law("none"), nullptr);
}

TEST(Judge, UnknownLawIsRefusedWithTheKnownOnes) {
  FakeRouter router(contract_claims());
  try {
    judge_all(small_case(small_spec(), 2), router, {"selektion"});
    FAIL() << "no error";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("selektion"));
    EXPECT_THAT(error.what(), testing::HasSubstr("selection"));
  }
}

TEST(Judge, OnlyTheNamedLawsInLawOrder) {
  FakeRouter router(contract_claims());
  const auto results = judge_all(small_case(small_spec(), 2), router, {"weights", "termination"});
  ASSERT_EQ(results.size(), 2u);
  EXPECT_STREQ(results[0].law->id, "termination");
  EXPECT_STREQ(results[1].law->id, "weights");
}

TEST(Judge, MainAloneIsJudgedWithoutTheOtherRuns) {
  const Case c = small_case(small_spec(), 8);
  FakeRouter router(contract_claims());
  const oracle::RouterInputs inputs = materialize(c);
  const auto runs = router.run(c, inputs, {plan_runs(c, router.claims()).front()});
  for (const LawResult& result : judge(c, router.claims(), inputs, runs)) {
    EXPECT_FALSE(result.outcome.violation) << result.law->id;
    const std::string id = result.law->id;
    if (id == "batch_invariance" || id == "run_to_run" || id == "finite_isolated") {
      EXPECT_EQ(result.outcome.relevant, 0) << id;
    }
  }
}

TEST(Judge, AWeightThatIsNotFiniteIsRelevantInAnyRun) {
  const Case c = small_case(small_spec(), 8);
  FakeRouter router(contract_claims(), [](const RunRequest&, const oracle::RouterInputs&, RunResult& r) {
    r.outputs.topk_weights[0] = std::numeric_limits<float>::quiet_NaN();
  });
  const oracle::RouterInputs inputs = materialize(c);
  const auto runs = router.run(c, inputs, {plan_runs(c, router.claims()).front()});
  const auto results = judge(c, router.claims(), inputs, runs, {"finite_isolated"});
  ASSERT_EQ(results.size(), 1u);
  EXPECT_TRUE(results[0].outcome.violation);
  EXPECT_EQ(results[0].outcome.relevant, 1);
}

TEST(Judge, FailedRunsAreNotJudgedByOtherLaws) {
  FakeRouter router(contract_claims(), [](const RunRequest&, const oracle::RouterInputs&, RunResult& r) {
    r = RunResult{};
    r.status = RunResult::Status::kCrashed;
  });
  EXPECT_THAT(broken_laws(small_case(small_spec(), 8), router), testing::ElementsAre("termination"));
}

TEST(Tally, PassNeedsEnoughRelevantComparisons) {
  FakeRouter router(contract_claims());
  Tally little(small_spec(), router.claims());
  little.add(judge_all(small_case(small_spec(), 2), router));
  little.finish();
  EXPECT_EQ(tally_of(little, "selection").verdict, Verdict::kInconclusive);
  EXPECT_EQ(tally_of(little, "non_finite").verdict, Verdict::kInconclusive) << "no case had NaN or Inf";

  Tally enough(small_spec(), router.claims());
  enough.add(judge_all(small_case(small_spec(), 40), router));
  enough.finish();
  EXPECT_EQ(tally_of(enough, "selection").verdict, Verdict::kPass);
  EXPECT_EQ(tally_of(enough, "selection").relevant, 40);
  EXPECT_EQ(tally_of(enough, "selection").cases, 1);
}

TEST(Tally, NothingJudgedIsInconclusive) {
  Tally tally(small_spec(), contract_claims());
  tally.finish();
  for (const auto& [law, result] : tally.laws()) {
    EXPECT_EQ(result.verdict, result.applicable ? Verdict::kInconclusive : Verdict::kNotApplicable) << law->id;
  }
}

TEST(Tally, OneFailedCaseFails) {
  FakeRouter honest(contract_claims());
  FakeRouter faulty(contract_claims(), [](const RunRequest&, const oracle::RouterInputs&, RunResult& r) {
    r.outputs.topk_weights[0] = 9.0f;
  });
  Tally tally(small_spec(), honest.claims());
  tally.add(judge_all(small_case(small_spec(), 40), honest));
  tally.add(judge_all(small_case(small_spec(), 40), faulty));
  tally.finish();
  EXPECT_EQ(tally_of(tally, "weights").verdict, Verdict::kFail);
  EXPECT_EQ(tally_of(tally, "weights").failed, 1);
  EXPECT_EQ(tally_of(tally, "selection").verdict, Verdict::kPass);
}

TEST(Tally, UnclaimedLawsAreNotApplicableWithAReason) {
  Claims claims = bounded_claims();
  claims.determinism = Determinism::kNone;
  claims.output_order = OutputOrder::kAny;
  claims.returns_logits = false;
  Tally tally(small_spec(), claims);
  tally.finish();
  for (const char* law : {"batch_invariance", "run_to_run", "order", "precision", "bookkeeping"}) {
    EXPECT_EQ(tally_of(tally, law).verdict, Verdict::kNotApplicable) << law;
    EXPECT_FALSE(tally_of(tally, law).not_applicable_reason.empty()) << law;
  }
}

TEST(Tally, OrderAppliesWhenACaseHasSeveralSlots) {
  oracle::RouterSpec one_slot = small_spec();
  one_slot.shape.top_k = 1;
  FakeRouter router(contract_claims());
  Tally tally(one_slot, router.claims(), {"order"});
  tally.add(judge_all(small_case(one_slot, 40), router, {"order"}));
  Tally with_more = tally;
  tally.finish();
  EXPECT_EQ(tally_of(tally, "order").verdict, Verdict::kNotApplicable);
  with_more.add(judge_all(small_case(small_spec(), 40), router, {"order"}));
  with_more.finish();
  EXPECT_EQ(tally_of(with_more, "order").verdict, Verdict::kPass);
}

}  // namespace
}  // namespace samebits::properties
