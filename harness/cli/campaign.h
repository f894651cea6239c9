// The loop's memory that fuzz, check and replay share: verdicts of cases become a Report.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "harness/cli/ledger.h"
#include "harness/io/case_file.h"
#include "harness/io/known_cases.h"
#include "harness/report/report.h"
#include "properties/judge.h"

namespace samebits::harness {

// A case and what it was asked of a router; the step between a case and its verdicts, for run, fuzz and replay alike.
struct CaseRuns {
  oracle::RouterInputs inputs;
  std::vector<properties::Run> runs;
};
CaseRuns run_case(const properties::Case& c, properties::Subject& subject);

// The same of the first run alone: all rows in their order.
CaseRuns run_main(const properties::Case& c, properties::Subject& subject);

// The first failure of a law, as it was met.
struct FirstFailure {
  CaseFile file;  // law is set
  properties::Violation violation;
  std::uint64_t case_index = 0;
  std::string case_file;   // where it was read from; empty: generated
  std::string known_case;  // or the built-in case that it is
};

class Campaign {
 public:
  // `header`: command, spec, variant, backend, claims, seed. `laws`: of law_names(); empty: all.
  Campaign(Report header, std::vector<std::string> laws, Ledger ledger = {});

  // full_spec of `file` decides which laws apply. `source` is the file it was read from. Returns true when a law
  // failed.
  bool add(const CaseFile& file, const CaseRuns& runs, const std::string& source = {});
  // A built-in case with its main run. It counts for the law known_answer alone, whatever it breaks.
  bool add_known(const KnownCase& known, const CaseRuns& runs);
  // Which of the two kinds of laws are asked for: that of stated answers, and all others.
  bool judges_answers() const { return judges_answers_; }
  bool judges_cases() const { return judges_cases_; }
  void skip(const std::string& reason);
  // Whether the ledger keeps the case from being run; known_name: of a built-in case, or empty.
  bool quarantines(const CaseFile& file, const std::string& known_name = {});
  // Verdicts of all cases, whatever their specs, are counted as one. A law applies where it met anything.
  void count_all_as(const oracle::RouterSpec& spec) { counted_as_ = spec; }

  std::int64_t cases() const { return report_.cases; }
  std::int64_t rows() const { return report_.rows; }
  // In the order of all_laws(); known answers last.
  const std::vector<FirstFailure>& first_failures() const { return first_failures_; }
  // "batch_invariance, weights"
  std::string failed_laws() const;

  // Laws that met too little on this spec alone.
  std::vector<std::string> inconclusive_laws(const oracle::RouterSpec& full_spec) const;

  // Verdicts and seconds; failures are left to the caller.
  Report finish(bool was_interrupted);

 private:
  properties::Tally& tally_of(const oracle::RouterSpec& full_spec);
  void note_shapes(const properties::CaseDescription& description);
  bool note_failure(FirstFailure failure);
  // The stated answer of a case, as far as the claims determine it. results: of all laws on these runs.
  properties::LawOutcome judge_answer(const CaseFile& file, const CaseRuns& runs,
                                      const std::vector<properties::LawResult>& results) const;
  void count_answer(const properties::LawOutcome& outcome);

  Report report_;
  std::vector<std::string> laws_;  // of all_laws(); empty: all
  bool judges_answers_ = true, judges_cases_ = true;
  Ledger ledger_;
  std::optional<oracle::RouterSpec> counted_as_;
  std::vector<std::pair<oracle::RouterSpec, properties::Tally>> tallies_;  // per spec, in the order met
  properties::LawTally known_answers_;
  std::vector<FirstFailure> first_failures_;
  std::chrono::steady_clock::time_point start_;
};

}  // namespace samebits::harness
