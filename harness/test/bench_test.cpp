// samebits bench: what is measured, the floor, the table, and what is refused. A CPU router stands for any.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "harness/bench/bench.h"
#include "harness/test/cli_child.h"

namespace samebits::harness {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(BenchRows, AreAddedAroundEveryRowCountAtWhichTheKernelChanges) {
  const auto name_of = [](std::int64_t rows) { return rows <= 16 ? "small" : rows <= 300 ? "middle" : "large"; };
  EXPECT_THAT(with_boundaries({1, 8, 256, 1024}, name_of),
              ElementsAre(1, 8, 15, 16, 17, 18, 256, 299, 300, 301, 302, 1024));
  EXPECT_THAT(with_boundaries({16, 17}, name_of), ElementsAre(16, 17));  // nothing outside of what was asked for
  EXPECT_THAT(with_boundaries({1, 2, 4}, name_of), ElementsAre(1, 2, 4));
}

bench::Measurement measurement(const std::string& name, const std::string& group, bool is_floor) {
  return {name, group, is_floor, "", {}};
}

TEST(BenchFilter, KeepsTheFloorsOfWhatItPicks) {
  const std::vector<bench::Measurement> all = {
      measurement("a/floor/1", "a", true), measurement("a/rows:1/ids", "a", false), measurement("b/floor/1", "b", true),
      measurement("b/rows:1/ids", "b", false)};
  const std::vector<bench::Measurement> picked = bench::filtered(all, "^a/rows");
  ASSERT_EQ(picked.size(), 2u);
  EXPECT_EQ(picked[0].name, "a/floor/1");
  EXPECT_EQ(picked[1].name, "a/rows:1/ids");
  EXPECT_EQ(bench::filtered(all, "").size(), 4u);
  EXPECT_TRUE(bench::filtered(all, "c").empty());
  EXPECT_THROW(bench::filtered(all, "("), std::invalid_argument);
}

TEST(BenchTable, HasColdWarmTheRatioToTheFloorAndWhatFailed) {
  Bench bench;
  bench.measurements = {measurement("s/floor/512x1", "s", true), measurement("s/rows:1/ids", "s", false),
                        measurement("s/rows:1/bookkeeping", "s", false), measurement("s/rows:1/logits", "s", false),
                        measurement("s/rows:2/ids", "s", false)};
  bench.cells = {{"s", 1, "ids", "s/rows:1/ids"},
                 {"s", 1, "logits", "s/rows:1/logits"},
                 {"s", 1, "bookkeeping", "s/rows:1/bookkeeping"},
                 {"s", 2, "ids", "s/rows:2/ids"}};
  const std::string text = bench_table(bench,
                                       {{"s/floor/512x1", "read", "", 2.0, 1.0, {{"warm_us", 1.5}}},
                                        {"s/rows:1/ids", "cuda/decode", "", 5.0, 2.5, {{"warm_us", 4.0}}},
                                        {"s/rows:1/logits", "cuda/decode", "", 5.0, 2.5, {{"warm_us", 4.0}}},
                                        {"s/rows:1/bookkeeping", "cuda/fused", "", 6.0, 3.0, {{"warm_us", 5.0}}},
                                        {"s/rows:2/ids", "", "CUPTI returned 2 marks of 3", 0, 0, {}}},
                                       false);
  EXPECT_THAT(text, HasSubstr("floor (one read of the weights) 2.00 / 1.50"));
  EXPECT_THAT(text, HasSubstr("5.00 / 4.00 (2.50x)"));
  EXPECT_THAT(text, HasSubstr("cuda/decode, cuda/fused\n"));  // each once
  EXPECT_THAT(text, HasSubstr("failed: s/rows:2/ids: CUPTI returned 2 marks of 3"));
}

class BenchProgram : public SmallSpec {};

TEST_F(BenchProgram, TimesTheEmbeddedRouterAndWritesGoogleBenchmarksJson) {
  const ChildResult result = run({"bench", "--backend", "cpu", "--spec", "small.yaml", "--rows", "1,3", "--outputs",
                                  "ids,given", "--repetitions", "3", "--json", "bench.json", "--progress", "none"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("rows/s"));
  const json root = json::parse(content_of(folder_ / "bench.json"));
  int medians = 0;
  for (const json& benchmark : root["benchmarks"]) {
    if (benchmark["aggregate_name"] != "median") continue;
    ++medians;
    EXPECT_GT(benchmark["real_time"].get<double>(), 0) << benchmark;
    EXPECT_EQ(benchmark["time_unit"], "us");
  }
  EXPECT_EQ(medians, 2 * 3);  // two row counts; ids, given logits, the oracle
  EXPECT_EQ(root["context"]["repetitions"], "3");
}

TEST_F(BenchProgram, TimesAChangedSpecAndSaysSo) {
  const std::vector<std::string> call = {"bench",  "--backend",  "cpu",       "--spec", "glm-5.3-flash",
                                         "--rows", "1",          "--outputs", "ids",    "--repetitions",
                                         "3",      "--progress", "none"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), call.begin(), call.end());
    return run(more);
  };
  const std::vector<std::string> small = {"--set", "shape.hidden_size=32", "--set", "shape.num_experts=16"};
  std::vector<std::string> changes = small;
  changes.insert(changes.end(), {"--variant", "bf16_bias", "--json", "bench.json"});
  const ChildResult result = with(changes);
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("variant: bf16_bias\nset: shape.hidden_size=32, shape.num_experts=16\n"));
  EXPECT_EQ(json::parse(content_of(folder_ / "bench.json"))["context"]["variant"], "bf16_bias");
  // The change reaches the router: there are fewer experts than it must choose.
  EXPECT_EQ(with({"--set", "shape.hidden_size=32", "--set", "shape.num_experts=4"}).exit_code, 2);
}

TEST_F(BenchProgram, TimesALayer) {
  const ChildResult result =
      run({"bench", "--backend", "cpu", "--spec", "deepseek-v4.1-flash", "--layer", "draft", "--set",
           "shape.hidden_size=32", "--rows", "1", "--outputs", "ids", "--repetitions", "3", "--progress", "none"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("layer: draft"));
}

TEST_F(BenchProgram, RefusesWhatItCannotDo) {
  const std::vector<std::vector<std::string>> usage = {
      {"bench"},
      {"bench", "--backend", "mutant:bf16_bias"},
      {"bench", "--backend", "cpu", "--rows", "0"},
      {"bench", "--backend", "cpu", "--outputs", "sums"},
      {"bench", "--backend", "cpu", "--repetitions", "2"},
      {"bench", "--backend", "cpu", "--filter", "("},
      {"bench", "--backend", "cpu", "--spec", "no-such-spec"},
      {"bench", "--backend", "cpu", "--variant", "bf16_bias"},
      {"bench", "--backend", "cpu", "--layer", "draft"},
      {"bench", "--backend", "cpu", "--set", "top_k"},
      {"bench", "--backend", "cpu", "--spec", "glm-5.3-flash", "--variant", "no-such-variant"}};
  for (const std::vector<std::string>& words : usage) {
    const ChildResult result = run(words);
    EXPECT_EQ(result.exit_code, 2) << words.back() << result.err;
    EXPECT_FALSE(result.err.empty());
  }
  EXPECT_EQ(run({"bench", "--plugin", "./missing.so"}).exit_code, 3);
  const ChildResult nothing = run({"bench", "--backend", "cpu", "--spec", "small.yaml", "--filter", "no-such-name"});
  EXPECT_EQ(nothing.exit_code, 4);
  EXPECT_THAT(nothing.err, HasSubstr("no name matches --filter"));
}

}  // namespace
}  // namespace samebits::harness
