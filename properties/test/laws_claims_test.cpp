// A router is held to what it claims, and to no more.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "laws_fake_router.h"

namespace samebits::properties {
namespace {

using oracle::RouterInputs;
using testing::Contains;

// Data on which the order of additions shows in every logit.
Case order_sensitive_case() {
  Case c = small_case(small_spec(), 16);
  c.description.selection_bias = BiasFamily::kZero;
  return c;
}

TEST(Claims, DoublePrecisionKeepsAnErrorBoundButNotTheContract) {
  const Case c = order_sensitive_case();
  FakeRouter bounded(bounded_claims(), {}, FakeRouter::Kind::kDouble);
  EXPECT_THAT(broken_laws(c, bounded), testing::IsEmpty());
  FakeRouter over_declared(contract_claims(), {}, FakeRouter::Kind::kDouble);
  EXPECT_THAT(broken_laws(c, over_declared), Contains("precision"));
  EXPECT_THAT(broken_laws(c, over_declared), Contains("weights"));
}

TEST(Claims, Bf16LogitsKeepTheirOwnBoundOnly) {
  const Case c = order_sensitive_case();
  Claims bf16 = bounded_claims();
  bf16.arithmetic = oracle::Arithmetic::kBf16Logits;
  FakeRouter honest(bf16, {}, FakeRouter::Kind::kBf16Logits);
  EXPECT_THAT(broken_laws(c, honest), testing::IsEmpty());
  FakeRouter over_declared(bounded_claims(), {}, FakeRouter::Kind::kBf16Logits);
  EXPECT_THAT(broken_laws(c, over_declared), Contains("precision"));
  Claims silent = bounded_claims();
  silent.returns_logits = false;
  FakeRouter over_declared_silent(silent, {}, FakeRouter::Kind::kBf16Logits);
  EXPECT_THAT(broken_laws(c, over_declared_silent), Contains("weights"));
}

// A bound for sums of H terms hides bf16 logits at a large H; rows of few terms do not let it.
TEST(Claims, Bf16LogitsShowAtALargeHiddenSizeInRowsOfFewTerms) {
  oracle::RouterSpec spec = small_spec();
  spec.shape.hidden_size = 4096;
  Case c = small_case(spec, 8);
  c.description.hidden = HiddenFamily::kFewTerms;
  c.description.selection_bias = BiasFamily::kZero;
  Claims silent = bounded_claims();
  silent.returns_logits = false;
  FakeRouter honest(silent, {}, FakeRouter::Kind::kDouble);
  EXPECT_THAT(broken_laws(c, honest), testing::IsEmpty());
  FakeRouter over_declared(silent, {}, FakeRouter::Kind::kBf16Logits);
  EXPECT_THAT(broken_laws(c, over_declared), Contains("weights"));
}

TEST(Claims, WhatIsNotClaimedIsNotJudged) {
  Claims none = contract_claims();
  none.determinism = Determinism::kNone;
  none.output_order = OutputOrder::kAny;
  none.returns_bookkeeping = false;
  none.returns_logits = false;
  // Slots in another order in every second run.
  FakeRouter router(none, [](const RunRequest& q, const RouterInputs&, RunResult& r) {
    if (q.id == "main") return;
    std::swap(r.outputs.topk_ids[0], r.outputs.topk_ids[1]);
    std::swap(r.outputs.topk_weights[0], r.outputs.topk_weights[1]);
  });
  EXPECT_THAT(broken_laws(small_case(small_spec(), 8), router), testing::IsEmpty());
}

}  // namespace
}  // namespace samebits::properties
