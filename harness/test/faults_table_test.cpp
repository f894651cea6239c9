// docs/faults.md: every public fault is covered by something that exists, and every case file has its place.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "harness/test/engine_differences.h"
#include "harness/test/known_answers.h"
#include "kernels/mutants/mutants.h"
#include "properties/law.h"

namespace samebits::harness {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr int kFaults = 112;

std::string text_of(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

struct Fault {
  int number = 0;
  std::string source, covered;
};

std::vector<Fault> read_table() {
  static const std::regex row(R"(^\| (\d+) \| ([^|]*[^| ]) \| [^|]+ \| ([^|]+) \|$)");
  std::vector<Fault> faults;
  std::istringstream stream(text_of(fs::path(SAMEBITS_SOURCE_DIR) / "docs/faults.md"));
  bool table = false;
  for (std::string line; std::getline(stream, line);) {
    table = table || line == "| # | where | kind | covered by |";
    std::smatch match;
    if (table && std::regex_match(line, match, row)) faults.push_back({std::stoi(match[1]), match[2], match[3]});
  }
  return faults;
}

// "case" where the name stands alone, else the word before it.
struct Cover {
  std::string kind, name;
};

std::vector<Cover> covers_of(const std::string& text) {
  static const std::regex cover(R"((?:^|; )(?:(law|mutant|cuda|test) )?`([^`]+)`)");
  std::vector<Cover> covers;
  for (std::sregex_iterator it(text.begin(), text.end(), cover), end; it != end; ++it) {
    covers.push_back({(*it)[1].matched ? (*it)[1].str() : "case", (*it)[2]});
  }
  return covers;
}

// All test sources, as "Suite, Name" is written in them.
const std::string& test_sources() {
  static const std::string all = [] {
    std::string text;
    for (const char* folder : {"oracle", "kernels", "properties", "harness"}) {
      for (const auto& entry : fs::recursive_directory_iterator(fs::path(SAMEBITS_SOURCE_DIR) / folder)) {
        const std::string name = entry.path().filename().string();
        if (name.ends_with("_test.cpp") || name.ends_with("_test.cu")) text += text_of(entry.path());
      }
    }
    return text;
  }();
  return all;
}

TEST(FaultsTable, HasEveryNumberOnceInOrder) {
  const std::vector<Fault> faults = read_table();
  ASSERT_EQ(faults.size(), static_cast<std::size_t>(kFaults));
  for (int i = 0; i < kFaults; ++i) EXPECT_EQ(faults[static_cast<std::size_t>(i)].number, i + 1);
}

TEST(FaultsTable, WhatCoversAFaultExists) {
  const std::string cuda = text_of(fs::path(SAMEBITS_SOURCE_DIR) / "kernels/mutants/cuda_mutants.txt");
  for (const Fault& fault : read_table()) {
    SCOPED_TRACE(fault.number);
    const std::vector<Cover> covers = covers_of(fault.covered);
    EXPECT_TRUE(!covers.empty() || fault.covered.starts_with("not: ")) << fault.covered;
    bool has_case = false;
    for (const auto& [kind, name] : covers) {
      if (kind == "law") {
        EXPECT_NE(properties::find_law(name), nullptr) << name;
      } else if (kind == "mutant") {
        EXPECT_NE(mutants::find_mutant(name.c_str()), nullptr) << name;
      } else if (kind == "cuda") {
        EXPECT_THAT(cuda, HasSubstr("\n" + name + " "));
      } else if (kind == "test") {
        const std::size_t dot = name.find('.');
        EXPECT_THAT(test_sources(), HasSubstr("(" + name.substr(0, dot) + ", " + name.substr(dot + 1) + ")"));
      }
      if (kind != "case") continue;
      has_case = true;
      EXPECT_TRUE(fs::exists(cases_folder() / (name + ".yaml"))) << name;
    }
    EXPECT_TRUE(has_case || fault.covered.find("not: ") != std::string::npos) << "no case file, and no reason";
  }
}

TEST(FaultsTable, EveryCaseFileHasItsPlace) {
  std::set<std::string> placed;
  for (const Fault& fault : read_table()) {
    for (const Cover& cover : covers_of(fault.covered)) placed.insert(cover.kind == "case" ? cover.name : "");
  }
  for (const EngineDifference& difference : read_engine_differences()) placed.insert(difference.case_name);
  for (const fs::path& file : list_case_files(cases_folder())) {
    const std::string name = file.stem().string();
    EXPECT_TRUE(placed.contains(name) || name.starts_with("article_")) << name << ": name it in docs/faults.md";
  }
}

// A case file cites a thread of its row.
TEST(FaultsTable, CaseFilesCiteTheThreads) {
  static const std::regex thread(R"([#@]([0-9a-f]+))");
  for (const Fault& fault : read_table()) {
    for (const Cover& cover : covers_of(fault.covered)) {
      if (cover.kind != "case") continue;
      const std::string source = read_case(cover.name).expected->source;
      bool cited = false;
      for (std::sregex_iterator it(fault.source.begin(), fault.source.end(), thread), end; it != end; ++it) {
        cited = cited || source.find((*it)[0]) != std::string::npos;
      }
      EXPECT_TRUE(cited) << fault.number << ": " << cover.name << " cites " << source;
    }
  }
}

}  // namespace
}  // namespace samebits::harness
