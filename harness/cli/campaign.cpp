#include "harness/cli/campaign.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/cli/known_answer.h"
#include "harness/cli/options.h"
#include "harness/report/case_text.h"
#include "oracle/spec/spec_yaml.h"

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

Campaign::Campaign(Report header, std::vector<std::string> laws)
    : report_(std::move(header)), laws_(std::move(laws)), start_(std::chrono::steady_clock::now()) {}

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
}

bool Campaign::note_failure(const CaseFile& file, const properties::Violation& violation, const std::string& source) {
  const bool seen = std::any_of(first_failures_.begin(), first_failures_.end(),
                                [&](const FirstFailure& first) { return first.violation.law == violation.law; });
  if (seen) return true;
  FirstFailure first{file, violation, file.c.description.index, source};
  first.file.law = violation.law;
  if (violation.law != known_answer_law().id) first.file.expected.reset();
  // In the order of the laws, so that the most basic fault is told first.
  const auto place = std::find_if(first_failures_.begin(), first_failures_.end(), [&](const FirstFailure& other) {
    return law_order(first.violation.law) < law_order(other.violation.law);
  });
  first_failures_.insert(place, std::move(first));
  return true;
}

bool Campaign::add(const CaseFile& file, const CaseRuns& runs, const std::string& source) {
  const properties::CaseDescription& description = file.c.description;
  ++report_.cases;
  report_.rows += description.num_tokens;
  ++report_.hazards[description.hazard];
  note_shapes(description);
  const std::vector<properties::LawResult> results =
      within_memory([&] { return "judging a case of " + case_sizes(file.c); },
                    [&] { return properties::judge(file.c, report_.claims, runs.inputs, runs.runs, laws_); });
  tally_of(file.full_spec ? *file.full_spec : file.c.spec).add(results);
  bool failed = false;
  for (const properties::LawResult& result : results) {
    if (!result.outcome.violation) continue;
    // The law that judged it names it: whatever a check wrote, the report has one word for it.
    properties::Violation violation = *result.outcome.violation;
    violation.law = result.law->id;
    failed = note_failure(file, violation, source) || failed;
  }
  if (file.expected) {
    const properties::LawOutcome outcome = check_known_answer(*file.expected, report_.claims, runs.runs);
    known_answers_.applicable = true;
    known_answers_.relevant += outcome.relevant;
    if (outcome.relevant > 0) ++known_answers_.cases;
    if (outcome.violation) {
      ++known_answers_.failed;
      failed = note_failure(file, *outcome.violation, source) || failed;
    }
  }
  return failed;
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
