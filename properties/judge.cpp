#include "properties/judge.h"

#include <algorithm>
#include <stdexcept>

#include "properties/laws/rows.h"
#include "properties/oracle_answers.h"

namespace samebits::properties {
namespace {

// Laws by id, in the order of all_laws(); all when `ids` is empty.
std::vector<const Law*> select_laws(const std::vector<std::string>& ids) {
  for (const std::string& id : ids) {
    if (find_law(id) != nullptr) continue;
    std::string known;
    for (const Law& law : all_laws()) known.append(known.empty() ? "" : ", ").append(law.id);
    throw std::invalid_argument("unknown law '" + id + ("'; laws are: " + known));
  }
  std::vector<const Law*> laws;
  for (const Law& law : all_laws()) {
    if (ids.empty() || std::find(ids.begin(), ids.end(), law.id) != ids.end()) laws.push_back(&law);
  }
  return laws;
}

}  // namespace

const Run* Evidence::find(const std::string& id) const {
  const auto found = std::find_if(runs.begin(), runs.end(), [&](const Run& run) { return run.request.id == id; });
  return found == runs.end() ? nullptr : &*found;
}

std::vector<LawResult> judge(const Case& c, const Claims& claims, const oracle::RouterInputs& inputs,
                             const std::vector<Run>& runs, const std::vector<std::string>& laws) {
  const auto main = std::find_if(runs.begin(), runs.end(), [](const Run& run) { return run.request.id == "main"; });
  OracleAnswers answers(c, inputs, main == runs.end() ? inputs.valid_rows() : valid_rows(*main), claims);
  const Evidence evidence{c, claims, inputs, runs, answers};

  std::vector<LawResult> results;
  for (const Law* law : select_laws(laws)) {
    if (!law->not_applicable(c.spec, claims)) results.push_back({law, law->check(evidence)});
  }
  return results;
}

Tally::Tally(const oracle::RouterSpec& spec, const Claims& claims, const std::vector<std::string>& laws) {
  for (const Law* law : select_laws(laws)) {
    LawTally tally;
    if (const auto reason = law->not_applicable(spec, claims)) {
      tally.not_applicable_reason = *reason;
      tally.verdict = Verdict::kNotApplicable;
    } else {
      tally.applicable = true;
    }
    laws_.emplace_back(law, tally);
  }
}

void Tally::add(const std::vector<LawResult>& results) {
  for (const LawResult& result : results) {
    const auto entry =
        std::find_if(laws_.begin(), laws_.end(), [&](const auto& law) { return law.first == result.law; });
    if (entry == laws_.end()) continue;
    LawTally& tally = entry->second;
    // A case may have another shape than the spec of the run, so a law can apply to it all the same.
    tally.applicable = tally.applicable || result.outcome.relevant > 0;
    tally.cases += result.outcome.relevant > 0 ? 1 : 0;
    tally.relevant += result.outcome.relevant;
    tally.failed += result.outcome.violation ? 1 : 0;
  }
}

void Tally::finish() {
  for (auto& [law, tally] : laws_) {
    if (tally.failed > 0) {
      tally.verdict = Verdict::kFail;
    } else if (!tally.applicable) {
      tally.verdict = Verdict::kNotApplicable;
    } else {
      tally.verdict = tally.relevant < law->min_relevant ? Verdict::kInconclusive : Verdict::kPass;
    }
    if (tally.applicable) tally.not_applicable_reason.clear();
  }
}

}  // namespace samebits::properties
