// The table of mutants, and the command that judges them; ctest runs the command over all of them (the test `mutants`).
#include "kernels/mutants/mutants.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <string>

#include "harness/cli/mutant_trials.h"
#include "harness/cli/mutants_elsewhere.h"
#include "harness/io/spec_library.h"
#include "harness/test/cli_child.h"
#include "oracle/spec/validate.h"
#include "properties/law.h"

namespace samebits::harness {
namespace {

using testing::HasSubstr;

TEST(Mutants, HaveIdsAndNamesOfTheirOwn) {
  std::set<std::string> ids, names;
  for (const mutants::Mutant& mutant : mutants::all_mutants()) {
    EXPECT_TRUE(std::regex_match(mutant.id, std::regex("[MU][0-9]{2,3}[a-z]?"))) << mutant.id;
    EXPECT_TRUE(std::regex_match(mutant.name, std::regex("[a-z][a-z0-9_]*"))) << mutant.name;
    EXPECT_TRUE(ids.insert(mutant.id).second) << mutant.id << " twice";
    EXPECT_TRUE(names.insert(mutant.name).second) << mutant.name << " twice";
    EXPECT_STRNE(mutant.fault, "") << mutant.name;
    EXPECT_EQ(mutants::find_mutant(mutant.name), &mutant);
    EXPECT_EQ(mutants::find_mutant(mutant.id), &mutant);
  }
}

TEST(Mutants, NameALawAndASpecThatCanBeRun) {
  for (const mutants::Mutant& mutant : mutants::all_mutants()) {
    EXPECT_NE(properties::find_law(mutant.caught_by), nullptr) << mutant.name << ": " << mutant.caught_by;
    oracle::Resolution resolution;
    if (mutant.router.layer != nullptr) resolution.layer = mutant.router.layer;
    for (const mutants::Setting& setting : mutant.router.set) resolution.set.push_back({setting.path, setting.value});
    const oracle::RouterSpec spec = oracle::resolve(load_spec(mutant.router.spec), resolution);
    EXPECT_EQ(oracle::unsupported_reason(spec), std::nullopt) << mutant.name;
  }
}

TEST(Mutants, AreTheTableOfTheDocumentation) {
  const auto read = [](const std::string& path) {
    return content_of(std::filesystem::path(SAMEBITS_SOURCE_DIR) / path);
  };
  const std::string table = read("docs/mutants.md");
  std::size_t rows = 0;
  for (std::size_t at = table.find("\n| "); at != std::string::npos; at = table.find("\n| ", at + 1)) ++rows;
  EXPECT_EQ(rows, 2 + mutants::all_mutants().size() + 3);  // the heading, and those of the oracle
  for (const mutants::Mutant& mutant : mutants::all_mutants()) {
    const std::string row =
        fmt::format("\n| {} | `{}` | {} | `{}` | `", mutant.id, mutant.name, mutant.fault, mutant.caught_by);
    const std::size_t found = table.find(row);
    ASSERT_NE(found, std::string::npos) << "docs/mutants.md lacks this row:" << row;
    const std::size_t file = found + row.size();
    const std::string name = table.substr(file, table.find('`', file) - file);
    EXPECT_THAT(read("kernels/mutants/" + name), HasSubstr(fmt::format("\"{}\"", mutant.name))) << name;
  }
}

TEST(Mutants, ThoseTestedElsewhereSayWhere) {
  std::set<std::string> ids;
  for (const MutantElsewhere& mutant : mutants_elsewhere()) {
    EXPECT_NE(mutant.name, "");
    EXPECT_NE(mutant.fault, "") << mutant.name;
    EXPECT_NE(mutant.where, "") << mutant.name;
    ids.insert(mutant.id);
  }
  EXPECT_THAT(ids, testing::IsSupersetOf({"M93", "M94", "M95"}));
}

// A mutant that names a law that it does not break.
TEST(Mutants, OneThatItsLawDoesNotCatchFails) {
  mutants::Mutant mutant = *mutants::find_mutant("bf16_bias");
  mutant.caught_by = "buffers";
  const Trials trials = try_mutants({&mutant}, {.seeds = 1}, [](std::size_t, std::size_t) {});
  ASSERT_EQ(trials.mutants.size(), 1u);
  EXPECT_FALSE(trials.mutants[0].caught());
  EXPECT_EQ(trials.mutants[0].shrunk_rows, 0);
  ASSERT_EQ(trials.sound.size(), 1u);
  EXPECT_TRUE(trials.sound[0].passed()) << trials.sound[0].violation;
  EXPECT_FALSE(trials.passed());
}

TEST(Mutants, CommandReportsTheChosenOnes) {
  const TempFolder folder;
  const ChildResult result = run_program_in(
      folder, {"mutants", "--mutant", "M01,bf16_bias", "--seeds", "2", "--json", "out.json", "--progress", "none"});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("caught by selection          2 of 2 seeds"));
  EXPECT_THAT(result.out, HasSubstr("2 of 2 mutants caught by the law that they name on 2 seeds"));
  EXPECT_THAT(result.out, HasSubstr("the right router passes the same laws"));
  const auto report = nlohmann::json::parse(content_of(folder / "out.json"));
  EXPECT_EQ(report["passed"], true);
  ASSERT_EQ(report["mutants"].size(), 2u);
  EXPECT_EQ(report["mutants"][0]["id"], "M01");
  EXPECT_EQ(report["mutants"][0]["seeds"].size(), 2u);
  EXPECT_GT(report["mutants"][0]["shrunk_rows"], 0);
  EXPECT_EQ(report["sound_router"].size(), 2u);
}

TEST(Mutants, CommandRefusesAnUnknownName) {
  const TempFolder folder;
  const ChildResult result = run_program_in(folder, {"mutants", "--mutant", "bf16_bia"});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, HasSubstr("unknown mutant \"bf16_bia\"; did you mean bf16_bias"));
}

}  // namespace
}  // namespace samebits::harness
