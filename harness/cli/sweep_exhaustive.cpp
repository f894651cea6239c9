// samebits sweep --exhaustive: every input of a kind, in batches. A failing row is tried alone, so that most failures
// end in a small case file that `replay` shows.
#include <fmt/format.h>

#include <algorithm>

#include "harness/cli/failures.h"
#include "harness/cli/interrupt.h"
#include "harness/cli/output.h"
#include "harness/cli/sweep.h"
#include "harness/io/files.h"
#include "harness/io/nearest.h"
#include "harness/report/case_text.h"
#include "properties/exhaustive/exhaustive.h"

namespace samebits::harness {
namespace {

using properties::ExhaustiveSweep;
using properties::SweepBatch;

// Those that the runs of a batch can show: main, repeat and permuted.
constexpr const char* kLaws[] = {"termination",     "buffers",    "run_to_run", "batch_invariance",
                                 "unique_in_range", "non_finite", "precision",  "selection",
                                 "order",           "weights",    "sum",        "bookkeeping"};
// The shape for which pairs are enumerated when none is given: that of GLM-5.3-Flash, 288 experts.
constexpr const char* kDefaultSpec = "glm-5.3-flash";

std::vector<const ExhaustiveSweep*> chosen_sweeps(const SweepOptions& options) {
  std::vector<const ExhaustiveSweep*> chosen;
  std::vector<std::string> names{"all"};
  for (const ExhaustiveSweep& sweep : properties::exhaustive_sweeps()) {
    names.emplace_back(sweep.name);
    if (options.exhaustive == "all" || options.exhaustive == sweep.name) chosen.push_back(&sweep);
  }
  if (chosen.empty()) {
    throw UsageError(fmt::format("--exhaustive: unknown sweep \"{}\"; {}", options.exhaustive,
                                 suggest_names(options.exhaustive, names)));
  }
  const bool takes_spec = options.exhaustive == "all" || chosen.front()->takes_spec;
  if (!options.spec.spec.empty() && !takes_spec) {
    throw UsageError(fmt::format("--spec {}: the sweep {} enumerates specs of its own; leave --spec out",
                                 options.spec.spec, options.exhaustive));
  }
  return chosen;
}

// What one sweep enumerated, as a line of the report.
struct Count {
  const ExhaustiveSweep* sweep;
  std::int64_t size = 0, done = 0, refused = 0, unsupported = 0;

  std::string text() const {
    std::string line = fmt::format("{}: {} of {} {}", sweep->name, grouped(done), grouped(size), sweep->item);
    if (refused > 0) line += fmt::format(", {} more are no valid specs", grouped(refused));
    if (unsupported > 0) line += fmt::format(", {} not supported by the router", grouped(unsupported));
    return line;
  }
};

// An enumeration is complete: a law that it holds no input for is not a lack of testing, unless it was made for it.
void note_unmet(const std::vector<Count>& counts, Report& report) {
  for (auto& [law, tally] : report.laws) {
    const bool meant = std::any_of(counts.begin(), counts.end(),
                                   [id = law->id](const Count& count) { return std::string(count.sweep->law) == id; });
    if (!tally.applicable || tally.relevant > 0 || meant) continue;
    tally.applicable = false;
    tally.verdict = properties::Verdict::kNotApplicable;
    tally.not_applicable_reason = "no input of the sweep exercises it";
  }
}

// The failing row alone where it fails alone too, under the runs of `replay`; nothing where only the sweep shows it.
bool reduce(FirstFailure& first, properties::Subject& subject) {
  const auto fails = [&](const properties::Case& c) {
    const auto results = properties::evaluate(c, subject, {first.violation.law});
    return !results.empty() && results.front().outcome.violation;
  };
  if (first.violation.row >= 0 && first.violation.row < first.file.c.description.num_tokens) {
    properties::Case alone = properties::only_row(first.file.c, first.violation.row);
    if (fails(alone)) {
      first.file.c = std::move(alone);
      return true;
    }
  }
  return fails(first.file.c);
}

Failure unreduced(const FirstFailure& first, const SweepOptions& options, const std::string& program) {
  Failure failure;
  failure.violation = first.violation;
  failure.original_summary = first.violation.summary;
  failure.shrunk = first.file.c;
  const std::string spec = options.spec.spec.empty() ? "" : fmt::format(" --spec {}", shell_word(options.spec.spec));
  failure.repro = fmt::format("{} sweep --exhaustive {}{} {}", shell_word(program),
                              shell_word(first.file.c.description.hazard), spec, options.backend.words());
  return failure;
}

}  // namespace

int sweep_exhaustive(const SweepOptions& options, const std::string& program) {
  const std::vector<const ExhaustiveSweep*> sweeps = chosen_sweeps(options);
  SpecOptions spec_options = options.spec;
  if (spec_options.spec.empty()) spec_options.spec = kDefaultSpec;
  const ChosenSpec spec = resolve_runnable_spec(spec_options);
  if (!options.json.empty()) check_writable_file(options.json);
  const std::unique_ptr<properties::Subject> subject = open(options.backend);

  const std::vector<std::string> laws =
      options.laws.empty() ? std::vector<std::string>{std::begin(kLaws), std::end(kLaws)} : options.laws;
  Report header = sweep_header(options, spec, *subject);
  if (!sweeps.front()->takes_spec) {  // and with all of them the pairs of one more
    header.spec =
        fmt::format("those of {}", sweeps.size() == 1 ? options.exhaustive : "the sweeps, and " + header.spec);
  }
  Campaign campaign(std::move(header), laws);
  campaign.count_all_as(spec.spec);
  Progress progress(progress_mode(options.progress));

  std::vector<Count> counts;
  for (const ExhaustiveSweep* sweep : sweeps) {
    const std::unique_ptr<properties::SweepStream> stream = sweep->open(spec.spec);
    Count& count = counts.emplace_back(Count{sweep, stream->size()});
    try {
      while (!interrupted()) {
        const std::optional<SweepBatch> batch = stream->next();
        if (!batch) break;
        progress.update(fmt::format("sweep {} on {}: {}/{} {}", sweep->name, options.backend.name(),
                                    grouped(count.done), grouped(count.size), sweep->item));
        if (const auto reason = subject->unsupported(batch->c.spec)) {
          campaign.skip(*reason);
          count.unsupported += batch->items;
          continue;
        }
        CaseFile file;
        file.c = batch->c;
        CaseRuns runs;
        runs.inputs = *batch->c.description.data;
        runs.runs = subject->run(batch->c, runs.inputs, properties::exhaustive_runs(*batch, subject->claims()));
        campaign.add(file, runs);
        count.done += batch->items;
      }
    } catch (const Interrupted&) {
      // What was found before is reported.
    }
    count.refused = stream->refused();
    if (interrupted()) break;
  }

  progress.clear();
  Report report = campaign.finish(interrupted());
  note_unmet(counts, report);
  for (const Count& count : counts) report.notes.push_back(count.text());
  for (FirstFailure first : campaign.first_failures()) {
    if (!interrupted() && reduce(first, *subject)) {
      for (Failure& failure : keep_failures({std::move(first)}, *subject,
                                            {true, options.corpus, program, options.backend.words()}, progress)) {
        report.failures.push_back(std::move(failure));
      }
    } else {
      report.failures.push_back(unreduced(first, options, program));
    }
  }
  report.interrupted = interrupted();
  publish(report, options.json);
  return exit_code(report);
}

}  // namespace samebits::harness
