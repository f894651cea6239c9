#include "harness/cli/failures.h"

#include <fmt/format.h>

#include <chrono>
#include <stdexcept>

#include "harness/backend/backend.h"
#include "harness/cli/interrupt.h"
#include "harness/cli/known_answer.h"
#include "harness/io/files.h"
#include "harness/report/case_text.h"
#include "properties/boundaries.h"

namespace samebits::harness {
namespace {

// Ends the shrinking of a law that a slow or hanging router would draw out: 2000 evaluations of 20 s are half a day.
constexpr std::chrono::seconds kShrinkTime{60};

void shrink_failure(const FirstFailure& first, properties::Subject& subject, Progress& progress, Failure& failure) {
  const std::string& law = first.violation.law;
  const auto start = std::chrono::steady_clock::now();
  bool out_of_time = false;
  const auto on_progress = [&](int evaluations, const properties::Case& current) {
    progress.update(fmt::format("shrinking {}: {} evaluations, now {}", law, evaluations, case_sizes(current)));
    out_of_time = std::chrono::steady_clock::now() - start >= kShrinkTime;
    return !interrupted() && !out_of_time;
  };
  const properties::ShrinkLimits limits;
  try {
    properties::ShrinkResult result = properties::shrink(first.file.c, law, subject, limits, on_progress);
    failure.shrunk = std::move(result.minimal);
    failure.violation = std::move(result.violation);
    failure.violation.law = law;
    failure.shrink_evaluations = result.evaluations;
    if (interrupted()) {
      failure.shrink_stopped = "interrupted";
    } else if (out_of_time) {
      failure.shrink_stopped = fmt::format("stopped after {} s", kShrinkTime.count());
    } else {
      failure.shrink_stopped = evaluation_limit(result, limits);
    }
  } catch (const Interrupted&) {
    // The case stays as it was met.
  } catch (const std::invalid_argument&) {
    // A router without run_to_run may not fail a second time: the case stays as it was met.
    failure.violation.notes.push_back(
        "did not fail again when it was run to be shrunk: the router is not deterministic");
  }
}

// The exact row counts at which the bits of the failing row change, as the first notes: the runs of a case name only
// some.
void add_boundaries(properties::Subject& subject, Failure& failure) {
  constexpr std::int64_t kMostRows = 1025;
  const properties::Case& c = failure.shrunk;
  const std::int64_t row = failure.violation.row;
  if (row < 0 || row >= c.description.num_tokens) return;
  try {
    const properties::Boundaries found =
        properties::find_boundaries(subject, c, properties::materialize(c), row, kMostRows);
    const std::vector<std::string> notes = properties::boundary_notes(found);
    failure.violation.notes.insert(failure.violation.notes.begin(), notes.begin(), notes.end());
  } catch (const Interrupted&) {
    // The failure is told without them.
  }
}

}  // namespace

std::string evaluation_limit(const properties::ShrinkResult& result, const properties::ShrinkLimits& limits) {
  if (result.evaluations < limits.max_evaluations) return "";
  return fmt::format("stopped after {} evaluations", limits.max_evaluations);
}

std::string repro_line(const std::string& program, const std::filesystem::path& case_file,
                       const std::string& backend_words) {
  return fmt::format("{} replay --case {} {}", shell_word(program), shell_word(case_file.string()), backend_words);
}

std::vector<Failure> keep_failures(const std::vector<FirstFailure>& first_failures, properties::Subject& subject,
                                   const FailureOptions& options, Progress& progress) {
  std::vector<Failure> failures;
  for (const FirstFailure& first : first_failures) {
    Failure failure;
    failure.violation = first.violation;
    failure.original_summary = first.violation.summary;
    failure.case_index = first.case_index;
    failure.shrunk = first.file.c;
    failure.known_case = first.known_case;
    const bool stated = first.violation.law == known_answer_law().id;  // the answer belongs to the case as it is
    if (options.shrink && !stated && !interrupted()) shrink_failure(first, subject, progress, failure);
    if (first.violation.law == "batch_invariance" && !interrupted()) {
      progress.update("searching the row counts at which the bits change");
      add_boundaries(subject, failure);
    }
    CaseFile file = first.file;
    file.c = failure.shrunk;
    const std::string name = fmt::format("{}-{:016x}.yaml", first.violation.law, case_hash(file.c));
    const std::filesystem::path path = options.corpus / name;
    std::filesystem::create_directories(options.corpus);
    write_case_file(path, file);
    failure.case_file = path.string();
    failure.repro = repro_line(options.program, path, options.backend_words);
    failures.push_back(std::move(failure));
  }
  progress.clear();
  return failures;
}

}  // namespace samebits::harness
