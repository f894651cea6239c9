// The ledger of known faults: findings that a project has an issue for. YAML; docs/files.md has the format.
#pragma once

#include <chrono>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "harness/io/case_file.h"
#include "harness/report/report.h"
#include "properties/law.h"

namespace samebits::harness {

struct LedgerEntry {
  enum class Mode { kTolerate, kQuarantine };
  Mode mode = Mode::kTolerate;
  std::string router, version;      // as the router describes itself; version may be empty: every one
  std::string law;                  // empty (quarantine only): whole cases
  std::string spec, hazard, known;  // which cases; empty: all. known: the name of a built-in case file
  std::string link;                 // where the fault is tracked
  std::string expires;              // YYYY-MM-DD, the last day on which it counts; empty: never

  // "selection on spec deepseek-v3, hazard exact_ties"
  std::string subject() const;
};

// Throws FileError: an unknown field, law, hazard or mode, a missing link, a date that is none, an entry twice.
std::vector<LedgerEntry> read_ledger(const std::filesystem::path& path);
// Of --ledger; an empty path has no entries.
std::vector<LedgerEntry> read_ledger_option(const std::string& path);
std::chrono::sys_days today();

// The entries for one router in one run, and what became of them.
class Ledger {
 public:
  Ledger() = default;
  Ledger(const std::vector<LedgerEntry>& entries, const properties::Claims& claims, std::chrono::sys_days today);

  // known_name, here and below: of a built-in case file; empty: any other case.
  // Whether a quarantine keeps the case from being run.
  bool quarantines(const CaseFile& file, const std::string& known_name);
  // What to do with the outcome of a law on a case: take it as it is, as a finding that is tolerated, or not at all.
  enum class Treatment { kJudge, kTolerate, kDrop };
  Treatment treat(const std::string& law, const CaseFile& file, const std::string& known_name,
                  const properties::LawOutcome& outcome);

  std::vector<LedgerOutcome> outcomes() const;
  // The link of a quarantine of the whole law that covered a case; "": none.
  std::string quarantine_of(const std::string& law) const;

 private:
  struct Line {
    LedgerEntry entry;
    bool expired = false;
    std::int64_t cases = 0, findings = 0;
    std::string first;
  };
  std::vector<Line> lines_;
};

}  // namespace samebits::harness
