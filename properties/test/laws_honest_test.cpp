// Honest routers pass every law, on every hazard.
#include <gtest/gtest.h>

#include "laws_fake_router.h"
#include "properties/generate.h"

namespace samebits::properties {
namespace {

using oracle::RouterSpec;

// Judges the directed cases and `more` random ones (row counts above max_tokens would make the test slow).
Tally judge_many(const RouterSpec& spec, Subject& router, std::uint64_t more) {
  Tally tally(spec, router.claims());
  GenerateOptions options;
  options.max_tokens = 130;
  const auto directed = static_cast<std::uint64_t>(directed_cases(spec, options));
  for (std::uint64_t i = 0; i < directed + more; ++i) {
    const Case c = generate_case("small", "", spec, 1, i, options);
    const oracle::RouterInputs inputs = materialize(c);
    const auto results = judge(c, router.claims(), inputs, router.run(c, inputs, plan_runs(c, router.claims())));
    for (const LawResult& result : results) {
      if (result.outcome.violation) {
        ADD_FAILURE() << "case " << i << " (" << c.description.hazard << "): " << result.law->id << ": "
                      << result.outcome.violation->summary;
      }
    }
    tally.add(results);
  }
  tally.finish();
  return tally;
}

void expect_all_pass(const Tally& tally) {
  for (const auto& [law, result] : tally.laws()) {
    if (!result.applicable) continue;
    EXPECT_EQ(result.verdict, Verdict::kPass) << law->id << ": " << result.relevant << " relevant";
  }
}

RouterSpec softmax_spec() {
  RouterSpec spec = small_spec();
  spec.score.func = oracle::ScoreFunc::kSoftmax;
  spec.selection.bias = oracle::BiasType::kNone;
  spec.weights.renormalize = oracle::Renormalize::kNone;
  spec.weights.eps = 0.0;
  spec.weights.eps_mode = oracle::EpsMode::kNone;
  return spec;
}

RouterSpec sqrt_softplus_spec() {
  RouterSpec spec = small_spec();
  spec.score.func = oracle::ScoreFunc::kSqrtSoftplus;
  spec.weights.routed_scaling_factor = 1.5;
  return spec;
}

TEST(HonestRouter, OracleKeepsEveryLawInTheDirectedCases) {
  FakeRouter router(contract_claims());
  expect_all_pass(judge_many(small_spec(), router, 0));
}

TEST(HonestRouter, OracleKeepsEveryLawWithGroups) {
  FakeRouter router(contract_claims());
  expect_all_pass(judge_many(grouped_spec(), router, 40));
}

TEST(HonestRouter, OracleKeepsEveryLawWithOtherScoresAndRoundings) {
  FakeRouter router(contract_claims());
  expect_all_pass(judge_many(softmax_spec(), router, 40));
  RouterSpec spec = sqrt_softplus_spec();
  spec.weights.scale_stage = oracle::ScaleStage::kBeforeDivide;
  spec.weights.dtype = oracle::FloatType::kBf16;
  spec.gate.logits_dtype = oracle::FloatType::kBf16;
  spec.selection.sort = oracle::SlotOrder::kByIndex;
  expect_all_pass(judge_many(spec, router, 40));
  RouterSpec after = softmax_spec();
  after.score.stage = oracle::ScoreStage::kAfterTopk;
  after.selection.rank_by = oracle::RankBy::kLogit;
  after.gate.linear_bias = oracle::BiasType::kBf16;
  expect_all_pass(judge_many(after, router, 40));
}

TEST(HonestRouter, OtherSumOrderAndPlainExpKeepTheLawsOfAnErrorBound) {
  FakeRouter router(bounded_claims(), {}, FakeRouter::Kind::kPlainFp32);
  expect_all_pass(judge_many(small_spec(), router, 100));
  expect_all_pass(judge_many(grouped_spec(), router, 100));
  expect_all_pass(judge_many(softmax_spec(), router, 100));
  expect_all_pass(judge_many(sqrt_softplus_spec(), router, 100));
}

TEST(HonestRouter, DoublePrecisionKeepsTheLawsOfAnErrorBound) {
  FakeRouter router(bounded_claims(), {}, FakeRouter::Kind::kDouble);
  expect_all_pass(judge_many(small_spec(), router, 100));
  expect_all_pass(judge_many(grouped_spec(), router, 100));
  expect_all_pass(judge_many(softmax_spec(), router, 100));
}

TEST(HonestRouter, OracleKeepsTheLawsOfAnErrorBoundToo) {
  FakeRouter router(bounded_claims());
  expect_all_pass(judge_many(small_spec(), router, 100));
  expect_all_pass(judge_many(grouped_spec(), router, 100));
  expect_all_pass(judge_many(softmax_spec(), router, 100));
  expect_all_pass(judge_many(sqrt_softplus_spec(), router, 100));
}

}  // namespace
}  // namespace samebits::properties
