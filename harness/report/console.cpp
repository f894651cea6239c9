#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "harness/io/claims_json.h"
#include "harness/report/case_text.h"
#include "harness/report/lines.h"
#include "harness/report/report.h"

namespace samebits::harness {
namespace {

constexpr std::size_t kMaxLines = 40;
constexpr std::int64_t kMaxNumbers = 40;

// Words joined into lines of at most kWidth, at most `most` lines.
Lines wrapped(const std::string& label, const std::vector<std::string>& words, std::size_t most) {
  Lines lines = {label};
  for (std::size_t i = 0; i < words.size(); ++i) {
    const bool first = lines.back().size() == label.size();
    if (!first && lines.back().size() + words[i].size() + 2 > kWidth) {
      if (lines.size() == most) {
        lines.back() += fmt::format(", and {} more", words.size() - i);
        break;
      }
      lines.back() += ',';
      lines.push_back(std::string(label.size(), ' ') + words[i]);
      continue;
    }
    lines.back() += (first ? "" : ", ") + words[i];
  }
  return lines;
}

void append(Lines& lines, const Lines& more) {
  lines.insert(lines.end(), more.begin(), more.end());
}

// Lines of hazards and of families, at most.
struct WordLines {
  std::size_t hazards, families;
};
constexpr WordLines kAllWords{3, 2}, kFewWords{1, 1};

constexpr std::size_t kLabel = 10;  // columns

// "53 of 84 met, 31 of them too little for some law alone; not met: a, b, and 29 more"
std::string specs_text(const Report& report) {
  constexpr std::size_t kNamed = 6;
  std::int64_t met = 0, short_of_some = 0;
  for (const SpecRun& run : report.specs) {
    met += run.cases > 0 ? 1 : 0;
    short_of_some += run.cases > 0 && !run.inconclusive.empty() ? 1 : 0;
  }
  std::vector<std::string> unmet = specs_not_met(report);
  std::string text = fmt::format("{} of {} met", met, met + static_cast<std::int64_t>(unmet.size()));
  if (short_of_some > 0) {
    text += fmt::format(", {} of them by too few cases for some law alone (see specs in --json)", short_of_some);
  }
  if (unmet.empty()) return text;
  const std::size_t left_out = unmet.size() - std::min(unmet.size(), kNamed);
  unmet.resize(unmet.size() - left_out);
  text += fmt::format("; {} NOT met: {}", unmet.size() + left_out, fmt::join(unmet, ", "));
  return left_out == 0 ? text : text + fmt::format(", and {} more", left_out);
}

Lines header(const Report& report, WordLines limit, Output output) {
  Lines lines;
  const auto add = [&](const char* label, const std::string& text) {
    append(lines, fitted(fmt::format("{:<{}}{}", label, kLabel, text), output, kLabel));
  };
  add("spec", report.spec + (report.variant.empty() ? "" : ", variant " + report.variant));
  for (const std::string& note : report.notes) add("note", note);
  const std::string& version = report.claims.version;
  add(report.command == "check" ? "results" : "backend",
      fmt::format("{}: {}{}: {}", report.backend, report.claims.name, version.empty() ? "" : " " + version,
                  claims_line(report.claims)));
  std::string cases = fmt::format("cases     {} ({} rows)", grouped(report.cases), grouped(report.rows));
  if (report.known_cases > 0) cases += fmt::format(", {} known cases before them", grouped(report.known_cases));
  if (report.command == "fuzz") cases += fmt::format(", seed {}", report.seed);
  cases += fmt::format(", {:.1f} s", report.seconds);
  if (report.interrupted) cases += ", interrupted";
  lines.push_back(cases);
  if (!report.specs.empty()) add("specs", specs_text(report));
  if (report.skipped > 0) add("skipped", fmt::format("{}: {}", grouped(report.skipped), report.skip_reason));
  if (report.cases == 0) return lines;
  const Shapes& s = report.shapes;
  const auto span = [](std::int64_t least, std::int64_t most) {
    return least == most ? fmt::format("{}", most) : fmt::format("{}..{}", least, most);
  };
  lines.push_back(
      fmt::format("shapes    T up to {}, H {}, E {}, k {}", s.num_tokens_max,
                  s.hidden_size_max == 0 ? "none (from logits)" : span(s.hidden_size_min, s.hidden_size_max),
                  span(s.num_experts_min, s.num_experts_max), span(s.top_k_min, s.top_k_max)));
  std::vector<std::string> hazards;
  for (const auto& [hazard, cases_met] : report.hazards) hazards.push_back(fmt::format("{} {}", hazard, cases_met));
  append(lines, wrapped("hazards   ", hazards, limit.hazards));
  std::vector<std::string> families;
  for (const auto& [family, cases_met] : report.families) families.push_back(fmt::format("{} {}", family, cases_met));
  if (!families.empty()) append(lines, wrapped("families  ", families, limit.families));
  return lines;
}

// In a replay of named cases a law that they do not exercise is no lack of testing.
std::string table_text(const Report& report, const properties::Law& law, const properties::LawTally& tally) {
  const bool idle = report.command == "replay" && tally.verdict == properties::Verdict::kInconclusive;
  return idle ? "not exercised" : verdict_text(report, law, tally);
}

using Tallied = std::pair<const properties::Law*, properties::LawTally>;

Lines law_row(const Report& report, const Tallied& entry, Output output) {
  const auto& [law, tally] = entry;
  if (!tally.applicable) {
    return fitted(fmt::format("{:<20}{:<16}{}", law->id, "not applicable", tally.not_applicable_reason), output, 36);
  }
  std::string row = fmt::format("{:<20}{:<16}{:>14}{:>9}{:>9}", law->id, table_text(report, *law, tally),
                                grouped(tally.relevant), grouped(tally.cases), grouped(tally.failed));
  if (const std::int64_t specs = specs_short_of(report, law->id); specs > 0) {
    row += fmt::format("  inconclusive on {} specs alone", specs);
  }
  return {row};
}

// How much of the table is there: a row a law; rows of the laws that failed or were met too little; no rows. Laws
// without a row are listed by their verdicts.
enum class Rows : std::uint8_t { kAll, kNoteworthy, kNone };

Lines law_table(const Report& report, Rows rows, Output output) {
  Lines lines;
  std::vector<std::pair<std::string, std::vector<std::string>>> lists;
  for (const Tallied& entry : report.laws) {
    const std::string verdict =
        entry.second.applicable ? table_text(report, *entry.first, entry.second) : "not applicable";
    const bool quiet = verdict == "pass" || verdict == "not exercised" || verdict == "not applicable";
    if (rows == Rows::kAll || (rows == Rows::kNoteworthy && !quiet)) {
      append(lines, law_row(report, entry, output));
      continue;
    }
    auto list = std::find_if(lists.begin(), lists.end(), [&](const auto& l) { return l.first == verdict; });
    if (list == lists.end()) list = lists.insert(list, {verdict, {}});
    list->second.emplace_back(entry.first->id);
  }
  if (!lines.empty()) {
    lines.insert(lines.begin(),
                 fmt::format("{:<20}{:<16}{:>14}{:>9}{:>9}", "law", "verdict", "relevant", "cases", "failed"));
  }
  for (const auto& [verdict, laws] : lists) append(lines, wrapped(fmt::format("{:<16}", verdict), laws, laws.size()));
  return lines;
}

Lines detail(const Failure& failure, Output output) {
  const properties::Violation& violation = failure.violation;
  Lines lines;
  const auto add_unless_said = [&](const char* label, const std::string& text) {
    // A known answer is told in full: its summary names the row, not the answer.
    const bool said = violation.law != "known_answer" && violation.summary.find(text) != std::string::npos;
    if (!text.empty() && !said) {
      append(lines, fitted(fmt::format("  {}  {}", label, text), output, 12));
    }
  };
  add_unless_said("observed", violation.observed);
  add_unless_said("expected", violation.expected);
  for (std::size_t i = 0; i < std::min<std::size_t>(violation.notes.size(), 3); ++i) {
    append(lines, fitted("  " + violation.notes[i], output, 4));
  }
  const CaseNumbers numbers = case_numbers(failure.shrunk, kMaxNumbers);
  std::string origin = failure.known_case.empty() ? fmt::format("case {}", failure.case_index)
                                                  : fmt::format("known case {}", failure.known_case);
  if (failure.shrink_evaluations > 0) {
    origin = fmt::format("shrunk from case {} in {} evaluations", failure.case_index, failure.shrink_evaluations);
  }
  if (!failure.shrink_stopped.empty()) {
    lines.push_back(fmt::format("  shrinking {}; a smaller case may exist", failure.shrink_stopped));
  }
  lines.push_back(fmt::format("  {}: {}; {} numbers that are not 0{}", origin, case_sizes(failure.shrunk),
                              grouped(numbers.count), numbers.lines.empty() ? "" : ":"));
  for (const std::string& line : numbers.lines) append(lines, fitted("    " + line, output, 6));
  return lines;
}

// What failed and how to see it again; with its numbers where there is room.
Lines failure_lines(const Failure& failure, bool with_detail, Output output) {
  Lines lines = fitted(fmt::format("FAILED {}: {}", failure.violation.law, failure.violation.summary), output);
  if (with_detail) append(lines, detail(failure, output));
  if (!failure.repro.empty()) lines.push_back("REPRO: " + failure.repro);
  return lines;
}

const char* state_text(LedgerOutcome::State state) {
  switch (state) {
    case LedgerOutcome::State::kFound:
      return "tolerated";
    case LedgerOutcome::State::kPassesNow:
      return "PASSES NOW: remove it";
    case LedgerOutcome::State::kNotMet:
      return "not met by this run";
    case LedgerOutcome::State::kQuarantined:
      return "quarantined: not run";
    case LedgerOutcome::State::kExpired:
      return "EXPIRED: no longer applies";
  }
  return "unknown";
}

// Every entry for this router, so that nobody forgets what a pass leaves out.
Lines ledger_lines(const Report& report, Output output) {
  Lines lines;
  for (const LedgerOutcome& outcome : report.ledger) {
    std::string line = fmt::format("LEDGER {}: {} ({}); {} cases", state_text(outcome.state), outcome.subject,
                                   outcome.link, grouped(outcome.cases));
    if (outcome.findings > 0) line += fmt::format(", {} findings, the first: {}", outcome.findings, outcome.first);
    if (outcome.state == LedgerOutcome::State::kExpired) line += "; last day " + outcome.expires;
    append(lines, fitted(line, output));
  }
  return lines;
}

}  // namespace

std::string to_console(const Report& report, Output output) {
  Lines meaning;
  for (const std::string& line : meaning_lines(report)) append(meaning, fitted(line, output, 15));
  const Lines ledger = ledger_lines(report, output);
  // The first failure comes with all there is; the rest of the screen is what it leaves.
  const Lines first = report.failures.empty() ? Lines{} : failure_lines(report.failures.front(), true, output);
  // The blank line before the meaning, and the line that says what was left out.
  const std::size_t taken = 1 + meaning.size() + (report.failures.size() > 1 ? 1 : 0);
  const std::size_t room = kMaxLines - std::min(kMaxLines, taken);
  const auto top = [&](WordLines words, Rows rows) {
    Lines lines = header(report, words, output);
    lines.emplace_back();
    if (report.cases > 0 || report.known_cases > 0) append(lines, law_table(report, rows, output));
    append(lines, ledger);
    return lines;
  };
  // A failure is told by its case, so that the laws that passed need no rows.
  const Rows richest = report.failures.empty() ? Rows::kAll : Rows::kNoteworthy;
  Lines lines;
  for (const auto& [words, rows] : {std::pair{kAllWords, richest},
                                    {kFewWords, richest},
                                    {kFewWords, Rows::kNoteworthy},
                                    {kFewWords, Rows::kNone}}) {
    lines = top(words, rows);
    if (lines.size() + first.size() <= room) break;
  }
  append(lines, first);
  std::size_t shown = report.failures.empty() ? 0 : 1;
  for (; shown < report.failures.size(); ++shown) {
    const std::size_t others = 2 * (report.failures.size() - shown - 1);
    Lines block = failure_lines(report.failures[shown], true, output);
    if (lines.size() + block.size() + others > room) block = failure_lines(report.failures[shown], false, output);
    if (lines.size() + block.size() > room) break;
    append(lines, block);
  }
  if (shown < report.failures.size()) {
    lines.push_back(
        fmt::format("and {} more failed laws: see the table, and --json for all", report.failures.size() - shown));
  }
  lines.emplace_back();
  append(lines, meaning);
  return fmt::format("{}\n", fmt::join(lines, "\n"));
}

}  // namespace samebits::harness
