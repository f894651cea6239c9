// The end of a report: what its verdict means, and what it does not.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/report/case_text.h"
#include "harness/report/lines.h"
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
  std::string text = fmt::format("{} cases ({} rows)", grouped(report.cases), grouped(report.rows));
  if (!report.spec.empty()) text += (report.spec.starts_with("of ") ? " " : " of ") + report.spec;
  if (!report.variant.empty()) text += ", variant " + report.variant;
  if (report.command == "fuzz") text += fmt::format(", seed {}", report.seed);
  return text;
}

std::string sentence(const Report& report) {
  switch (exit_code(report)) {
    case 0:
      return fmt::format(
          "A pass means that no law was broken in these {}, under these claims; it is no proof for what "
          "is not listed above.",
          tested(report));
    case 1:
      return "A failure means that the router does not keep what it claims; the case above shows it with the fewest "
             "numbers found, not with every fault it has.";
    case 130:
      return "Interrupted: the verdicts cover the cases judged so far; a pass of a part says nothing about the rest.";
    default:
      break;
  }
  if (report.cases > 0) {
    return "Too little was tested for a verdict: an inconclusive law met fewer relevant comparisons than it needs; "
           "this "
           "is not a pass.";
  }
  if (report.skipped == 0) return "Nothing was tested: no case was run; this is not a pass.";
  return fmt::format("Nothing was tested: the router refused all {} cases; this is not a pass. Its reason: {}",
                     grouped(report.skipped), report.skip_reason);
}

}  // namespace

std::vector<std::string> meaning_lines(const Report& report) {
  std::vector<std::string> lines;
  // A failure is told by its case; what else was met matters to a pass.
  if (report.cases > 0 && exit_code(report) != 1) {
    std::vector<std::string> verified, not_verified;
    for (const ClaimVerdict& claim : claim_verdicts(report)) {
      if (claim.state == State::kVerified) verified.push_back(claim.claim);
      if (claim.state == State::kNotVerified) not_verified.push_back(fmt::format("{} ({})", claim.claim, claim.by));
    }
    lines.push_back("verified here: " + list(verified));
    lines.push_back("not verified:  " + list(not_verified));
    lines.push_back("rows a case:   " + ranges(report.shapes.num_tokens));
    const std::vector<std::string> idle = laws_with(report, Verdict::kInconclusive);
    std::string unmet = "not judged:    laws " + list(laws_with(report, Verdict::kNotApplicable));
    if (!idle.empty()) unmet += "; inconclusive " + list(idle);
    if (!report.hazards_not_met.empty()) unmet += "; hazards not met " + list(report.hazards_not_met);
    lines.push_back(unmet);
    for (std::string& line : lines) line = clipped(line, 160);
  }
  lines.push_back(clipped(sentence(report), 400));
  return lines;
}

}  // namespace samebits::harness
