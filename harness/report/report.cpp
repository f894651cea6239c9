#include "harness/report/report.h"

#include <algorithm>

namespace samebits::harness {

using properties::Verdict;

int exit_code(const Report& report) {
  constexpr int kClean = 0, kBroken = 1, kTooLittle = 4, kInterrupted = 130;
  if (report.interrupted) return kInterrupted;
  const auto any = [&](Verdict verdict) {
    return std::any_of(report.laws.begin(), report.laws.end(),
                       [&](const auto& entry) { return entry.second.verdict == verdict; });
  };
  if (any(Verdict::kFail) || !report.failures.empty()) return kBroken;
  if ((report.cases == 0 && !report.only_known_cases) || !any(Verdict::kPass)) return kTooLittle;
  if (!specs_not_met(report).empty()) return kTooLittle;
  return report.command != "replay" && any(Verdict::kInconclusive) ? kTooLittle : kClean;
}

std::vector<std::string> specs_not_met(const Report& report) {
  std::vector<std::string> names;
  for (const SpecRun& run : report.specs) {
    if (run.not_met()) names.push_back(run.layer.empty() ? run.name : run.name + " layer " + run.layer);
  }
  return names;
}

std::int64_t specs_short_of(const Report& report, const std::string& law) {
  return std::count_if(report.specs.begin(), report.specs.end(), [&](const SpecRun& run) {
    return std::find(run.inconclusive.begin(), run.inconclusive.end(), law) != run.inconclusive.end();
  });
}

std::string verdict_text(const Report& report, const properties::Law& law, const properties::LawTally& tally) {
  const bool tolerated = tally.verdict == Verdict::kPass && report.tolerated.contains(law.id);
  return tolerated ? "tolerated" : to_text(tally.verdict);
}

const char* to_text(Verdict verdict) {
  switch (verdict) {
    case Verdict::kPass:
      return "pass";
    case Verdict::kFail:
      return "fail";
    case Verdict::kInconclusive:
      return "inconclusive";
    case Verdict::kNotApplicable:
      return "not_applicable";
  }
  return "unknown";
}

}  // namespace samebits::harness
