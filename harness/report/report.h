// The result of a run; report.json is the source of every other form.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "properties/judge.h"

namespace samebits::harness {

struct Failure {
  properties::Violation violation;  // of the shrunk case
  properties::Case shrunk;
  std::uint64_t case_index = 0;  // of the original case
  std::string original_summary;  // the violation before shrinking
  int shrink_evaluations = 0;    // 0: not shrunk
  std::string shrink_stopped;    // "stopped after 60 s" when a limit ended it, so that a smaller case may exist
  std::string case_file;         // where the shrunk case was written; empty: nowhere
  std::string repro;             // one command line
};

struct Shapes {
  std::int64_t hidden_size_min = 0, hidden_size_max = 0, num_experts_min = 0, num_experts_max = 0, top_k_min = 0,
               top_k_max = 0, num_tokens_max = 0;
};

struct Report {
  std::string command;  // fuzz, check, replay
  std::string spec, variant, backend;
  std::vector<std::string> notes;  // on the spec: its layer, a size that was assumed
  properties::Claims claims;
  std::uint64_t seed = 0;
  std::int64_t cases = 0, rows = 0;  // judged
  std::int64_t skipped = 0;          // cases that the router does not support
  std::string skip_reason;           // of the first of them
  double seconds = 0.0;
  bool interrupted = false;
  Shapes shapes;
  std::map<std::string, std::int64_t> hazards;  // cases per hazard label
  std::vector<std::pair<const properties::Law*, properties::LawTally>> laws;
  std::vector<Failure> failures;  // first per law
};

// 130 interrupted; 1 a law was broken; 4 nothing was judged, or an applicable law met too little. A replay judges named
// cases, so there the minimum of a whole run does not count: 4 only when no law was relevant at all.
int exit_code(const Report& report);
const char* to_text(properties::Verdict verdict);
std::string to_json(const Report& report);
std::string to_console(const Report& report);  // 40 lines at most, unless the first failure needs more

}  // namespace samebits::harness
