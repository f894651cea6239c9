// A law: a statement that must hold for every case, judged from data alone.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "oracle/reference/answer.h"
#include "properties/case.h"
#include "properties/claims.h"
#include "properties/run.h"

namespace samebits::properties {

struct Violation {
  std::string law;
  std::string summary;    // one line: row, expert or slot, observed (decimal and bits), expected
  std::int64_t row = -1;  // row of the case; -1: not tied to one
  std::int64_t slot = -1;
  std::string observed;
  std::string expected;
  std::vector<std::string> notes;  // further lines, e.g. "rows agree for T <= 16, differ from 17"
};

struct LawOutcome {
  std::int64_t relevant = 0;           // rows or comparisons in which the law could have failed
  std::optional<Violation> violation;  // the first one
};

class OracleAnswers;  // properties/oracle_answers.h: the case's rows, computed on demand and kept

struct Evidence {
  const Case& c;
  const Claims& claims;
  const oracle::RouterInputs& inputs;
  const std::vector<Run>& runs;
  OracleAnswers& oracle;
  const Run* find(const std::string& id) const;  // nullptr: that run was not made
};

struct Law {
  const char* id;             // file name, JUnit name, SARIF ruleId
  const char* statement;      // what must hold
  const char* source;         // where the demand comes from
  const char* hazards;        // what a run must meet before a pass means anything
  std::int64_t min_relevant;  // fewer over a whole run: inconclusive
  // A reason why this spec or these claims cannot exercise the law; nullopt: applicable.
  std::optional<std::string> (*not_applicable)(const oracle::RouterSpec& spec, const Claims& claims);
  LawOutcome (*check)(const Evidence& evidence);
};

// In the order in which they are judged and printed: self-consistency first, then against the oracle.
std::span<const Law> all_laws();
const Law* find_law(const std::string& id);

enum class Verdict { kPass, kFail, kInconclusive, kNotApplicable };

}  // namespace samebits::properties
