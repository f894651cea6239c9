// samebits sweep --boundaries: where an unknown router changes a row's bits, to the row.
#include <fmt/format.h>

#include "harness/cli/interrupt.h"
#include "harness/cli/output.h"
#include "harness/cli/sweep.h"
#include "harness/io/files.h"
#include "harness/report/case_text.h"
#include "properties/boundaries.h"
#include "properties/generate.h"

namespace samebits::harness {
namespace {

// Each with other values; a kernel whose sum happens to round the same way in one row shows in another.
constexpr std::int64_t kProbedRows = 3;

// Whether they tell the same apart from which row it is.
bool same_answer(const properties::Boundaries& a, const properties::Boundaries& b) {
  return a.counts == b.counts && a.place_count == b.place_count && a.places == b.places && a.failure == b.failure;
}

}  // namespace

int sweep_boundaries(const SweepOptions& options, const std::string& program) {
  const ChosenSpec spec = resolve_runnable_spec(options.spec);
  if (!options.json.empty()) check_writable_file(options.json);
  const std::unique_ptr<properties::Subject> subject = open(options.backend);
  Progress progress(progress_mode(options.progress));

  // The first directed case: sums whose bits depend on the order of their terms.
  properties::Case c = properties::generate_case(spec.name, spec.variant, spec.spec, options.seed, 0, {});
  c.description.hazard = "boundaries";
  c.description.num_tokens = kProbedRows;
  const properties::Law& law = *properties::find_law("batch_invariance");
  Campaign campaign(sweep_header(options, spec, *subject), {law.id});
  if (const auto reason = subject->unsupported(c.spec)) campaign.skip(*reason);
  Report report = campaign.finish(false);
  const auto start = std::chrono::steady_clock::now();
  const bool judged = report.skipped == 0;
  if (judged) {
    const oracle::RouterInputs inputs =
        within_memory([&] { return "a case of " + case_sizes(c); }, [&] { return properties::materialize(c); });
    properties::LawTally tally;
    tally.applicable = subject->claims().determinism == properties::Determinism::kBatchInvariant;
    if (!tally.applicable) {
      tally.not_applicable_reason = "the router does not claim that a row's bits are independent of the other rows";
    }
    std::vector<properties::Boundaries> all;
    bool failed = false;
    try {
      for (std::int64_t row = 0; row < kProbedRows && !interrupted(); ++row) {
        progress.update(fmt::format("sweep {} on {}: row {} at up to {} rows", spec.name, options.backend.name(), row,
                                    grouped(options.rows)));
        const properties::Boundaries found =
            within_memory([&] { return fmt::format("calls of up to {} rows", options.rows); },
                          [&] { return properties::find_boundaries(*subject, c, inputs, row, options.rows); });
        ++report.cases;
        ++report.hazards[c.description.hazard];
        report.rows += found.runs;
        tally.relevant += found.runs;
        tally.cases += 1;
        tally.failed += found.found() ? 1 : 0;
        failed = failed || !found.failure.empty();
        report.shapes.num_tokens.insert(found.row_counts.begin(), found.row_counts.end());
        all.push_back(found);
      }
    } catch (const Interrupted&) {
      // What was found before is reported.
    }
    progress.clear();
    std::vector<std::string> notes;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i > 0 && same_answer(all[i], all[0])) {
        notes.push_back(fmt::format("row {}: the same as row 0", i));
        continue;
      }
      for (std::string& note : properties::boundary_notes(all[i])) notes.push_back(std::move(note));
    }
    report.notes.insert(report.notes.end(), notes.begin(), notes.end());
    report.shapes.num_tokens_max = all.empty() ? 0 : all.front().limit;
    report.shapes.hidden_size_min = report.shapes.hidden_size_max = c.description.hidden_size;
    report.shapes.num_experts_min = report.shapes.num_experts_max = c.description.num_experts;
    report.shapes.top_k_min = report.shapes.top_k_max = c.description.top_k;
    const bool broken = failed || (tally.applicable && tally.failed > 0);
    using properties::Verdict;
    tally.verdict = broken              ? Verdict::kFail
                    : !tally.applicable ? Verdict::kNotApplicable
                    : all.empty()       ? Verdict::kInconclusive
                                        : Verdict::kPass;
    report.laws = {{&law, tally}};
    if (broken) {
      Failure failure;
      failure.violation.law = law.id;
      failure.violation.summary = notes.front();
      failure.original_summary = notes.front();
      failure.shrunk = c;
      failure.repro = fmt::format("{} sweep --boundaries --spec {} {} --seed {} --rows {}", shell_word(program),
                                  shell_word(spec.name), options.backend.words(), options.seed, options.rows);
      report.failures.push_back(std::move(failure));
    }
  }
  report.interrupted = interrupted();
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  publish(report, options.json);
  // A router that does not claim to have none is asked, not judged.
  if (judged && !report.interrupted && report.failures.empty() && !report.laws.front().second.applicable) return 0;
  return exit_code(report);
}

}  // namespace samebits::harness
