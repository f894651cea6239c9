// Intervals of a router with a declared error bound: tight enough to refuse what cannot be, wide enough for what can.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>

#include "laws_fake_router.h"
#include "properties/certificate.h"

namespace samebits::properties {
namespace {

using oracle::RouterSpec;

BoundedRow exact_row(const RouterSpec& spec, const std::vector<float>& logits, const std::vector<float>& bias,
                     TieRule tie_rule = TieRule::kLowestIndex) {
  oracle::LogitBounds bounds;
  bounds.lower.assign(logits.begin(), logits.end());
  bounds.upper = bounds.lower;
  return bound_row(spec, bounds, true, {.selection_bias = bias}, tie_rule);
}

RouterSpec spec_with(oracle::ScoreFunc func) {
  RouterSpec spec = small_spec();
  spec.score.func = func;
  return spec;
}

std::vector<float> ramp(float first, float step, std::size_t count = 16) {
  std::vector<float> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(first + step * static_cast<float>(i));
  return values;
}

TEST(ScoreBounds, HoldTheTrueScoreAndStayNarrow) {
  for (const float first : {-70.0f, -20.0f, -3.0f, 4.0f, 30.0f}) {
    const std::vector<float> logits = ramp(first, 0.37f);
    const std::vector<float> no_bias(16, 0.0f);
    double sum = 0.0;
    for (const float x : logits) sum += std::exp(static_cast<double>(x) - static_cast<double>(logits.back()));
    for (std::size_t e = 0; e < 16; ++e) {
      const auto x = static_cast<double>(logits[e]);
      const struct {
        oracle::ScoreFunc func;
        double truth;
      } cases[] = {
          {oracle::ScoreFunc::kSigmoid, 1.0 / (1.0 + std::exp(-x))},
          {oracle::ScoreFunc::kSqrtSoftplus, std::sqrt(std::log1p(std::exp(x)))},
          {oracle::ScoreFunc::kSoftmax, std::exp(x - static_cast<double>(logits.back())) / sum},
      };
      for (const auto& [func, truth] : cases) {
        const Interval bound = exact_row(spec_with(func), logits, no_bias).scores[e];
        EXPECT_TRUE(bound.contains(truth)) << static_cast<int>(func) << " of " << x;
        // Far from underflow. 1e-4: rounding to bf16 moves a score by up to 4e-3, so it shows.
        if (truth < 1e-30) continue;
        EXPECT_LT(bound.upper - bound.lower, 1e-4 * truth) << static_cast<int>(func) << " of " << x;
      }
    }
  }
}

TEST(KeyBounds, AreFp32ValuesAndMeetWhereTheBiasAbsorbsTheScore) {
  // The step of fp32 at 11.3 is 9.5e-7: scores between 1e-8 and 1e-7 all give the key 11.3.
  const BoundedRow row = exact_row(small_spec(), ramp(-18.0f, 0.1f), std::vector<float>(16, 11.3f));
  for (std::int64_t e = 0; e < 16; ++e) {
    const Interval& key = row.keys[static_cast<std::size_t>(e)];
    EXPECT_EQ(key.lower, static_cast<double>(static_cast<float>(key.lower)));
    EXPECT_EQ(key.lower, key.upper);
    EXPECT_TRUE(same_key_by_construction(row, 0, e));
  }
  const std::vector<std::int64_t> lowest = {0, 1, 2, 3};
  const std::vector<std::int64_t> highest = {15, 14, 13, 12};
  EXPECT_FALSE(selection_contradiction(small_spec(), row, lowest, TieRule::kLowestIndex));
  EXPECT_TRUE(selection_contradiction(small_spec(), row, highest, TieRule::kLowestIndex));
  EXPECT_FALSE(selection_contradiction(small_spec(), row, highest, TieRule::kAny));
}

TEST(SelectionCertificate, NearTiesAreFreeAndClearGapsAreNot) {
  std::vector<float> logits(16, -1.0f);
  logits[2] = logits[3] = logits[4] = 1.0f;
  logits[10] = 0.5f;
  logits[11] = std::nextafter(0.5f, 0.0f);  // one ulp below: an honest score function may tie or swap them
  logits[12] = 0.499f;
  const BoundedRow row = exact_row(small_spec(), logits, std::vector<float>(16, 0.0f));
  const auto refused = [&](std::int64_t last) {
    const std::vector<std::int64_t> ids = {2, 3, 4, last};
    return selection_contradiction(small_spec(), row, ids, TieRule::kLowestIndex).has_value();
  };
  EXPECT_FALSE(refused(10));
  EXPECT_FALSE(refused(11));
  EXPECT_TRUE(refused(12));
  EXPECT_TRUE(refused(0));
}

TEST(SelectionCertificate, EqualLogitsTieByConstruction) {
  std::vector<float> logits = ramp(-1.0f, 0.1f);
  logits[4] = logits[9] = 3.0f;
  const BoundedRow row = exact_row(small_spec(), logits, std::vector<float>(16, 0.0f));
  EXPECT_LT(row.keys[4].lower, row.keys[4].upper) << "known up to an error only";
  EXPECT_TRUE(same_key_by_construction(row, 4, 9));
  const std::vector<std::int64_t> right = {4, 9, 15, 14};
  const std::vector<std::int64_t> wrong = {9, 4, 15, 14};
  EXPECT_FALSE(order_contradiction(small_spec(), row, right, TieRule::kLowestIndex));
  EXPECT_TRUE(order_contradiction(small_spec(), row, wrong, TieRule::kLowestIndex));
  EXPECT_FALSE(order_contradiction(small_spec(), row, wrong, TieRule::kAny));
}

TEST(SelectionCertificate, GroupsThatAreCertainlyRejectedMayNotBeChosen) {
  // Best two: group 1 and 2 clearly first; group 0 has the best single expert, group 3 nothing.
  std::vector<float> logits(16, -3.0f);
  logits[0] = 2.0f;
  logits[4] = logits[5] = 1.5f;
  logits[8] = logits[9] = 1.4f;
  const BoundedRow row = exact_row(grouped_spec(), logits, std::vector<float>(16, 0.0f));
  EXPECT_EQ(row.group[0], GroupState::kRejected);
  EXPECT_EQ(row.group[4], GroupState::kKept);
  const std::vector<std::int64_t> right = {4, 5, 8, 9};
  const std::vector<std::int64_t> with_rejected = {0, 4, 5, 8};
  EXPECT_FALSE(selection_contradiction(grouped_spec(), row, right, TieRule::kLowestIndex));
  EXPECT_TRUE(selection_contradiction(grouped_spec(), row, with_rejected, TieRule::kLowestIndex));
}

TEST(SelectionCertificate, GroupsWithinTheErrorMayGoEitherWay) {
  std::vector<float> logits(16, -3.0f);
  logits[0] = logits[1] = 2.0f;
  logits[4] = logits[5] = 1.0f;
  logits[8] = 1.0f;
  logits[9] = std::nextafter(1.0f, 0.0f);
  const BoundedRow row = exact_row(grouped_spec(), logits, std::vector<float>(16, 0.0f));
  EXPECT_EQ(row.group[0], GroupState::kKept);
  EXPECT_EQ(row.group[4], GroupState::kPossiblyKept);
  EXPECT_EQ(row.group[8], GroupState::kPossiblyKept);
  EXPECT_EQ(row.group[12], GroupState::kRejected);
  for (const std::vector<std::int64_t>& ids : {std::vector<std::int64_t>{0, 1, 4, 5}, {0, 1, 8, 9}}) {
    EXPECT_FALSE(selection_contradiction(grouped_spec(), row, ids, TieRule::kLowestIndex));
  }
  const std::vector<std::int64_t> three_groups = {0, 1, 4, 8};
  EXPECT_TRUE(selection_contradiction(grouped_spec(), row, three_groups, TieRule::kLowestIndex));
  RouterSpec zero_mask = grouped_spec();
  zero_mask.selection.group_mask = oracle::GroupMask::kZero;
  const BoundedRow masked = exact_row(zero_mask, logits, std::vector<float>(16, 0.0f));
  EXPECT_EQ(masked.keys[12].lower, 0.0);
  EXPECT_EQ(masked.keys[12].upper, 0.0);
}

TEST(WeightBounds, HoldTheTrueWeightAndStayNarrow) {
  const std::vector<float> logits = ramp(-2.0f, 0.25f);
  const BoundedRow row = exact_row(small_spec(), logits, std::vector<float>(16, 11.5f));
  const std::vector<std::int64_t> ids = {15, 14, 13, 12};
  double sum = 0.0;
  for (const std::int64_t id : ids) {
    sum += 1.0 / (1.0 + std::exp(-static_cast<double>(logits[static_cast<std::size_t>(id)])));
  }
  const std::vector<Interval> bounds = weight_bounds(small_spec(), row, ids);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    const double s = 1.0 / (1.0 + std::exp(-static_cast<double>(logits[static_cast<std::size_t>(ids[i])])));
    EXPECT_TRUE(bounds[i].contains(2.5 * s / sum));
    EXPECT_LT(bounds[i].upper - bounds[i].lower, 1e-5);
  }
  const Interval total = weight_sum_bounds(small_spec(), row, ids);
  EXPECT_TRUE(total.contains(2.5));
  EXPECT_LT(total.upper - total.lower, 1e-5);
}

TEST(WeightBounds, VanishingScoresMayGiveZeroOrAnyShare) {
  const BoundedRow row = exact_row(small_spec(), std::vector<float>(16, -95.0f), std::vector<float>(16, 0.0f));
  const std::vector<std::int64_t> ids = {0, 1, 2, 3};
  for (const Interval& bound : weight_bounds(small_spec(), row, ids)) {
    EXPECT_TRUE(bound.contains(0.0));
    EXPECT_FALSE(bound.contains(0.1)) << "eps = 1e-20 is far above scores of 1e-41";
  }
}

TEST(BoundedRow, NonFiniteValuesAreNotJudged) {
  std::vector<float> logits(16, 0.0f);
  const std::vector<float> bias(16, 0.0f);
  EXPECT_TRUE(exact_row(small_spec(), logits, bias).judged);
  for (const float value : {INFINITY, -INFINITY, std::nanf("")}) {
    std::vector<float> bad = logits;
    bad[3] = value;
    EXPECT_FALSE(exact_row(small_spec(), bad, bias).judged);
    EXPECT_FALSE(exact_row(small_spec(), logits, bad).judged);
  }
}

}  // namespace
}  // namespace samebits::properties
