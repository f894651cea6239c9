// The ledger of known faults: what is tolerated is told and does not fail, what passes now is loud, what is quarantined
// is not run.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "harness/cli/ledger.h"
#include "harness/io/files.h"
#include "harness/test/cli_child.h"

namespace samebits::harness {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

class LedgerTest : public SmallSpec {
 protected:
  // A run on a router that prefers the higher of two equal keys, with this ledger.
  ChildResult fuzz(const std::string& entries, const std::string& backend = "mutant:ties_to_higher_id",
                   std::vector<std::string> more = {"--no-known-cases"}) const {
    folder_.write("ledger.yaml", "samebits_ledger: 1\nentries:\n" + entries);
    std::vector<std::string> arguments = {"fuzz", "--spec",   "small.yaml",  "--backend", backend,  "--cases",
                                          "40",   "--ledger", "ledger.yaml", "--json",    "r.json", "--no-shrink"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  json report() const { return json::parse(content_of(folder_ / "r.json")); }
  std::string error_of(const std::string& entries) const {
    try {
      read_ledger(folder_.write("bad.yaml", "samebits_ledger: 1\nentries:\n" + entries));
    } catch (const FileError& error) {
      return error.what();
    }
    return "no error";
  }
};

constexpr const char* kWhere = "router: samebits-cpu, link: 'https://example.org/1'";

std::string entry(const std::string& fields) {
  return "- {" + fields + ", " + kWhere + "}\n";
}

TEST_F(LedgerTest, WithoutALedgerTheFaultFails) {
  EXPECT_EQ(fuzz(entry("mode: tolerate, law: padding, spec: another.yaml")).exit_code, 1);
  EXPECT_THAT(report()["laws"]["selection"]["failed"], testing::Gt(0));
  EXPECT_EQ(report()["ledger"][0]["state"], "not_met");
}

TEST_F(LedgerTest, AToleratedFaultIsToldAndDoesNotFail) {
  const ChildResult result = fuzz(entry("mode: tolerate, law: selection") + entry("mode: tolerate, law: order") +
                                  entry("mode: tolerate, law: weights") + entry("mode: tolerate, law: sum"));
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_THAT(result.out, HasSubstr("LEDGER tolerated: selection (https://example.org/1)"));
  EXPECT_THAT(result.out, Not(HasSubstr("FAILED")));
  EXPECT_THAT(result.out, HasSubstr("selection has findings that the ledger tolerates"));
  const json root = report();
  EXPECT_EQ(root["ledger"][0]["state"], "tolerated");
  EXPECT_GT(root["ledger"][0]["findings"], 0);
  EXPECT_EQ(root["laws"]["selection"]["failed"], 0);
  EXPECT_EQ(root["laws"]["selection"]["tolerated"], root["ledger"][0]["findings"]);
}

TEST_F(LedgerTest, AToleratedFaultHidesNoOther) {
  EXPECT_EQ(fuzz(entry("mode: tolerate, law: selection, hazard: single_row")).exit_code, 1);
  EXPECT_EQ(fuzz(entry("mode: tolerate, law: selection, spec: another.yaml")).exit_code, 1);
  EXPECT_EQ(fuzz(entry("mode: tolerate, law: selection, version: '0'")).exit_code, 1);
}

TEST_F(LedgerTest, WhatPassesNowIsLoud) {
  const ChildResult result = fuzz(entry("mode: tolerate, law: selection"), "cpu");
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_THAT(result.out, HasSubstr("LEDGER PASSES NOW: remove it: selection"));
  EXPECT_EQ(report()["ledger"][0]["state"], "passes_now");
}

TEST_F(LedgerTest, AnExpiredEntryNoLongerApplies) {
  const ChildResult result = fuzz(entry("mode: tolerate, law: selection, expires: 2020-01-31"));
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("LEDGER EXPIRED: no longer applies: selection"));
  EXPECT_THAT(result.out, HasSubstr("last day 2020-01-31"));
}

TEST_F(LedgerTest, AQuarantinedLawIsNotJudged) {
  const ChildResult result = fuzz(entry("mode: quarantine, law: selection") + entry("mode: quarantine, law: order") +
                                  entry("mode: quarantine, law: weights"));
  EXPECT_EQ(result.exit_code, 0) << result.out;
  EXPECT_THAT(result.out, HasSubstr("LEDGER quarantined: not run: selection"));
  const json root = report();
  EXPECT_EQ(root["laws"]["selection"]["verdict"], "not_applicable");
  EXPECT_THAT(std::string(root["laws"]["selection"]["reason"]), HasSubstr("https://example.org/1"));
  for (const json& claim : root["claims_judged"]) {
    if (claim["claim"] == "ties lowest_index") {
      EXPECT_EQ(claim["state"], "not_verified");
    }
  }
}

TEST_F(LedgerTest, AQuarantinedCaseIsNotRun) {
  const ChildResult all = fuzz("- {mode: tolerate, law: padding, router: another, link: x}\n", "cpu");
  const std::int64_t before = report()["cases"], ties = report()["hazards"]["exact_ties"];
  const ChildResult result = fuzz(entry("mode: quarantine, hazard: exact_ties"), "cpu");
  EXPECT_THAT(result.out, HasSubstr("LEDGER quarantined: not run: cases of hazard exact_ties"));
  const json root = report();
  EXPECT_FALSE(root["hazards"].contains("exact_ties"));
  EXPECT_EQ(root["ledger"][0]["cases"], ties);
  EXPECT_EQ(root["cases"], before - ties);
}

TEST_F(LedgerTest, KnownCasesCanBeNamed) {
  const std::vector<std::string> known = {"--laws", "termination,known_answer"};
  EXPECT_EQ(
      fuzz(entry("mode: tolerate, law: known_answer, known_case: all_keys_equal"), "mutant:ties_to_higher_id", known)
          .exit_code,
      1)
      << "other known cases fail too";
  EXPECT_EQ(fuzz(entry("mode: tolerate, law: known_answer"), "mutant:ties_to_higher_id", known).exit_code, 0);
  EXPECT_EQ(report()["laws"]["known_answer"]["verdict"], "tolerated");
  EXPECT_GT(report()["laws"]["known_answer"]["tolerated"], 0);
}

TEST_F(LedgerTest, BadEntriesAreNamed) {
  EXPECT_THAT(error_of("- {mode: ignore, router: a, link: b, law: sum}\n"), HasSubstr("mode: found \"ignore\""));
  EXPECT_THAT(error_of("- {mode: tolerate, router: a, law: sum}\n"), HasSubstr("link"));
  EXPECT_THAT(error_of("- {mode: tolerate, router: a, link: b}\n"), HasSubstr("needs its law"));
  EXPECT_THAT(error_of("- {mode: tolerate, router: a, link: b, law: selektion}\n"),
              HasSubstr("did you mean selection"));
  EXPECT_THAT(error_of("- {mode: tolerate, router: a, link: b, law: sum, hazard: ties}\n"), HasSubstr("hazard: found"));
  EXPECT_THAT(error_of("- {mode: tolerate, router: '', link: b, law: sum}\n"), HasSubstr("router: found nothing"));
  EXPECT_THAT(error_of("- {mode: tolerate, router: a, link: b, law: sum, spec: glm-5.3-flsh}\n"),
              HasSubstr("did you mean glm-5.3-flash"));
  EXPECT_EQ(error_of("- {mode: tolerate, router: a, link: b, law: sum, spec: elsewhere/ours.yaml}\n"), "no error");
  EXPECT_THAT(error_of("- {mode: tolerate, router: a, link: b, law: sum, known_case: x}\n"), HasSubstr("known_case"));
  EXPECT_THAT(error_of("- {mode: tolerate, router: a, link: b, law: sum, expires: 2026-02-30}\n"),
              HasSubstr("YYYY-MM-DD"));
  EXPECT_THAT(error_of("- {mode: quarantine, router: a, link: b}\n"), HasSubstr("every case"));
  EXPECT_THAT(
      error_of("- {mode: tolerate, router: a, link: b, law: sum}\n- {mode: quarantine, router: a, link: c, law: "
               "sum}\n"),
      HasSubstr("found twice"));
}

}  // namespace
}  // namespace samebits::harness
