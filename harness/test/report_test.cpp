#include "harness/report/report.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "harness/report/case_text.h"
#include "harness/report/printable.h"
#include "oracle/spec/spec_yaml.h"

namespace samebits::harness {
namespace {

using properties::LawTally;
using properties::Verdict;
using ::testing::HasSubstr;
using ::testing::Not;

LawTally tally(Verdict verdict) {
  LawTally result;
  result.applicable = verdict != Verdict::kNotApplicable;
  result.not_applicable_reason = "no bias";
  result.verdict = verdict;
  return result;
}

Report report_of(const std::vector<Verdict>& verdicts, const std::string& command = "fuzz") {
  Report report;
  report.command = command;
  report.cases = 10;
  std::size_t i = 0;
  for (const Verdict verdict : verdicts) report.laws.emplace_back(&properties::all_laws()[i++], tally(verdict));
  return report;
}

TEST(Report, ExitCodes) {
  using enum Verdict;
  EXPECT_EQ(exit_code(report_of({kPass, kNotApplicable})), 0);
  EXPECT_EQ(exit_code(report_of({kPass, kFail, kInconclusive})), 1);
  EXPECT_EQ(exit_code(report_of({kPass, kInconclusive})), 4);
  EXPECT_EQ(exit_code(report_of({kNotApplicable})), 4);
  EXPECT_EQ(exit_code(report_of({})), 4);
  EXPECT_EQ(exit_code(report_of({kPass, kInconclusive}, "replay")), 0);
  EXPECT_EQ(exit_code(report_of({kInconclusive}, "replay")), 4);
  Report interrupted = report_of({kPass, kFail});
  interrupted.interrupted = true;
  EXPECT_EQ(exit_code(interrupted), 130);
  Report empty = report_of({kPass});
  empty.cases = 0;
  EXPECT_EQ(exit_code(empty), 4);
}

Failure failure_of(const std::string& law) {
  Failure failure;
  failure.violation.law = law;
  failure.violation.summary = "row 0: \xff not UTF-8\nand two lines";
  failure.violation.observed = "1";
  failure.violation.expected = "2";
  failure.repro = "samebits replay";
  failure.shrunk.spec =
      oracle::parse_spec("spec_version: 1\nname: x\nshape: {hidden_size: 2, num_experts: 2, top_k: 1}\n", "x").base;
  properties::CaseDescription& d = failure.shrunk.description;
  d.stage = properties::Stage::kFromLogits;
  d.num_experts = 2;
  oracle::RouterInputs data;
  data.num_tokens = 1;
  data.gate_rows = 2;
  data.router_logits = {1.5f, 0.0f};
  d.data = data;
  return failure;
}

TEST(Report, ConsoleStaysWithinFortyLinesAndNamesEveryLaw) {
  Report report = report_of({});
  for (const properties::Law& law : properties::all_laws()) {
    report.laws.emplace_back(&law, tally(Verdict::kFail));
    report.failures.push_back(failure_of(law.id));
  }
  for (int i = 0; i < 100; ++i) report.hazards["hazard_number_" + std::to_string(i)] = i;
  const std::string text = to_console(report, Output::kTerminal);
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 40);
  for (const properties::Law& law : properties::all_laws()) EXPECT_THAT(text, HasSubstr(law.id));
  EXPECT_THAT(text, HasSubstr("REPRO: samebits replay\n"));
  EXPECT_THAT(text, HasSubstr("router_logits [1, 2]: (0,0)=1.5\n"));
  EXPECT_THAT(text, HasSubstr("more failed laws"));
}

TEST(Report, TheFirstFailureIsPrintedInFullWhateverTheRoom) {
  Report report = report_of({});
  for (const properties::Law& law : properties::all_laws()) {
    report.laws.emplace_back(&law, tally(Verdict::kFail));
    report.failures.push_back(failure_of(law.id));
  }
  for (int i = 0; i < 100; ++i) report.hazards["hazard_number_" + std::to_string(i)] = i;
  Failure& first = report.failures.front();
  first.violation.notes = {"note one", "note two", "note three"};
  first.shrink_stopped = "stopped after 60 s";
  const std::string text = to_console(report, Output::kTerminal);
  for (const char* part : {"  observed  1\n", "  expected  2\n", "  note one\n", "  note three\n",
                           "  shrinking stopped after 60 s; a smaller case may exist\n", "(0,0)=1.5\n", "REPRO: "}) {
    EXPECT_THAT(text, HasSubstr(part));
  }
  EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 40);
  EXPECT_EQ(nlohmann::json::parse(to_json(report))["failures"][0]["shrink_stopped"], "stopped after 60 s");
}

TEST(Report, AFailureLeavesRowsToTheLawsThatDidNotPass) {
  using enum Verdict;
  Report report = report_of({kPass, kFail, kNotApplicable, kInconclusive, kPass});
  const auto& laws = properties::all_laws();
  const std::string all = to_console(report, Output::kTerminal);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_THAT(all, HasSubstr(fmt::format("\n{} ", laws[i].id)));
  report.failures.push_back(failure_of(laws[1].id));
  const std::string text = to_console(report, Output::kTerminal);
  EXPECT_THAT(text, HasSubstr(fmt::format("\npass            {}, {}\n", laws[0].id, laws[4].id)));
  EXPECT_THAT(text, HasSubstr(fmt::format("\nnot applicable  {}\n", laws[2].id)));
  EXPECT_THAT(text, HasSubstr(fmt::format("\n{:<20}fail ", laws[1].id)));
  EXPECT_THAT(text, HasSubstr(fmt::format("\n{:<20}inconclusive ", laws[3].id)));
}

TEST(Report, ARefusedSpecIsNotCalledInconclusive) {
  Report report = report_of({Verdict::kInconclusive});
  report.cases = 0;
  report.skipped = 7;
  report.skip_reason = "no groups\x1b[2J\nhere";
  const std::string text = to_console(report, Output::kTerminal);
  EXPECT_THAT(text, HasSubstr("Nothing was tested: the router refused all 7 cases; this is not a pass. Its reason: "
                              "no groups?[2J here\n"));
  EXPECT_THAT(text, Not(HasSubstr("inconclusive")));
  EXPECT_THAT(text, Not(HasSubstr("verdict")));
}

TEST(Report, NothingIsCutOutsideATerminalAndReasonsAreWrappedOnIt) {
  Report report = report_of({Verdict::kFail});
  report.failures.push_back(failure_of("selection"));
  std::string reason;
  for (int i = 0; i < 60; ++i) reason += fmt::format("word{} ", i);
  report.failures[0].violation.summary = reason + "end of the summary";
  report.claims.name = "a router";
  report.skipped = 1;
  report.skip_reason = reason + "end of the reason";
  const std::string file = to_console(report, Output::kFile);
  EXPECT_THAT(file, HasSubstr("FAILED selection: " + reason + "end of the summary\n"));
  EXPECT_THAT(file, HasSubstr("skipped   1: " + reason + "end of the reason\n"));
  EXPECT_THAT(file, HasSubstr(": a router: fp32-any-order, ")) << "no version, so no place for one";
  const std::string terminal = to_console(report, Output::kTerminal);
  EXPECT_THAT(terminal, HasSubstr("end of the summary\n"));
  EXPECT_THAT(terminal, HasSubstr(" end of the\n          reason\n"));
  std::size_t longest = 0, begin = 0;
  for (std::size_t end; (end = terminal.find('\n', begin)) != std::string::npos; begin = end + 1) {
    longest = std::max(longest, end - begin);
  }
  EXPECT_LE(longest, 120u);
  report.failures[0].violation.summary = std::string(100'000, 'x');
  EXPECT_LT(to_console(report, Output::kTerminal).size(), 10'000u) << "foreign text does not fill a terminal";
  EXPECT_THAT(to_json(report), HasSubstr(std::string(100'000, 'x')));
}

TEST(Report, ASpecThatNoCaseMetIsNoPass) {
  Report report = report_of({Verdict::kPass});
  report.specs = {{"met", "", 3, 30, 0, "", {"termination"}},
                  {"refused", "", 0, 0, 0, "cannot be run", {}},
                  {"skipped", "", 0, 0, 2, "no groups", {}}};
  EXPECT_EQ(exit_code(report), 0);
  const std::string met = to_console(report, Output::kFile);
  EXPECT_THAT(met, HasSubstr("specs     1 of 1 met, 1 of them by too few cases for some law alone"));
  EXPECT_THAT(met, HasSubstr("  inconclusive on 1 specs alone\n"));
  EXPECT_EQ(nlohmann::json::parse(to_json(report))["laws"]["termination"]["inconclusive_specs"], 1);
  for (int i = 0; i < 9; ++i) report.specs.push_back({fmt::format("late-{}", i), "", 0, 0, 0, "", {}});
  EXPECT_EQ(exit_code(report), 4);
  const std::string text = to_console(report, Output::kFile);
  EXPECT_THAT(text, HasSubstr("; 9 NOT met: late-0, late-1, late-2, late-3, late-4, late-5, and 3 more\n"));
  EXPECT_THAT(text, HasSubstr("before 9 specs met a case"));
  EXPECT_THAT(text, Not(HasSubstr("A pass means")));
  EXPECT_EQ(nlohmann::json::parse(to_json(report))["specs_not_met"].size(), 9u);
}

TEST(Report, ClaimsOfALawThatFailedAreRefuted) {
  using enum Verdict;
  Report report = report_of({});
  for (const properties::Law& law : properties::all_laws()) {
    report.laws.emplace_back(&law, tally(std::string(law.id) == "selection" ? kFail : kPass));
  }
  report.claims.tie_rule = properties::TieRule::kLowestIndex;
  report.claims.output_order = properties::OutputOrder::kKeyDescThenIndex;
  report.hazards["exact_ties"] = 1;
  for (const bool interrupted : {false, true}) {
    report.interrupted = interrupted;
    const std::string text = to_console(report, Output::kFile);
    EXPECT_THAT(text,
                HasSubstr("refuted here:  arithmetic fp32-any-order (selection), ties lowest_index (selection)\n"));
    const std::string verified = "verified here: order key_desc_then_index\n";
    EXPECT_EQ(text.find(verified) != std::string::npos, interrupted) << text;
  }
  // A known case counts for known_answer alone, and refutes all the same.
  for (auto& [law, sum] : report.laws) sum.verdict = kPass;
  report.broken_by_known_cases = {"order"};
  EXPECT_THAT(to_console(report, Output::kFile), HasSubstr("refuted here:  order key_desc_then_index (order)\n"));
}

TEST(Report, OnlyAShrunkCaseIsSaidToHaveTheFewestNumbers) {
  Report report = report_of({Verdict::kFail});
  report.failures.push_back(failure_of("selection"));
  EXPECT_THAT(to_console(report, Output::kFile), HasSubstr("the case above shows it, not every fault it has."));
  report.failures[0].shrink_evaluations = 7;
  EXPECT_THAT(to_console(report, Output::kFile), HasSubstr("with the fewest numbers found, not with every fault"));
}

TEST(Report, LawsThatTheRunDidNotAskForAreNotJudged) {
  const std::string text = to_console(report_of({Verdict::kPass, Verdict::kNotApplicable}), Output::kFile);
  EXPECT_THAT(text, HasSubstr(fmt::format("not judged:    laws {}, and the {} others of `list laws`\n",
                                          properties::all_laws()[1].id, properties::all_laws().size() - 2)));
}

TEST(Report, JsonIsValidWhateverARouterSays) {
  Report report = report_of({Verdict::kFail, Verdict::kNotApplicable});
  report.failures.push_back(failure_of("selection"));
  report.claims.name = "\xc3(";
  const nlohmann::json root = nlohmann::json::parse(to_json(report));
  EXPECT_EQ(root["failures"][0]["law"], "selection");
  EXPECT_EQ(root["failures"][0]["shape"]["num_experts"], 2);
  EXPECT_EQ(root["failures"][0]["nonzero_numbers"], 1);
  EXPECT_EQ(root["laws"][properties::all_laws()[1].id]["reason"], "no bias");
  EXPECT_EQ(root["laws"][properties::all_laws()[1].id]["verdict"], "not_applicable");
}

TEST(Report, ControlCharactersDoNotReachATerminal) {
  EXPECT_EQ(printable("a\x1b[2Jb\r\tc\x7f\n"), "a?[2Jb??c?\n");
  EXPECT_EQ(printable("\u00e9 \u4e2d \U0001f600"), "\u00e9 \u4e2d \U0001f600");
  EXPECT_EQ(printable("\xc2\x9b"
                      "1m \x9b"
                      "1m"),
            "?1m ?1m")
      << "CSI of C1, as UTF-8 and as a byte";
  EXPECT_EQ(printable_line("one\ntwo"), "one two");
}

TEST(Report, NumbersAreGrouped) {
  EXPECT_EQ(grouped(0), "0");
  EXPECT_EQ(grouped(999), "999");
  EXPECT_EQ(grouped(1000), "1,000");
  EXPECT_EQ(grouped(-123456), "-123,456");
  EXPECT_EQ(grouped(1234567), "1,234,567");
}

}  // namespace
}  // namespace samebits::harness
