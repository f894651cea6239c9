// The loop's memory that fuzz, check and replay share: verdicts of cases become a Report.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "harness/io/case_file.h"
#include "harness/report/report.h"
#include "properties/judge.h"

namespace samebits::harness {

// A case and what it was asked of a router; the step between a case and its verdicts, for run, fuzz and replay alike.
struct CaseRuns {
  oracle::RouterInputs inputs;
  std::vector<properties::Run> runs;
};
CaseRuns run_case(const properties::Case& c, properties::Subject& subject);

// The first failure of a law, as it was met.
struct FirstFailure {
  CaseFile file;  // law is set
  properties::Violation violation;
  std::uint64_t case_index = 0;
  std::string case_file;  // where it was read from; empty: generated
};

class Campaign {
 public:
  // `header`: command, spec, variant, backend, claims, seed.
  Campaign(Report header, std::vector<std::string> laws);

  // full_spec of `file` decides which laws apply. `source` is the file it was read from. Returns true when a law
  // failed.
  bool add(const CaseFile& file, const CaseRuns& runs, const std::string& source = {});
  void skip(const std::string& reason);

  std::int64_t cases() const { return report_.cases; }
  std::int64_t rows() const { return report_.rows; }
  // In the order of all_laws(); known answers last.
  const std::vector<FirstFailure>& first_failures() const { return first_failures_; }
  // "batch_invariance, weights"
  std::string failed_laws() const;

  // Verdicts and seconds; failures are left to the caller.
  Report finish(bool was_interrupted);

 private:
  properties::Tally& tally_of(const oracle::RouterSpec& full_spec);
  void note_shapes(const properties::CaseDescription& description);
  bool note_failure(const CaseFile& file, const properties::Violation& violation, const std::string& source);

  Report report_;
  std::vector<std::string> laws_;
  std::vector<std::pair<oracle::RouterSpec, properties::Tally>> tallies_;  // per spec, in the order met
  properties::LawTally known_answers_;
  std::vector<FirstFailure> first_failures_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace samebits::harness
