// Given logits that are wanted as an output: a copy, whatever the router claims.
#include <gtest/gtest.h>

#include <bit>
#include <limits>

#include "laws_fake_router.h"

namespace samebits::properties {
namespace {

constexpr std::uint32_t kOtherNaN = 0xffc10001u;

// One NaN of another sign and payload, and -0, among rows that the law may count.
Case given_case(std::uint64_t key) {
  std::vector<std::vector<float>> rows(8, std::vector<float>(16, 0.25f));
  rows[1][3] = std::bit_cast<float>(kOtherNaN);
  rows[2][0] = -0.0f;
  Case c = logits_case(small_spec(), rows, std::vector<float>(16, 0.0f));
  c.description.data_key = key;
  c.description.num_valid_rows = 7;
  return c;
}

// Over keys that ask for the logits and keys that do not.
LawOutcome judged(const Claims& claims, const Fault& fault, const std::string& law) {
  LawOutcome all;
  for (std::uint64_t key = 0; key < 16; ++key) {
    FakeRouter router(claims, fault);
    const LawOutcome outcome = judge_case(given_case(key), router, law);
    all.relevant += outcome.relevant;
    if (!all.violation) all.violation = outcome.violation;
  }
  return all;
}

void for_asked(const RunRequest& q, RunResult& r, const std::function<void(float&)>& change) {
  if (!q.want_logits || q.rows.size() < 8 || q.num_valid_rows != 7) return;
  change(r.outputs.router_logits[16 + 3]);
}

TEST(GivenLogits, ComeOutAsTheyWentIn) {
  const LawOutcome good = judged(contract_claims(), {}, "precision");
  EXPECT_FALSE(good.violation) << good.violation->summary;
  EXPECT_GE(good.relevant, 8);
  for (const Claims& claims : {contract_claims(), bounded_claims()}) {
    const Fault rounded = [](const RunRequest& q, const oracle::RouterInputs&, RunResult& r) {
      if (q.want_logits) r.outputs.router_logits[5] = 0.25001f;
    };
    const Fault zero = [](const RunRequest& q, const oracle::RouterInputs&, RunResult& r) {
      if (q.want_logits && q.rows.size() == 8) r.outputs.router_logits[32] = 0.0f;
    };
    const Fault nan_lost = [](const RunRequest& q, const oracle::RouterInputs&, RunResult& r) {
      for_asked(q, r, [](float& x) { x = 0.25f; });
    };
    for (const Fault& fault : {rounded, zero, nan_lost}) {
      const LawOutcome bad = judged(claims, fault, "precision");
      ASSERT_TRUE(bad.violation);
      EXPECT_NE(bad.violation->summary.find("of given logits"), std::string::npos) << bad.violation->summary;
    }
  }
}

TEST(GivenLogits, HaveOneNaNWhereBitsAreClaimed) {
  const Fault payload = [](const RunRequest& q, const oracle::RouterInputs&, RunResult& r) {
    for_asked(q, r, [](float& x) { x = std::bit_cast<float>(kOtherNaN); });
  };
  EXPECT_TRUE(judged(contract_claims(), payload, "precision").violation);
  const LawOutcome bounded = judged(bounded_claims(), payload, "precision");
  EXPECT_FALSE(bounded.violation) << bounded.violation->summary;
  EXPECT_GE(bounded.relevant, 8);
}

TEST(GivenLogits, OfPaddingRowsAreNotWritten) {
  const Fault copied = [](const RunRequest& q, const oracle::RouterInputs&, RunResult& r) {
    if (q.want_logits && q.num_valid_rows == 7 && q.rows.size() == 8) r.outputs.router_logits[7 * 16] = 0.25f;
  };
  EXPECT_TRUE(judged(contract_claims(), copied, "padding").violation);
  EXPECT_FALSE(judged(contract_claims(), {}, "padding").violation);
}

}  // namespace
}  // namespace samebits::properties
