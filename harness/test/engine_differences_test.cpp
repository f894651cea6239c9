// The pairs of fixtures/engines.yaml: the oracle routes both sides, and docs/engines.md tells of them.
#include "harness/test/engine_differences.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "harness/io/case_file.h"
#include "harness/test/known_answers.h"
#include "oracle/spec/validate.h"
#include "properties/case.h"

namespace samebits::harness {
namespace {

namespace fs = std::filesystem;

struct BothSides {
  CaseFile known;
  oracle::RouterOutputs contract, other;
};

BothSides both_sides(const EngineDifference& difference) {
  CaseFile known = read_case(difference.case_name);
  const oracle::RouterOutputs contract = run_oracle(known.c);
  if (!difference.reported.empty()) return {std::move(known), contract, overwritten(contract, difference.reported)};
  const oracle::SpecFile base = oracle::parse_spec(oracle::to_yaml(known.c.spec), difference.case_name);
  const oracle::RouterSpec other = oracle::resolve(base, {.set = difference.set});
  EXPECT_EQ(oracle::unsupported_reason(other), std::nullopt);
  const oracle::RouterInputs inputs = properties::materialize(known.c);
  return {std::move(known), contract, run_oracle(other, inputs)};
}

// Expert to weight. Two routers that return the same pairs in another order agree.
std::map<std::int64_t, float> pairs_of(const oracle::RouterOutputs& outputs, std::int64_t row) {
  std::map<std::int64_t, float> pairs;
  for (std::int64_t slot = 0; slot < outputs.top_k; ++slot) {
    const auto place = static_cast<std::size_t>(row * outputs.top_k + slot);
    pairs.emplace(outputs.topk_ids.at(place), outputs.topk_weights.at(place));
  }
  return pairs;
}

bool same_experts(const std::map<std::int64_t, float>& a, const std::map<std::int64_t, float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](auto& x, auto& y) { return x.first == y.first; });
}

std::string name_of(const EngineDifference& difference) {
  return fmt::format("{} {} {} {}", difference.number, difference.case_name, difference.spec, difference.variant);
}

TEST(EngineDifferences, EachPairDisagreesInWhatIsSaid) {
  const std::vector<EngineDifference> differences = read_engine_differences();
  ASSERT_FALSE(differences.empty());
  for (const EngineDifference& difference : differences) {
    SCOPED_TRACE(name_of(difference));
    const BothSides sides = both_sides(difference);
    bool other_experts = false;
    bool other_weights = false;
    for (std::int64_t row = 0; row < sides.contract.num_tokens; ++row) {
      const auto contract = pairs_of(sides.contract, row);
      const auto other = pairs_of(sides.other, row);
      other_experts = other_experts || !same_experts(contract, other);
      other_weights = other_weights || contract != other;  // also for a NaN
    }
    EXPECT_EQ(other_experts, difference.other_experts);
    EXPECT_TRUE(other_weights);
  }
}

// The file alone tells the two apart: what the other side answers is outside of the stated tolerance.
TEST(EngineDifferences, TheStatedAnswerIsThatOfOneSideOnly) {
  for (const EngineDifference& difference : read_engine_differences()) {
    SCOPED_TRACE(name_of(difference));
    const BothSides sides = both_sides(difference);
    ASSERT_TRUE(sides.known.expected.has_value());
    EXPECT_EQ(contradiction(*sides.known.expected, sides.contract), std::nullopt);
    EXPECT_NE(contradiction(*sides.known.expected, sides.other), std::nullopt);
  }
}

// The cells of the rows "| number | ...".
std::vector<std::vector<std::string>> documented_rows() {
  std::ifstream stream(fs::path(SAMEBITS_SOURCE_DIR) / "docs" / "engines.md");
  std::vector<std::vector<std::string>> rows;
  for (std::string line; std::getline(stream, line);) {
    if (!line.starts_with("| ") || line.size() < 3 || line[2] < '0' || line[2] > '9') continue;
    std::istringstream cells(line.substr(2));
    rows.emplace_back();
    for (std::string cell; std::getline(cells, cell, '|');) rows.back().push_back(cell);
  }
  return rows;
}

TEST(EngineDifferences, TheDocumentNamesTheCasesAndVariantsOfEachNumber) {
  const std::vector<EngineDifference> differences = read_engine_differences();
  const auto rows = documented_rows();
  ASSERT_EQ(rows.size(), 28u);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    ASSERT_EQ(rows[i].size(), 4u) << i + 1;
    const auto number = static_cast<std::int64_t>(i) + 1;
    EXPECT_EQ(std::stoll(rows[i][0]), number);
    const std::string& shown_by = rows[i][3];
    std::set<std::string> named, wanted;
    for (const fs::path& file : list_case_files(cases_folder())) {
      if (shown_by.find("`" + file.stem().string() + "`") != std::string::npos) named.insert(file.stem().string());
    }
    for (const EngineDifference& difference : differences) {
      if (difference.number != number) continue;
      wanted.insert(difference.case_name);
      EXPECT_THAT(shown_by, testing::HasSubstr(difference.variant)) << number;
      EXPECT_THAT(shown_by, testing::HasSubstr(difference.other_experts ? "set" : "weights")) << number;
    }
    EXPECT_EQ(named, wanted) << number;
    EXPECT_EQ(wanted.empty(), shown_by.starts_with(" not of the ro")) << number;  // router, or row
  }
}

}  // namespace
}  // namespace samebits::harness
