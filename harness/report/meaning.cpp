// The end of a report: what its verdict means, and what it does not.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/report/case_text.h"
#include "harness/report/report.h"

namespace samebits::harness {
namespace {

using properties::Verdict;
using State = ClaimVerdict::State;

// "1-5, 8, 15-18"
std::string ranges(const std::set<std::int64_t>& numbers) {
  std::vector<std::string> words;
  for (auto it = numbers.begin(); it != numbers.end();) {
    const std::int64_t first = *it;
    std::int64_t last = first;
    for (++it; it != numbers.end() && *it == last + 1; ++it) last = *it;
    words.push_back(last == first       ? grouped(first)
                    : last == first + 1 ? fmt::format("{}, {}", grouped(first), grouped(last))
                                        : fmt::format("{}-{}", grouped(first), grouped(last)));
  }
  return fmt::format("{}", fmt::join(words, ", "));
}

std::vector<std::string> laws_with(const Report& report, Verdict verdict) {
  std::vector<std::string> names;
  for (const auto& [law, tally] : report.laws) {
    if (tally.verdict == verdict) names.emplace_back(law->id);
  }
  return names;
}

std::string list(const std::vector<std::string>& names) {
  return names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", "));
}

std::string tested(const Report& report) {
  std::string text = report.cases == 0 ? fmt::format("{} known cases", grouped(report.known_cases))
                                       : fmt::format("{} cases ({} rows)", grouped(report.cases), grouped(report.rows));
  if (!report.spec.empty()) text += (report.spec.starts_with("of ") ? " " : " of ") + report.spec;
  if (!report.variant.empty()) text += ", variant " + report.variant;
  if (report.command == "fuzz") text += fmt::format(", seed {}", report.seed);
  return text;
}

bool shrunk(const Report& report) {
  return !report.failures.empty() && report.failures.front().shrink_evaluations > 0;
}

// Laws that say nothing about this router: those that do not apply, and those that the run was not asked for.
std::string silent_laws(const Report& report) {
  constexpr std::size_t kNamed = 10;
  std::vector<std::string> names = laws_with(report, Verdict::kNotApplicable), unasked;
  for (const properties::Law& law : properties::all_laws()) {
    const bool asked =
        std::any_of(report.laws.begin(), report.laws.end(), [&](const auto& entry) { return entry.first == &law; });
    if (!asked) unasked.emplace_back(law.id);
  }
  const bool many = unasked.size() > kNamed;
  if (!many) names.insert(names.end(), unasked.begin(), unasked.end());
  if (!many || !names.empty()) names = {"laws " + list(names)};
  if (many) names.push_back(fmt::format("{}the {} others of `list laws`", names.empty() ? "" : "and ", unasked.size()));
  return list(names);
}

std::string sentence(const Report& report) {
  switch (exit_code(report)) {
    case 0:
      return fmt::format(
          "A pass means that no law was broken in these {}, under these claims; it is no proof for what "
          "is not listed above.",
          tested(report));
    case 1:
      return fmt::format(
          "A failure means that the router does not keep what it claims; the case above shows it{}, not {}every fault "
          "it has.",
          shrunk(report) ? " with the fewest numbers found" : "", shrunk(report) ? "with " : "");
    case 130:
      return "Interrupted: the verdicts cover the cases judged so far; a pass of a part says nothing about the rest.";
    default:
      break;
  }
  if (const std::size_t specs = specs_not_met(report).size(); specs > 0) {
    return fmt::format(
        "Too little was tested for a verdict: the run ended before {} specs met a case, so this is no pass of all "
        "specs; a longer run meets them, and another --seed begins with others.",
        specs);
  }
  if (report.cases > 0) {
    return "Too little was tested for a verdict: an inconclusive law met fewer relevant comparisons than it needs; "
           "this is not a pass.";
  }
  if (report.skipped == 0) return "Nothing was tested: no case was run; this is not a pass.";
  return fmt::format("Nothing was tested: the router refused all {} cases; this is not a pass. Its reason: {}",
                     grouped(report.skipped), report.skip_reason);
}

}  // namespace

std::vector<std::string> meaning_lines(const Report& report) {
  std::vector<std::string> lines;
  std::vector<std::string> verified, not_verified, refuted;
  for (const ClaimVerdict& claim : claim_verdicts(report)) {
    if (claim.state == State::kVerified) verified.push_back(claim.claim);
    if (claim.state == State::kNotVerified) not_verified.push_back(fmt::format("{} ({})", claim.claim, claim.by));
    if (claim.state == State::kRefuted) refuted.push_back(fmt::format("{} ({})", claim.claim, claim.by));
  }
  if (!refuted.empty()) lines.push_back("refuted here:  " + list(refuted));
  // A failure is told by its case; what else was met matters to a pass.
  if (report.cases > 0 && exit_code(report) != 1) {
    lines.push_back("verified here: " + list(verified));
    lines.push_back("not verified:  " + list(not_verified));
    lines.push_back("rows a case:   " + ranges(report.shapes.num_tokens));
    const std::vector<std::string> idle = laws_with(report, Verdict::kInconclusive);
    std::string unmet = "not judged:    " + silent_laws(report);
    if (!idle.empty()) unmet += "; inconclusive " + list(idle);
    if (!report.hazards_not_met.empty()) unmet += "; hazards not met " + list(report.hazards_not_met);
    lines.push_back(unmet);
  }
  lines.push_back(sentence(report));
  return lines;
}

}  // namespace samebits::harness
