// Both oracles on the same rows. The report is printed, so that what lies inside a bound is seen.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <string>

#include "oracle/second/test/compare/campaign.h"
#include "oracle/second/test/compare/rules.h"

namespace samebits::second {
namespace {

constexpr std::int64_t kRows = 100000;
constexpr std::int64_t kShards = 8;
constexpr std::int64_t kParts = 4;  // of the specs at full size

void expect_no_difference(const Tally& tally) {
  std::cout << tally.text();
  EXPECT_EQ(tally.num_different(), 0);
  for (const std::string& text : tally.differences) ADD_FAILURE() << text;
}

std::int64_t count(const Tally& tally, const std::string& what, Outcome outcome) {
  const auto at = tally.counts.find(what);
  return at == tally.counts.end() ? 0 : at->second[static_cast<std::size_t>(outcome)];
}

class ReducedRowsShard : public testing::TestWithParam<std::int64_t> {};

TEST_P(ReducedRowsShard, HaveTheSameAnswers) {
  const std::vector<NamedSpec> specs = all_specs();
  const FirstOracle first;
  Tally tally;
  const auto [begin, end] = shard_range(kRows / kRowsOfCase, GetParam(), kShards);
  for (std::int64_t i = begin; i < end; ++i) tally.add(compare(first, reduced_case(specs, 1, i)));
  expect_no_difference(tally);
  EXPECT_GE(tally.rows, kRows / kShards - kRowsOfCase);
  // A bound that decides nothing would compare nothing.
  EXPECT_GT(count(tally, "published: set", Outcome::kEqual), tally.rows / 2);
  EXPECT_GT(count(tally, "published: weights", Outcome::kEqual), tally.rows / 2);
  for (const char* what :
       {"bits: input of the gate", "bits: logits", "bits: scores", "bits: keys", "bits: group scores", "bits: ids",
        "bits: weights", "bits: bookkeeping", "published: input"}) {
    EXPECT_GT(count(tally, what, Outcome::kEqual), 0) << what << " was never compared";
  }
  EXPECT_GT(tally.rows_without_answer, 0);
}

// Each special rule of the contract is met, and more often than once.
TEST(ReducedRows, MeetEveryRule) {
  const std::vector<NamedSpec> specs = all_specs();
  const FirstOracle first;
  Tally tally;
  for (std::int64_t i = 0; i < 3000; ++i) tally.add(compare(first, reduced_case(specs, 4, i)));
  expect_no_difference(tally);
  for (const char* rule : all_rules()) EXPECT_GE(tally.rules[rule], 5) << rule;
}

INSTANTIATE_TEST_SUITE_P(Shard, ReducedRowsShard, testing::Range<std::int64_t>(0, kShards));

class FullSizeRows : public testing::TestWithParam<std::int64_t> {};

TEST_P(FullSizeRows, HaveTheSameAnswers) {
  const std::vector<NamedSpec> specs = all_specs();
  const FirstOracle first;
  Tally tally;
  const auto [begin, end] = shard_range(std::ssize(specs), GetParam(), kParts);
  for (std::int64_t i = begin; i < end; ++i) {
    tally.add(compare(first, full_size_case(specs[static_cast<std::size_t>(i)], static_cast<std::uint64_t>(i), 20)));
  }
  expect_no_difference(tally);
  EXPECT_GT(count(tally, "published: set", Outcome::kEqual), tally.rows * 3 / 4);
}

INSTANTIATE_TEST_SUITE_P(Part, FullSizeRows, testing::Range<std::int64_t>(0, kParts));

TEST(ManyRows, HaveTheSameAnswers) {
  if (std::getenv("SAMEBITS_EXHAUSTIVE") == nullptr) {
    GTEST_SKIP() << "10^7 rows, about 15 minutes; set SAMEBITS_EXHAUSTIVE=1, or run second_compare --cases 10000000";
  }
  const std::vector<NamedSpec> specs = all_specs();
  const FirstOracle first;
  Tally tally;
  for (std::int64_t i = 0; i < 10'000'000 / kRowsOfCase; ++i) tally.add(compare(first, reduced_case(specs, 2, i)));
  expect_no_difference(tally);
  EXPECT_EQ(tally.rows, 10'000'000);
}

}  // namespace
}  // namespace samebits::second
