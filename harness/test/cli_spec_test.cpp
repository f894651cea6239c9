// Specs on the command line: layers, a hidden size that nobody knows, what is refused, and results that are missing.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "harness/test/cli_child.h"

namespace samebits::harness {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class CliSpec : public SmallSpec {
 protected:
  CliSpec() {
    folder_.write("unknown.yaml", "spec_version: 1\nname: unknown\nshape: {num_experts: 4, top_k: 2}\n");
    folder_.write("table.yaml",
                  "spec_version: 1\n"
                  "name: table\n"
                  "shape: {hidden_size: 64, num_experts: 8, top_k: 2}\n"
                  "score: {func: sigmoid}\n"
                  "hash: {layers: [0], vocab_size: 40, table_dtype: int64}\n"
                  "layer_overrides:\n"
                  "- layers: [0]\n"
                  "  set: {selection.method: hash_table}\n"
                  "- layers: draft\n"
                  "  set: {score.func: softmax}\n");
  }
  ChildResult fuzz(const std::string& spec, std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {"fuzz", "--spec", spec,          "--backend",  "cpu", "--cases",
                                          "24",   "--json", "report.json", "--progress", "none"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  json report() const { return json::parse(content_of(folder_ / "report.json")); }
};

TEST_F(CliSpec, AnUnknownHiddenSizeIsAssumedAndTold) {
  const std::string note = "shape.hidden_size is not known and taken as 4096";
  const ChildResult assumed = fuzz("unknown.yaml");
  EXPECT_EQ(assumed.exit_code, 0) << assumed.out << assumed.err;
  EXPECT_THAT(assumed.err, HasSubstr("spec unknown.yaml: " + note));
  EXPECT_THAT(assumed.out, HasSubstr("note      " + note));
  EXPECT_THAT(report()["notes"].at(0).get<std::string>(), HasSubstr(note));
  EXPECT_EQ(report()["shapes"]["hidden_size"]["max"], 4096);

  const ChildResult given = fuzz("unknown.yaml", {"--set", "shape.hidden_size=64"});
  EXPECT_EQ(given.exit_code, 0) << given.out << given.err;
  EXPECT_THAT(given.err, IsEmpty());
  EXPECT_TRUE(report()["notes"].empty());
  EXPECT_EQ(report()["shapes"]["hidden_size"]["max"], 64);

  EXPECT_THAT(run({"gen", "--spec", "unknown.yaml", "--cases", "2", "--out", "c"}).err, HasSubstr(note));
  EXPECT_EQ(run({"run", "--cases", "c", "--backend", "cpu", "--out", "r"}).exit_code, 0);
}

TEST_F(CliSpec, GivenLogitsNeedNoHiddenSize) {
  folder_.write("case.yaml",
                "samebits_case: 1\nspec: ./unknown.yaml\ntensors:\n"
                "  router_logits: {dtype: fp32, shape: [1, 4], values: [[0, 1, 2, 3]]}\n"
                "expected:\n  source: a test\n  rows: [{row: 0, topk_ids: [3, 2]}]\n");
  const ChildResult result = run({"replay", "--case", "case.yaml", "--backend", "cpu"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_EQ(run({"explain", "--case", "case.yaml"}).exit_code, 0);
}

TEST_F(CliSpec, ALayerByNumberAndByName) {
  const ChildResult hashed = fuzz("table.yaml", {"--layer", "0"});
  EXPECT_EQ(hashed.exit_code, 0) << hashed.out << hashed.err;
  EXPECT_THAT(hashed.out, HasSubstr("note      layer 0\n"));
  EXPECT_EQ(report()["notes"].at(0), "layer 0");
  EXPECT_EQ(report()["laws"]["hash_routing"]["verdict"], "pass");
  EXPECT_EQ(fuzz("table.yaml").exit_code, 0);
  EXPECT_EQ(report()["laws"]["hash_routing"]["applicable"], false);
  EXPECT_THAT(run({"show", "--spec", "table.yaml", "--layer", "draft"}).out, Not(HasSubstr("sigmoid")));
  EXPECT_EQ(run({"show", "--spec", "table.yaml", "--layer", "drift"}).exit_code, 2);
}

TEST_F(CliSpec, ACaseNamesTheLayerOfItsSpec) {
  ASSERT_EQ(run({"gen", "--spec", "table.yaml", "--layer", "0", "--cases", "1", "--out", "c"}).exit_code, 0);
  EXPECT_THAT(content_of(folder_ / "c/case-000000.yaml"),
              HasSubstr("origin:\n  spec: \"table.yaml\"\n  layer: \"0\"\n"));
  EXPECT_THAT(run({"explain", "--case", "c/case-000000.yaml"}).out, HasSubstr("spec table.yaml, layer 0, T="));
  // A failure keeps it.
  const ChildResult failed = run({"fuzz", "--spec", "table.yaml", "--layer", "draft", "--backend",
                                  "mutant:ties_to_higher_id", "--cases", "24", "--laws", "selection"});
  ASSERT_EQ(failed.exit_code, 1) << failed.err;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "samebits-failures")) {
    EXPECT_THAT(content_of(entry.path()), HasSubstr("  layer: \"draft\"\n"));
  }
}

TEST_F(CliSpec, ListsFitTheirNames) {
  for (const char* what : {"specs", "backends", "hazards", "fields", "arithmetics"}) {
    const ChildResult result = run({"list", what});
    EXPECT_EQ(result.exit_code, 0);
    std::istringstream lines(result.out);
    std::size_t column = 0, count = 0;
    for (std::string line; std::getline(lines, line); ++count) {
      const std::size_t text = line.find_first_not_of(' ', line.find("  "));
      ASSERT_NE(text, std::string::npos) << line;
      if (count == 0) column = text;
      EXPECT_EQ(text, column) << line;
    }
    EXPECT_GT(count, 10u) << what;
  }
  EXPECT_THAT(run({"list", "hazards"}).out,
              HasSubstr("non_finite_bias             from hidden states, or given logits with a selection bias\n"));
}

TEST_F(CliSpec, GenRunCheckOfAHashLayer) {
  for (const bool with_data : {true, false}) {
    std::filesystem::remove_all(folder_ / "c");
    std::vector<std::string> gen = {"gen", "--spec", "table.yaml", "--layer", "0", "--cases", "24", "--out", "c"};
    if (with_data) gen.emplace_back("--with-data");
    ASSERT_EQ(run(gen).exit_code, 0);
    ASSERT_EQ(run({"run", "--cases", "c", "--backend", "cpu", "--out", "r"}).exit_code, 0);
    const ChildResult checked = run({"check", "--cases", "c", "--results", "r"});
    EXPECT_EQ(checked.exit_code, 0) << checked.out << checked.err;
  }
}

TEST_F(CliSpec, WhatCannotBeRunIsRefusedWithTheReason) {
  const ChildResult refused = fuzz("nllb-moe-54b");
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("cannot be run: refused by design: capacity: batch_dependent"));
  EXPECT_THAT(run({"list", "specs"}).out, AllOf(HasSubstr("cannot be run: refused by design"), HasSubstr("grok-2")));
}

TEST_F(CliSpec, AllMissingResultsAreNamed) {
  ASSERT_EQ(run({"gen", "--spec", "small.yaml", "--cases", "3", "--out", "c"}).exit_code, 0);
  ASSERT_EQ(run({"run", "--cases", "c", "--backend", "cpu", "--out", "r"}).exit_code, 0);
  std::filesystem::remove(folder_ / "r/case-000000.safetensors");
  std::filesystem::remove(folder_ / "r/case-000002.safetensors");
  const ChildResult result = run({"check", "--cases", "c", "--results", "r"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("2 of 3 cases have no result"), HasSubstr("r/case-000000.safetensors"),
                                HasSubstr("r/case-000002.safetensors"), Not(HasSubstr("case-000001"))));
}

}  // namespace
}  // namespace samebits::harness
