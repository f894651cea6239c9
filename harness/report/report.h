// The result of a run; report.json is the source of every other form.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "properties/judge.h"

namespace samebits::harness {

struct Failure {
  properties::Violation violation;  // of the shrunk case
  properties::Case shrunk;
  std::uint64_t case_index = 0;  // of the original case
  std::string known_case;        // instead, the built-in case file
  std::string original_summary;  // the violation before shrinking
  int shrink_evaluations = 0;    // 0: not shrunk
  std::string shrink_stopped;    // "stopped after 60 s" when a limit ended it, so that a smaller case may exist
  std::string case_file;         // where the shrunk case was written; empty: nowhere
  std::string repro;             // one command line
};

struct Shapes {
  std::int64_t hidden_size_min = 0, hidden_size_max = 0, num_experts_min = 0, num_experts_max = 0, top_k_min = 0,
               top_k_max = 0, num_tokens_max = 0;
  std::set<std::int64_t> num_tokens;  // every T of a case
};

// One of the routers of a run over many.
struct SpecRun {
  std::string name, layer;
  std::int64_t cases = 0, rows = 0, skipped = 0;
  std::string skip_reason;                // of the first of them, or why none was run
  std::vector<std::string> inconclusive;  // laws that met too little on this router alone

  // It can be run, and the run ended before its turn.
  bool not_met() const { return cases == 0 && skip_reason.empty(); }
};

// What became of an entry of the ledger of known faults.
struct LedgerOutcome {
  std::string subject, link, mode, expires;
  enum class State { kFound, kPassesNow, kNotMet, kQuarantined, kExpired } state = State::kNotMet;
  std::int64_t cases = 0;     // that it covers
  std::int64_t findings = 0;  // tolerated
  std::string first;          // summary of the first of them
};

// A claim of the router and whether this run could have refuted it.
struct ClaimVerdict {
  std::string claim;  // "determinism batch_invariant"
  enum class State { kVerified, kRefuted, kNotVerified } state = State::kNotVerified;
  std::string by;  // laws that judge it; for kNotVerified: why they could not
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
  std::int64_t known_cases = 0;                  // case files that were run before the generated cases
  bool only_known_cases = false;                 // no others were asked for
  std::map<std::string, std::int64_t> hazards;   // cases per hazard label
  std::map<std::string, std::int64_t> families;  // cases per family of a tensor: "hidden order_sensitive"
  std::vector<std::string> hazards_not_met;      // that the specs have and no case provoked; fuzz only
  std::vector<SpecRun> specs;                    // of a run over many
  std::vector<LedgerOutcome> ledger;
  std::map<std::string, std::int64_t> tolerated;  // findings per law that the ledger tolerates
  std::set<std::string> broken_by_known_cases;    // laws; their findings count for known_answer alone
  std::vector<std::pair<const properties::Law*, properties::LawTally>> laws;
  std::vector<Failure> failures;  // first per law
};

// 130 interrupted; 1 a law was broken; 4 nothing was judged, an applicable law met too little, or one of the specs met
// no case. A replay judges named cases, so there the minimum of a whole run does not count: 4 only when no law was
// relevant at all.
int exit_code(const Report& report);
const char* to_text(properties::Verdict verdict);
// to_text, or "tolerated" for a pass with findings that the ledger tolerates.
std::string verdict_text(const Report& report, const properties::Law& law, const properties::LawTally& tally);
// Every claim of the router that can be judged.
std::vector<ClaimVerdict> claim_verdicts(const Report& report);
// Of a run over many specs; empty for another. Names of those whose turn did not come, and how many specs a law met too
// little on alone.
std::vector<std::string> specs_not_met(const Report& report);
std::int64_t specs_short_of(const Report& report, const std::string& law);
// What the verdict of this run means and what it does not, in sentences for people.
std::vector<std::string> meaning_lines(const Report& report);
std::string to_json(const Report& report);
// Where the text goes: long lines are wrapped on a terminal, and whole anywhere else.
enum class Output : std::uint8_t { kTerminal, kFile };
std::string to_console(const Report& report, Output output);  // 40 lines at most, unless the first failure needs more

}  // namespace samebits::harness
