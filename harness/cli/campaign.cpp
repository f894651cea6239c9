#include "harness/cli/campaign.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/cli/known_answer.h"
#include "harness/cli/options.h"
#include "harness/io/description_yaml.h"
#include "harness/report/case_text.h"
#include "oracle/spec/spec_yaml.h"
#include "properties/explain_row.h"

namespace samebits::harness {
namespace {

using properties::LawTally;
using properties::Verdict;

std::ptrdiff_t law_order(const std::string& id) {
  const auto laws = properties::all_laws();
  return std::find_if(laws.begin(), laws.end(), [&](const properties::Law& law) { return law.id == id; }) -
         laws.begin();
}

// Tallies of two specs become one: a law that applies to either applies.
void merge(LawTally& into, const LawTally& from, std::int64_t min_relevant) {
  if (!from.applicable) return;
  if (!into.applicable) {
    into = from;
    return;
  }
  into.cases += from.cases;
  into.relevant += from.relevant;
  into.failed += from.failed;
  into.verdict = into.failed > 0                 ? Verdict::kFail
                 : into.relevant >= min_relevant ? Verdict::kPass
                                                 : Verdict::kInconclusive;
}

// Which known mistake gives the answer, where a law that the same row breaks says so.
void add_cause(const std::vector<properties::LawResult>& results, properties::Violation& violation) {
  for (const properties::LawResult& result : results) {
    if (!result.outcome.violation || result.outcome.violation->row != violation.row) continue;
    for (const std::string& note : result.outcome.violation->notes) {
      if (!note.starts_with(properties::kCauseLabel)) continue;
      violation.notes.push_back(note);
      return;
    }
  }
}

}  // namespace

CaseRuns run_case(const properties::Case& c, properties::Subject& subject) {
  return within_memory([&] { return "a case of " + case_sizes(c); },
                       [&] {
                         CaseRuns result;
                         result.inputs = properties::materialize(c);
                         result.runs = subject.run(c, result.inputs, properties::plan_runs(c, subject.claims()));
                         return result;
                       });
}

CaseRuns run_main(const properties::Case& c, properties::Subject& subject) {
  CaseRuns result;
  result.inputs = properties::materialize(c);
  result.runs = subject.run(c, result.inputs, {properties::plan_runs(c, subject.claims()).front()});
  return result;
}

Campaign::Campaign(Report header, std::vector<std::string> laws, Ledger ledger)
    : report_(std::move(header)),
      laws_(std::move(laws)),
      ledger_(std::move(ledger)),
      start_(std::chrono::steady_clock::now()) {
  if (laws_.empty()) return;
  judges_answers_ = std::erase(laws_, known_answer_law().id) > 0;
  judges_cases_ = !laws_.empty();
}

properties::Tally& Campaign::tally_of(const oracle::RouterSpec& full_spec) {
  for (auto& [spec, tally] : tallies_) {
    if (spec == full_spec) return tally;
  }
  tallies_.emplace_back(full_spec, properties::Tally(full_spec, report_.claims, laws_));
  return tallies_.back().second;
}

void Campaign::note_shapes(const properties::CaseDescription& description) {
  Shapes& shapes = report_.shapes;
  const auto note = [](std::int64_t value, std::int64_t& least, std::int64_t& most) {
    least = least == 0 ? value : std::min(least, value);
    most = std::max(most, value);
  };
  if (description.stage == properties::Stage::kFull) {
    note(description.hidden_size, shapes.hidden_size_min, shapes.hidden_size_max);
  }
  note(description.num_experts, shapes.num_experts_min, shapes.num_experts_max);
  note(description.top_k, shapes.top_k_min, shapes.top_k_max);
  shapes.num_tokens_max = std::max(shapes.num_tokens_max, description.num_tokens);
  shapes.num_tokens.insert(description.num_tokens);
}

bool Campaign::note_failure(FirstFailure failure) {
  const std::string law = failure.violation.law;
  const bool seen = std::any_of(first_failures_.begin(), first_failures_.end(),
                                [&](const FirstFailure& first) { return first.violation.law == law; });
  if (seen) return true;
  failure.case_index = failure.file.c.description.index;
  failure.file.law = law;
  if (law != known_answer_law().id) failure.file.expected.reset();
  // In the order of the laws, so that the most basic fault is told first.
  const auto place = std::find_if(first_failures_.begin(), first_failures_.end(), [&](const FirstFailure& other) {
    return law_order(law) < law_order(other.violation.law);
  });
  first_failures_.insert(place, std::move(failure));
  return true;
}

properties::LawOutcome Campaign::judge_answer(const CaseFile& file, const CaseRuns& runs,
                                              const std::vector<properties::LawResult>& results) const {
  properties::LawOutcome outcome = check_known_answer(*file.expected, report_.claims, runs.runs);
  const bool lawful = std::none_of(results.begin(), results.end(),
                                   [](const properties::LawResult& result) { return result.outcome.violation; });
  // A claim may leave the answer open: another of equal keys, another finite weight beside an infinite score.
  if (outcome.violation && lawful && !report_.claims.bit_exact()) return {};
  if (outcome.violation) add_cause(results, *outcome.violation);
  return outcome;
}

void Campaign::count_answer(const properties::LawOutcome& outcome) {
  known_answers_.applicable = true;
  known_answers_.relevant += outcome.relevant;
  known_answers_.cases += outcome.relevant > 0 ? 1 : 0;
  known_answers_.failed += outcome.violation ? 1 : 0;
}

bool Campaign::add(const CaseFile& file, const CaseRuns& runs, const std::string& source) {
  const properties::CaseDescription& description = file.c.description;
  const std::string known_name = std::filesystem::path(source).stem().string();
  ++report_.cases;
  report_.rows += description.num_tokens;
  ++report_.hazards[description.hazard];
  for (const std::string& family : description_families(description, file.c.spec)) ++report_.families[family];
  note_shapes(description);
  const auto judged = [&](const std::vector<std::string>& laws) {
    return within_memory([&] { return "judging a case of " + case_sizes(file.c); },
                         [&] { return properties::judge(file.c, report_.claims, runs.inputs, runs.runs, laws); });
  };
  std::vector<properties::LawResult> results = judges_cases_ ? judged(laws_) : std::vector<properties::LawResult>{};
  const bool stated = file.expected && judges_answers_;
  properties::LawOutcome answer;
  if (stated) answer = judge_answer(file, runs, judges_cases_ && laws_.empty() ? results : judged({}));

  bool failed = false;
  const auto settle = [&](const std::string& law, properties::LawOutcome& outcome) {
    const Ledger::Treatment treatment = ledger_.treat(law, file, known_name, outcome);
    if (treatment == Ledger::Treatment::kDrop) return false;
    if (!outcome.violation) return true;
    // The law that judged it names it: whatever a check wrote, the report has one word for it.
    outcome.violation->law = law;
    if (treatment == Ledger::Treatment::kTolerate) {
      ++report_.tolerated[law];
      outcome.violation.reset();
    } else {
      failed = note_failure({file, *outcome.violation, 0, source, ""}) || failed;
    }
    return true;
  };
  std::erase_if(results, [&](properties::LawResult& result) { return !settle(result.law->id, result.outcome); });
  if (judges_cases_) tally_of(counted_as_ ? *counted_as_ : file.full_spec ? *file.full_spec : file.c.spec).add(results);
  if (stated && settle(known_answer_law().id, answer)) count_answer(answer);
  return failed;
}

bool Campaign::add_known(const KnownCase& known, const CaseRuns& runs) {
  const CaseFile& file = known.file;
  const std::string law = known_answer_law().id;
  const auto results = properties::judge(file.c, report_.claims, runs.inputs, runs.runs);
  properties::LawOutcome outcome = judge_answer(file, runs, results);
  std::vector<std::string> broken;
  for (const properties::LawResult& result : results) {
    if (result.outcome.violation) broken.emplace_back(result.law->id);
    if (!result.outcome.violation || broken.size() > 1) continue;
    outcome.relevant = std::max<std::int64_t>(outcome.relevant, 1);
    outcome.violation = *result.outcome.violation;
    outcome.violation->summary =
        fmt::format("{} breaks {}: {}", known.name, result.law->id, outcome.violation->summary);
    outcome.violation->notes.insert(outcome.violation->notes.begin(),
                                    fmt::format("known fault ({}): {}", file.expected->source, file.expected->fault));
  }
  const Ledger::Treatment treatment = ledger_.treat(law, file, known.name, outcome);
  if (treatment == Ledger::Treatment::kDrop) return false;
  ++report_.known_cases;
  bool failed = false;
  if (outcome.violation) {
    outcome.violation->law = law;
    if (treatment == Ledger::Treatment::kTolerate) {
      ++report_.tolerated[law];
      outcome.violation.reset();
    } else {
      failed = note_failure({file, *outcome.violation, 0, "", known.name});
      report_.broken_by_known_cases.insert(broken.begin(), broken.end());
    }
  }
  count_answer(outcome);
  return failed;
}

bool Campaign::quarantines(const CaseFile& file, const std::string& known_name) {
  return ledger_.quarantines(file, known_name);
}

std::vector<std::string> Campaign::inconclusive_laws(const oracle::RouterSpec& full_spec) const {
  std::vector<std::string> names;
  for (const auto& [spec, tally] : tallies_) {
    if (!(spec == full_spec)) continue;
    for (const auto& [law, sum] : tally.laws()) {
      if (sum.applicable && sum.failed == 0 && sum.relevant < law->min_relevant) names.emplace_back(law->id);
    }
  }
  return names;
}

void Campaign::skip(const std::string& reason) {
  if (report_.skipped++ == 0) report_.skip_reason = reason;
}

std::string Campaign::failed_laws() const {
  std::vector<std::string> laws;
  for (const FirstFailure& first : first_failures_) laws.push_back(first.violation.law);
  return fmt::format("{}", fmt::join(laws, ", "));
}

Report Campaign::finish(bool was_interrupted) {
  Report report = report_;
  report.interrupted = was_interrupted;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  for (auto& [spec, tally] : tallies_) {
    tally.finish();
    for (const auto& [law, sum] : tally.laws()) {
      const auto found = std::find_if(report.laws.begin(), report.laws.end(),
                                      [law = law](const auto& entry) { return entry.first == law; });
      if (found == report.laws.end()) {
        report.laws.emplace_back(law, sum);
      } else {
        merge(found->second, sum, law->min_relevant);
      }
    }
  }
  for (auto& [law, sum] : report.laws) {
    const std::string link = ledger_.quarantine_of(law->id);
    if (link.empty() || sum.verdict != Verdict::kInconclusive) continue;
    sum.applicable = false;
    sum.verdict = Verdict::kNotApplicable;
    sum.not_applicable_reason = "quarantined by the ledger: " + link;
  }
  report.ledger = ledger_.outcomes();
  if (known_answers_.applicable) {
    known_answers_.verdict = known_answers_.failed > 0     ? Verdict::kFail
                             : known_answers_.relevant > 0 ? Verdict::kPass
                                                           : Verdict::kInconclusive;
    report.laws.emplace_back(&known_answer_law(), known_answers_);
  }
  if (report.command == "replay") {
    // Named cases: what they were chosen for was judged, however few comparisons that was.
    for (auto& [law, sum] : report.laws) {
      if (sum.verdict == Verdict::kInconclusive && sum.relevant > 0) sum.verdict = Verdict::kPass;
    }
  }
  return report;
}

}  // namespace samebits::harness
