// The main job from outside: verdicts, JSON, REPRO lines, gen | run | check, Ctrl-C.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "harness/test/cli_child.h"

namespace samebits::harness {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class Cli : public SmallSpec {
 protected:
  json report(const std::string& name) const { return json::parse(content_of(folder_ / name)); }
  std::vector<std::string> fuzz(const std::string& backend, const std::string& cases) const {
    return {"fuzz", "--spec", "small.yaml",  "--backend",  backend, "--cases",
            cases,  "--json", "report.json", "--progress", "none"};
  }
};

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream stream(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST_F(Cli, ACleanRouterPassesAndTheJsonSaysWhatWasTested) {
  const ChildResult result = run(fuzz("cpu", "40"));
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_LE(lines_of(result.out).size(), 40u);
  EXPECT_THAT(result.out, HasSubstr("batch_invariance"));
  EXPECT_THAT(result.out, HasSubstr("A pass means"));
  EXPECT_THAT(result.err, Not(HasSubstr("fuzz")));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "samebits-failures")) << "nothing failed, so nothing stays";
  const json root = report("report.json");
  EXPECT_EQ(root["schema_version"], 1);
  EXPECT_EQ(root["command"], "fuzz");
  EXPECT_EQ(root["spec"], "small.yaml");
  EXPECT_EQ(root["backend"], "cpu");
  EXPECT_EQ(root["claims"]["arithmetic"], "tc256");
  EXPECT_EQ(root["seed"], 1);
  EXPECT_EQ(root["cases"], 40);
  EXPECT_GT(root["rows"], 40);
  EXPECT_EQ(root["interrupted"], false);
  EXPECT_EQ(root["exit_code"], 0);
  EXPECT_EQ(root["shapes"]["hidden_size"]["max"], 64);
  EXPECT_GE(root["shapes"]["num_experts"]["max"], 8);
  EXPECT_GE(root["shapes"]["num_tokens"]["max"], 17);
  EXPECT_GE(root["hazards"].size(), 3u);
  EXPECT_THAT(result.out, HasSubstr("\nfamilies  "));
  EXPECT_EQ(static_cast<int>(root["families"]["stage full"]) + static_cast<int>(root["families"]["stage from_logits"]),
            40);
  EXPECT_GT(root["families"]["hidden order_sensitive"], 0);
  EXPECT_TRUE(root["failures"].empty());
  for (const char* law :
       {"unique_in_range", "selection", "order", "weights", "sum", "batch_invariance", "run_to_run"}) {
    const json& entry = root["laws"][law];
    EXPECT_EQ(entry["verdict"], "pass") << law;
    EXPECT_EQ(entry["applicable"], true) << law;
    EXPECT_GT(entry["relevant"], 0) << law;
    EXPECT_GT(entry["cases"], 0) << law;
    EXPECT_EQ(entry["failed"], 0) << law;
  }
}

TEST_F(Cli, AFaultIsNamedShrunkAndItsReproLineWorks) {
  const ChildResult result = run(fuzz("mutant:row_dependent_split", "40"));
  EXPECT_EQ(result.exit_code, 1) << result.out << result.err;
  EXPECT_LE(lines_of(result.out).size(), 40u);
  const json root = report("report.json");
  EXPECT_EQ(root["laws"]["batch_invariance"]["verdict"], "fail");
  std::string case_file;
  for (const json& failure : root["failures"]) {
    EXPECT_TRUE(std::filesystem::exists(folder_ / std::string(failure["case_file"])));
    if (failure["law"] == "batch_invariance") {
      case_file = failure["case_file"];
      EXPECT_THAT(failure["notes"].front(), HasSubstr("rows agree for T <= 16, differ from 17"));
      EXPECT_THAT(result.out, HasSubstr("rows agree for T <= 16, differ from 17"));
      EXPECT_GT(failure["shrink_evaluations"], 0);
    }
  }
  ASSERT_THAT(case_file, HasSubstr("samebits-failures/batch_invariance-"));

  int repro_lines = 0;
  for (const std::string& line : lines_of(result.out)) {
    const std::string label = "REPRO: ";
    if (!line.starts_with(label)) continue;
    ++repro_lines;
    const std::string command =
        "cd '" + folder_.path().string() + "' && " + line.substr(label.size()) + " >replay.txt 2>&1";
    const int status = std::system(command.c_str());
    EXPECT_EQ(WEXITSTATUS(status), 1) << line << "\n" << content_of(folder_ / "replay.txt");
  }
  EXPECT_GE(repro_lines, 1);
  // The router without the fault is clean on the same case.
  EXPECT_EQ(run({"replay", "--case", case_file, "--backend", "cpu"}).exit_code, 0);
  const ChildResult explained = run({"explain", "--case", case_file, "--backend", "mutant:row_dependent_split"});
  EXPECT_EQ(explained.exit_code, 0);
  EXPECT_THAT(explained.out, HasSubstr("breaks batch_invariance"));
  EXPECT_THAT(explained.out, HasSubstr("returned this row in 2 forms:"));
  EXPECT_THAT(explained.out, HasSubstr("its logits are sums as tc256"));
  EXPECT_THAT(explained.out, HasSubstr("the number of rows decides: no row count has two of these forms"));
}

TEST_F(Cli, GenRunCheckGiveTheVerdictsOfFuzz) {
  for (const char* backend : {"cpu", "mutant:ties_to_higher_id"}) {
    std::filesystem::remove_all(folder_ / "c");
    std::filesystem::remove_all(folder_ / "r");
    std::vector<std::string> arguments = fuzz(backend, "30");
    arguments.insert(arguments.end(), {"--seed", "3", "--no-shrink", "--no-known-cases"});
    const ChildResult fuzzed = run(arguments);
    ASSERT_EQ(run({"gen", "--spec", "small.yaml", "--seed", "3", "--cases", "30", "--out", "c"}).exit_code, 0);
    const ChildResult ran = run({"run", "--cases", "c", "--backend", backend, "--out", "r"});
    ASSERT_EQ(ran.exit_code, 0) << ran.err;
    const ChildResult checked = run({"check", "--cases", "c", "--results", "r", "--json", "check.json"});
    EXPECT_EQ(checked.exit_code, fuzzed.exit_code) << checked.out << fuzzed.out << checked.err;
    EXPECT_EQ(checked.exit_code, std::string(backend) == "cpu" ? 0 : 1);
    const json a = report("report.json"), b = report("check.json");
    for (const char* field : {"laws", "cases", "rows", "shapes", "hazards", "seed", "claims", "exit_code"}) {
      EXPECT_EQ(a[field], b[field]) << field;
    }
    ASSERT_EQ(a["failures"].size(), b["failures"].size());
    for (std::size_t i = 0; i < a["failures"].size(); ++i) {
      for (const char* field : {"law", "summary", "case_index", "observed", "expected"}) {
        EXPECT_EQ(a["failures"][i][field], b["failures"][i][field]);
      }
    }
  }
}

TEST_F(Cli, ShardsTogetherAreTheWholeRun) {
  std::int64_t rows = 0;
  for (const char* shard : {"0/2", "1/2"}) {
    std::vector<std::string> arguments = fuzz("cpu", "11");
    arguments.insert(arguments.end(), {"--shard", shard});
    run(arguments);
    EXPECT_EQ(report("report.json")["cases"], std::string(shard) == "0/2" ? 6 : 5);
    rows += report("report.json")["rows"].get<std::int64_t>();
  }
  run(fuzz("cpu", "11"));
  EXPECT_EQ(report("report.json")["rows"], rows);
}

TEST_F(Cli, TooLittleIsNoPass) {
  const ChildResult result = run(fuzz("cpu", "1"));
  EXPECT_EQ(result.exit_code, 4) << result.out;
  EXPECT_THAT(result.out, HasSubstr("inconclusive"));
}

TEST_F(Cli, InterruptedHalfWayItKeepsWhatItHas) {
  for (const int signal : {SIGINT, SIGTERM}) {
    std::filesystem::remove(folder_ / "report.json");
    // Many cases, so that only the signal can end the run.
    Child child(folder_, {"fuzz", "--spec", "small.yaml", "--backend", "cpu", "--cases", "100000000", "--json",
                          "report.json", "--progress", "plain"});
    ASSERT_TRUE(child.wait_for_stderr("fuzz small.yaml on cpu"));
    child.interrupt(signal);
    const ChildResult result = child.wait();
    EXPECT_EQ(result.exit_code, 130) << result.err;
    EXPECT_THAT(result.out, HasSubstr("Interrupted"));
    const json root = report("report.json");
    EXPECT_EQ(root["interrupted"], true);
    EXPECT_EQ(root["exit_code"], 130);
  }
}

TEST_F(Cli, ARunOverAllSpecsThatEndsEarlyIsNoPassAndMeetsOthersWithAnotherSeed) {
  std::set<std::string> met[2];
  for (const int seed : {1, 2}) {
    const ChildResult result =
        run({"fuzz", "--all-specs", "--backend", "cpu", "--rows", "300", "--set", "shape.hidden_size=64", "--seed",
             std::to_string(seed), "--no-known-cases", "--json", "report.json", "--progress", "none"});
    EXPECT_EQ(result.exit_code, 4) << result.out << result.err;
    const json root = report("report.json");
    EXPECT_GT(root["specs_not_met"].size(), 6u);
    EXPECT_THAT(result.out, HasSubstr(" NOT met: " + std::string(root["specs_not_met"][0]) + ", "));
    for (const json& spec : root["specs"]) {
      if (spec["cases"] > 0) met[seed - 1].insert(std::string(spec["spec"]) + std::string(spec["layer"]));
    }
  }
  for (const std::string& spec : met[0]) EXPECT_FALSE(met[1].contains(spec)) << spec;
}

TEST_F(Cli, KnownAnswersAreALawLikeOthers) {
  EXPECT_THAT(run({"list", "laws"}).out, HasSubstr("\nknown_answer "));
  const auto fuzz_laws = [&](const std::string& backend, const std::string& laws) {
    std::vector<std::string> arguments = fuzz(backend, "40");
    arguments.insert(arguments.end(), {"--laws", laws, "--no-shrink"});
    return run(arguments);
  };
  const ChildResult clean = fuzz_laws("cpu", "known_answer");
  EXPECT_EQ(clean.exit_code, 0) << clean.out << clean.err;
  EXPECT_EQ(report("report.json")["cases"], 0);
  EXPECT_EQ(report("report.json")["laws"].size(), 1u);
  const ChildResult faulty = fuzz_laws("mutant:ties_to_higher_id", "known_answer");
  EXPECT_EQ(faulty.exit_code, 1) << faulty.out;
  EXPECT_THAT(faulty.out, HasSubstr("\n  reproduced by: ties to the higher id\n"));
  EXPECT_THAT(faulty.out, HasSubstr("refuted here:  arithmetic tc256 (selection)"));
  EXPECT_EQ(fuzz_laws("mutant:ties_to_higher_id", "known_answer,weights").exit_code, 1);
  EXPECT_EQ(fuzz_laws("mutant:ties_to_higher_id", "weights").exit_code, 0) << "which is not asked for answers";
  const std::string file = std::string(SAMEBITS_SOURCE_DIR) + "/fixtures/cases/all_keys_equal.yaml";
  const ChildResult replayed =
      run({"replay", "--case", file, "--backend", "mutant:ties_to_higher_id", "--laws", "known_answer"});
  EXPECT_EQ(replayed.exit_code, 1) << replayed.out << replayed.err;
  EXPECT_THAT(replayed.out, HasSubstr("\n  reproduced by: ties to the higher id\n"));
  EXPECT_THAT(replayed.out, HasSubstr("the case above shows it, not every fault it has"));
  const ChildResult swept =
      run({"sweep", "--spec", "small.yaml", "--backend", "cpu", "--laws", "known_answer", "--rows", "2"});
  EXPECT_EQ(swept.exit_code, 2);
  EXPECT_THAT(swept.err, HasSubstr("the cases of a sweep state no answers"));
}

TEST_F(Cli, ShrinkWritesACaseThatStillFails) {
  run({"fuzz", "--spec", "small.yaml", "--backend", "mutant:ties_to_higher_id", "--cases", "40", "--no-shrink",
       "--no-known-cases", "--fail-fast", "--json", "report.json"});
  const std::string file = report("report.json")["failures"].at(0)["case_file"];
  const ChildResult shrunk =
      run({"shrink", "--case", file, "--backend", "mutant:ties_to_higher_id", "--out", "tiny.yaml"});
  EXPECT_EQ(shrunk.exit_code, 0) << shrunk.err;
  EXPECT_THAT(shrunk.out, HasSubstr("REPRO: "));
  EXPECT_EQ(run({"replay", "--case", "tiny.yaml", "--backend", "mutant:ties_to_higher_id"}).exit_code, 1);
  EXPECT_EQ(run({"replay", "--case", "tiny.yaml", "--backend", "cpu"}).exit_code, 0);
  EXPECT_EQ(run({"shrink", "--case", file, "--backend", "cpu", "--out", "tiny2.yaml"}).exit_code, 4);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "tiny2.yaml"));
}

TEST_F(Cli, ReplayJudgesTheStatedAnswer) {
  const std::string text =
      "samebits_case: 1\nspec: small.yaml\ntensors:\n"
      "  router_logits: {dtype: fp32, shape: [1, 8], values: [[0, 1, 2, 3, 4, 5, 6, 7]]}\n"
      "  selection_bias: {dtype: fp32, shape: [8], values: [0, 0, 0, 0, 0, 0, 0, 0]}\n"
      "expected:\n  source: a test\n  rows: [{row: 0, topk_ids: [7, ";
  folder_.write("right.yaml", text + "6]}]\n");
  folder_.write("wrong.yaml", text + "5]}]\n");
  EXPECT_EQ(run({"replay", "--case", "right.yaml", "--backend", "cpu"}).exit_code, 0);
  const ChildResult wrong = run({"replay", "--case", "wrong.yaml", "--backend", "cpu"});
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_THAT(wrong.out, HasSubstr("FAILED known_answer"));
}

TEST_F(Cli, ACaseCanBeAskedOfAChangedSpec) {
  const std::string file = std::string(SAMEBITS_SOURCE_DIR) + "/fixtures/cases/bias_held_in_bf16.yaml";
  EXPECT_THAT(run({"explain", "--case", file}).out, HasSubstr("answer: ids 7, 6"));
  const ChildResult explained = run({"explain", "--case", file, "--set", "selection.bias=bf16"});
  EXPECT_THAT(explained.out, HasSubstr("changed: selection.bias=bf16"));
  EXPECT_THAT(explained.out, HasSubstr("answer: ids 0, 1"));
  // The router with the fault is right for the changed spec, where the answer of the file no longer counts.
  EXPECT_EQ(run({"replay", "--case", file, "--backend", "mutant:bf16_bias"}).exit_code, 1);
  EXPECT_EQ(run({"replay", "--case", file, "--backend", "mutant:bf16_bias", "--set", "selection.bias=bf16"}).exit_code,
            0);
  EXPECT_EQ(run({"replay", "--case", file, "--backend", "cpu", "--set", "selection.bias=none"}).exit_code, 0);
  const ChildResult refused = run({"explain", "--case", file, "--set", "weights.per_expert_scale=true"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("needs the tensor per_expert_scale"));
}

TEST_F(Cli, WhatShowPrintsIsASpecAgain) {
  const ChildResult shown = run({"show", "--spec", "small.yaml", "--set", "shape.top_k=3"});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("top_k: 3"));
  EXPECT_THAT(shown.out, testing::StartsWith("# small.yaml, shape.top_k=3\n"));
  folder_.write("shown.yaml", shown.out);
  const std::string again = run({"show", "--spec", "shown.yaml"}).out;
  EXPECT_EQ(again.substr(again.find('\n')), shown.out.substr(shown.out.find('\n')));
}

TEST_F(Cli, ListsAreNotEmpty) {
  EXPECT_THAT(run({"list", "specs"}).out, HasSubstr("glm-5.3-flash"));
  EXPECT_THAT(run({"list", "backends"}).out, HasSubstr("mutant:row_dependent_split"));
  EXPECT_THAT(run({"list", "laws"}).out, HasSubstr("batch_invariance"));
  EXPECT_THAT(run({"list", "hazards"}).out, HasSubstr("ties_across_cut"));
  EXPECT_THAT(run({"list", "fields"}).out, HasSubstr("selection.bias"));
}

}  // namespace
}  // namespace samebits::harness
