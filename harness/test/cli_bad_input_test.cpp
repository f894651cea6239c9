// Every kind of bad input: the exit code, and a message that says what to change.
#include <gmock/gmock.h>

#include "harness/test/cli_child.h"

namespace samebits::harness {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class BadInput : public SmallSpec {
 protected:
  void expect(int exit_code, const std::vector<std::string>& arguments, const std::string& message) const {
    const ChildResult result = run(arguments);
    EXPECT_EQ(result.exit_code, exit_code) << result.err;
    EXPECT_THAT(result.err, HasSubstr(message));
    EXPECT_THAT(result.out, IsEmpty()) << "errors belong on stderr";
  }
};

TEST_F(BadInput, CommandsAndOptionsThatDoNotExist) {
  expect(2, {"fuz"}, "did you mean fuzz");
  expect(2, {}, "subcommand");
  expect(2, {"fuzz", "--speck", "small.yaml"}, "unknown option \"--speck\"; did you mean --spec");
  expect(2, {"fuzz", "--backend", "cpu"}, "give --spec S");
  expect(2, {"fuzz", "--spec", "small.yaml"}, "give --backend NAME");
  expect(2, {"fuzz", "--spec", "small.yaml", "--backend", "cpu", "--plugin", "x.so"}, "excludes");
  expect(2, {"fuzz", "--spec", "small.yaml", "--backend", "cpu", "--cases", "0"}, "--cases");
  expect(2, {"fuzz", "--spec", "small.yaml", "--backend", "cpu", "--cases", "many"}, "--cases");
  expect(2, {"fuzz", "--spec", "small.yaml", "--backend", "cpu", "--time", "soon"}, "500ms, 60s, 5m or 1h");
  expect(2, {"fuzz", "--spec", "small.yaml", "--backend", "cpu", "--shard", "4/4"}, "0 <= I < N");
  expect(2, {"fuzz", "--spec", "small.yaml", "--backend", "cpu", "--progress", "loud"}, "--progress");
  expect(2, {"list", "routers"}, "specs");
}

TEST_F(BadInput, NumbersThatWouldWrapAreRefused) {
  const auto refused = [&](const char* option, const char* value, const char* range) {
    expect(2, {"fuzz", "--spec", "small.yaml", "--backend", "cpu", option, value},
           std::string(option) + ": found " + value + "; allowed: a whole number from " + range);
  };
  refused("--cases", "-1", "1 to");
  refused("--cases", "0", "1 to");
  refused("--cases", "1e3", "1 to");
  refused("--cases", "99999999999999999999", "1 to");
  refused("--seed", "-1", "0 to 18446744073709551615");
  refused("--seed", "18446744073709551616", "0 to 18446744073709551615");
  expect(2, {"show", "--spec", "small.yaml", "--layer", "-1"}, "layer: found -1; allowed: 0 ");
  expect(2, {"gen", "--spec", "small.yaml", "--out", "x", "--cases", "-1"}, "found -1; allowed");
  EXPECT_EQ(run({"fuzz", "--spec", "small.yaml", "--backend", "cpu", "--cases", "1", "--seed", "18446744073709551615"})
                .exit_code,
            4);
}

TEST_F(BadInput, AnEmptyValueIsNotAnOptionLeftOut) {
  for (const char* option : {"--json", "--time", "--cases", "--variant", "--corpus", "--laws"}) {
    const std::string message = std::string(option) + ": found an empty value";
    expect(2, {"fuzz", "--spec", "small.yaml", "--backend", "cpu", option, ""}, message);
    expect(2, {"fuzz", "--spec", "small.yaml", "--backend", "cpu", std::string(option) + "="}, message);
  }
}

TEST_F(BadInput, LostStandardOutputIsTold) {
  const auto status_of = [&](const std::string& arguments) {
    const std::string command =
        "cd '" + folder_.path().string() + "' && " SAMEBITS_PROGRAM " " + arguments + " 2>error.txt";
    return WEXITSTATUS(std::system(command.c_str()));
  };
  for (const char* arguments :
       {"list specs", "list laws", "--help", "fuzz --spec small.yaml --backend cpu --cases 40"}) {
    for (const char* lost : {" >/dev/full", " >&-"}) {
      EXPECT_EQ(status_of(arguments + std::string(lost)), 2) << arguments << lost;
      EXPECT_THAT(content_of(folder_ / "error.txt"), HasSubstr("standard output cannot be written")) << arguments;
    }
  }
  // The verdict says more.
  EXPECT_EQ(status_of("fuzz --spec small.yaml --backend mutant:ties_to_higher_id --cases 40 --no-shrink >/dev/full"),
            1);
  EXPECT_THAT(content_of(folder_ / "error.txt"), HasSubstr("standard output cannot be written"));
}

TEST_F(BadInput, AReportIsToldBeforeTheJsonFileThatCannotBeWritten) {
  const ChildResult fuzz = run({"fuzz", "--spec", "small.yaml", "--backend", "mutant:ties_to_higher_id", "--cases",
                                "40", "--no-shrink", "--json", "/dev/full"});
  EXPECT_EQ(fuzz.exit_code, 2) << fuzz.err;
  EXPECT_THAT(fuzz.err, HasSubstr("/dev/full: cannot write"));
  EXPECT_THAT(fuzz.out, HasSubstr("FAILED"));
  EXPECT_THAT(fuzz.out, HasSubstr("samebits-failures/selection-")) << "the case file that was written";
  const ChildResult mutants = run({"mutants", "--mutant", "ties_to_higher_id", "--seeds", "1", "--json", "/dev/full"});
  EXPECT_EQ(mutants.exit_code, 2) << mutants.err;
  EXPECT_THAT(mutants.out, HasSubstr("ties_to_higher_id"));
  for (const std::vector<std::string>& sweep :
       {std::vector<std::string>{"--rows", "17"}, {"--boundaries", "--rows", "17"}}) {
    std::vector<std::string> arguments = {"sweep", "--spec", "small.yaml", "--backend", "cpu", "--json", "/dev/full"};
    arguments.insert(arguments.end(), sweep.begin(), sweep.end());
    const ChildResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_THAT(result.out, HasSubstr("small")) << sweep.front();
  }
}

TEST_F(BadInput, NamesThatDoNotExist) {
  expect(2, {"fuzz", "--spec", "glm-5.3-flsh", "--backend", "cpu"}, "did you mean glm-5.3-flash");
  expect(2, {"fuzz", "--spec", "small.yaml", "--backend", "cpuu"}, "did you mean cpu");
  expect(2, {"fuzz", "--spec", "small.yaml", "--backend", "mutant:none_such"}, "mutant:");
  expect(2, {"fuzz", "--spec", "small.yaml", "--backend", "cpu", "--laws", "selektion"}, "did you mean selection");
  expect(2, {"fuzz", "--spec", "small.yaml", "--backend", "cpu", "--variant", "x"}, "variant");
  expect(2, {"fuzz", "--spec", "small.yaml", "--backend", "cpu", "--set", "selection.biass=bf16"}, "selection.bias");
  expect(2, {"fuzz", "--spec", "small.yaml", "--backend", "cpu", "--set", "selection.bias"}, "PATH=VALUE");
}

TEST_F(BadInput, SpecsThatCannotBeRun) {
  expect(2, {"fuzz", "--spec", "missing.yaml", "--backend", "cpu"}, "missing.yaml");
  expect(2, {"fuzz", "--spec", "small.yaml", "--backend", "cpu", "--set", "shape.top_k=9"}, "top_k");
  expect(2, {"fuzz", "--spec", "small.yaml", "--backend", "cpu", "--set", "selection.method=sparsemixer"},
         "sparsemixer");
  expect(2, {"fuzz", "--spec", "small.yaml", "--backend", "cpu", "--set", "capacity=batch_dependent"}, "batch");
  expect(2, {"fuzz", "--spec", "small.yaml", "--backend", "cpu", "--set", "shape.top_k=2 # x"}, "YAML comment");
  expect(2,
         {"fuzz", "--spec", "small.yaml", "--backend", "cpu", "--set", "shape.num_experts=65536", "--set",
          "shape.hidden_size=1048576"},
         "65536 gate rows x hidden_size 1048576: a gate weight of more than");
  folder_.write("bad.yaml", "spec_version: 1\nname: x\nshape: {hidden_size: 4, num_experts: [\n");
  expect(2, {"fuzz", "--spec", "bad.yaml", "--backend", "cpu"}, "bad.yaml:");
}

TEST_F(BadInput, OutputThatCannotBeWrittenIsToldBeforeTheWork) {
  const std::vector<std::string> fuzz = {"fuzz", "--spec", "small.yaml", "--backend", "cpu", "--cases", "100000000"};
  const auto with = [&](const char* option, const char* value) {
    std::vector<std::string> arguments = fuzz;
    arguments.insert(arguments.end(), {option, value});
    return arguments;
  };
  expect(2, with("--json", "no/such/folder/report.json"), "no/such/folder/report.json");
  expect(2, with("--json", "."), "is a folder");
  expect(2, with("--corpus", "small.yaml/failures"), "small.yaml/failures");
  expect(2, {"gen", "--spec", "small.yaml", "--cases", "2", "--out", "small.yaml"}, "small.yaml");
}

TEST_F(BadInput, CaseAndResultFiles) {
  expect(2, {"replay", "--case", "missing.yaml", "--backend", "cpu"}, "missing.yaml: no such file");
  folder_.write("case.yaml", "samebits_case: 1\nspec: small.yaml\ndescription: {num_tokens: 2, top_k: 9}\n");
  expect(2, {"replay", "--case", "case.yaml", "--backend", "cpu"}, "case.yaml:3:");
  folder_.write("case.yaml", "samebits_case: 1\nspec: small.yaml\ndescription: {num_tokens: \n");
  expect(2, {"explain", "--case", "case.yaml"}, "case.yaml:");
  folder_.write("case.yaml", "samebits_case: 1\nspec: small.yaml\ndescription: {num_tokens: 2}\n");
  expect(2, {"explain", "--case", "case.yaml", "--row", "2"}, "rows 0 to 1");
  expect(2, {"shrink", "--case", "case.yaml", "--backend", "cpu", "--out", "small2.yaml"}, "--law");
  std::filesystem::create_directories(folder_ / "results");
  expect(2, {"check", "--cases", "case.yaml", "--results", "results"}, "results/case.safetensors: no such file");
  folder_.write("results/case.safetensors", "not a tensor");
  expect(2, {"check", "--cases", "case.yaml", "--results", "results"}, "results/case.safetensors: ");
  std::filesystem::create_directories(folder_ / "empty");
  expect(2, {"run", "--cases", "empty", "--backend", "cpu", "--out", "results"}, "no case files");
}

TEST_F(BadInput, BackendsThatCannotBeLoaded) {
  expect(3, {"fuzz", "--spec", "small.yaml", "--plugin", "./missing.so"}, "missing.so");
  folder_.write("text.so", "this is no library");
  expect(3, {"fuzz", "--spec", "small.yaml", "--plugin", "./text.so"}, "text.so");
}

TEST_F(BadInput, HelpAndVersionAreNoErrors) {
  for (const char* command : {"fuzz", "gen", "run", "check", "replay", "shrink", "explain", "list", "show"}) {
    const ChildResult help = run({command, "--help"});
    EXPECT_EQ(help.exit_code, 0);
    EXPECT_THAT(help.out, HasSubstr(std::string("samebits ") + command)) << "an example";
  }
  EXPECT_EQ(run({"--version"}).out.substr(0, 9), "samebits ");
}

}  // namespace
}  // namespace samebits::harness
