// samebits sweep: row counts where kernels change, every input of a kind, and the search for boundaries.
#include <gmock/gmock.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "harness/test/cli_child.h"

namespace samebits::harness {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class Sweep : public SmallSpec {
 protected:
  ChildResult sweep(const std::string& backend, const std::string& rows, const std::string& seed = "1") const {
    return run({"sweep", "--spec", "small.yaml", "--backend", backend, "--rows", rows, "--seed", seed, "--json",
                "report.json", "--progress", "none"});
  }
  json report() const { return json::parse(content_of(folder_ / "report.json")); }
};

TEST_F(Sweep, ACleanRouterPasses) {
  for (const char* seed : {"1", "2"}) {
    const ChildResult result = sweep("cpu", "1025", seed);
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    const json root = report();
    EXPECT_EQ(root["command"], "sweep");
    EXPECT_EQ(root["rows"], 1025);
    EXPECT_EQ(root["shapes"]["num_tokens"]["max"], 1025);
    for (const char* law : {"batch_invariance", "precision", "selection", "weights", "bookkeeping", "non_finite"}) {
      EXPECT_EQ(root["laws"][law]["verdict"], "pass") << law;
    }
    // All row counts up to 1,025, and six without logits, each with all of its rows.
    EXPECT_EQ(root["laws"]["termination"]["relevant"], 45);
    EXPECT_EQ(root["laws"]["batch_invariance"]["relevant"], 7666);
  }
}

TEST_F(Sweep, ARouterWhoseBitsDependOnTheRowsIsFoundAndTheReproLineShowsIt) {
  const ChildResult result = sweep("mutant:row_dependent_split", "65");
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("FAILED batch_invariance"));
  EXPECT_THAT(result.out, HasSubstr("sweep --spec small.yaml --backend mutant:row_dependent_split --seed 1 --rows 65"));
  EXPECT_EQ(report()["laws"]["batch_invariance"]["verdict"], "fail");
}

TEST_F(Sweep, RowsOutOfRangeAreAUsageError) {
  for (const char* rows : {"0", "65538", "many"}) EXPECT_EQ(sweep("cpu", rows).exit_code, 2) << rows;
}

TEST_F(Sweep, BoundariesAreFoundToTheRow) {
  const auto boundaries = [&](const std::string& backend) {
    return run({"sweep", "--boundaries", "--spec", "small.yaml", "--backend", backend, "--rows", "200", "--json",
                "report.json", "--progress", "none"});
  };
  const ChildResult clean = boundaries("cpu");
  EXPECT_EQ(clean.exit_code, 0) << clean.out << clean.err;
  EXPECT_THAT(clean.out, HasSubstr("copies of it have the same bits at every number of rows, T = 1 .. 200"));
  EXPECT_THAT(clean.out, HasSubstr("\nrows a case:   1-33, 48, 63-65, 96, 127-129, 192, 200\n"));
  EXPECT_THAT(clean.out, HasSubstr("\nnot judged:    the 20 others of `list laws`\n"));
  EXPECT_EQ(report()["laws"]["batch_invariance"]["verdict"], "pass");

  const ChildResult split = boundaries("mutant:row_dependent_split");
  EXPECT_EQ(split.exit_code, 1) << split.out << split.err;
  EXPECT_THAT(split.out, HasSubstr("FAILED batch_invariance: row 0: rows agree for T <= 16, differ from 17"));
  EXPECT_THAT(split.out, HasSubstr("sweep --boundaries --spec small.yaml --backend mutant:row_dependent_split"));
}

class Exhaustive : public Sweep {
 protected:
  ChildResult sweep(const std::string& name, const std::string& backend, std::vector<std::string> more = {}) const {
    std::vector<std::string> words{"sweep",  "--exhaustive", name,         "--backend", backend,
                                   "--json", "report.json",  "--progress", "none"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  }
  void expect_clean(const std::string& name, std::int64_t rows) const {
    const ChildResult result = sweep(name, "cpu");
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    EXPECT_EQ(report()["rows"], rows);
    for (const char* law : {"termination", "buffers", "weights", "unique_in_range"}) {
      EXPECT_EQ(report()["laws"][law]["verdict"], "pass") << law;
    }
  }
};

// The routers of this program answer every input of a kind; the largest takes minutes.
TEST_F(Exhaustive, Counts) {
  expect_clean("counts", 61134);
  EXPECT_EQ(report()["laws"]["bookkeeping"]["verdict"], "pass");
}
TEST_F(Exhaustive, Bf16Values) {
  expect_clean("bf16_values", 65536 * 18);
}
TEST_F(Exhaustive, WeakOrders) {
  expect_clean("weak_orders", 1000842);
  EXPECT_EQ(report()["laws"]["selection"]["verdict"], "pass");
}
TEST_F(Exhaustive, TiedPairs) {
  expect_clean("tied_pairs", 4 * 41328);
  const json ties = {{"claim", "ties lowest_index"}, {"state", "verified"}, {"by", "selection"}};
  EXPECT_THAT(report()["claims_judged"], testing::Contains(ties));
  EXPECT_EQ(report()["laws"]["selection"]["verdict"], "pass");
}
TEST_F(Exhaustive, Flags) {
  if (std::getenv("SAMEBITS_EXHAUSTIVE") == nullptr) GTEST_SKIP() << "set SAMEBITS_EXHAUSTIVE=1 (half a minute of CPU)";
  expect_clean("flags", 1014624);
}
TEST_F(Exhaustive, TiedPairsOfTheLargestRouter) {
  if (std::getenv("SAMEBITS_EXHAUSTIVE") == nullptr) GTEST_SKIP() << "set SAMEBITS_EXHAUSTIVE=1 (four minutes of CPU)";
  const ChildResult result = sweep("tied_pairs", "cpu", {"--spec", "kimi-k3"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(report()["rows"], 4 * 400960);
}

TEST_F(Exhaustive, AFailingRowBecomesASmallCaseFileThatReplayShows) {
  const ChildResult result = sweep("tied_pairs", "mutant:ties_to_higher_id", {"--spec", "small.yaml"});
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("FAILED selection"));
  const json failure = report()["failures"][0];
  EXPECT_LE(failure["nonzero_numbers"], 3);
  const ChildResult replay = run({"replay", "--case", failure["case_file"], "--backend", "mutant:ties_to_higher_id"});
  EXPECT_EQ(replay.exit_code, 1) << replay.out << replay.err;
  EXPECT_EQ(run({"replay", "--case", failure["case_file"], "--backend", "cpu"}).exit_code, 0);
}

TEST_F(Exhaustive, WhatItCannotDoIsAUsageError) {
  EXPECT_THAT(sweep("tied_pair", "cpu").err, HasSubstr("tied_pairs"));
  EXPECT_EQ(sweep("tied_pair", "cpu").exit_code, 2);
  EXPECT_EQ(sweep("counts", "cpu", {"--spec", "small.yaml"}).exit_code, 2);
  EXPECT_EQ(sweep("counts", "cpu", {"--boundaries"}).exit_code, 2);
  EXPECT_EQ(run({"sweep", "--backend", "cpu"}).exit_code, 2);
  EXPECT_THAT(run({"list", "sweeps"}).out, HasSubstr("tied_pairs"));
}

}  // namespace
}  // namespace samebits::harness
