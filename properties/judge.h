// Verdicts of one case, and their sum over a run.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "properties/law.h"

namespace samebits::properties {

struct LawResult {
  const Law* law;
  LawOutcome outcome;
};

// Every applicable law of `laws` (ids; empty: all) on the runs of one case. A run that crashed, timed out, returned an
// error, damaged a guard band or an input is a violation of `buffers` (damage) or `termination` (crash, hang, error).
std::vector<LawResult> judge(const Case& c, const Claims& claims, const oracle::RouterInputs& inputs,
                             const std::vector<Run>& runs, const std::vector<std::string>& laws = {});

struct LawTally {
  bool applicable = false;
  std::string not_applicable_reason;
  std::int64_t cases = 0;     // cases in which it was relevant
  std::int64_t relevant = 0;  // comparisons
  std::int64_t failed = 0;    // cases
  Verdict verdict = Verdict::kInconclusive;
};

// Sums LawResults of many cases; verdicts are final after finish().
class Tally {
 public:
  Tally(const oracle::RouterSpec& spec, const Claims& claims, const std::vector<std::string>& laws = {});
  void add(const std::vector<LawResult>& results);
  void finish();
  // In the order of all_laws().
  const std::vector<std::pair<const Law*, LawTally>>& laws() const { return laws_; }

 private:
  std::vector<std::pair<const Law*, LawTally>> laws_;
};

}  // namespace samebits::properties
