// Which claims of a router a run could have refuted, and did not.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "harness/report/report.h"

namespace samebits::harness {
namespace {

using properties::Verdict;
using State = ClaimVerdict::State;

// "" when the law passed; else why it says nothing.
std::string silence(const Report& report, const std::string& law) {
  for (const auto& [entry, tally] : report.laws) {
    if (law != entry->id) continue;
    if (tally.verdict == Verdict::kNotApplicable) return fmt::format("{}: {}", law, tally.not_applicable_reason);
    if (tally.verdict == Verdict::kInconclusive) return law + " met too few cases";
    return report.tolerated.contains(law) ? law + " has findings that the ledger tolerates" : "";
  }
  return law + " was not judged";
}

bool failed(const Report& report, const std::string& law) {
  const bool in_a_case = std::any_of(report.laws.begin(), report.laws.end(), [&](const auto& entry) {
    return law == entry.first->id && entry.second.verdict == Verdict::kFail;
  });
  return in_a_case || report.broken_by_known_cases.contains(law);
}

// Verified when all laws passed that can be told from `optional` ones, which may be silent for want of a subject.
ClaimVerdict judged(const Report& report, std::string claim, const std::vector<std::string>& laws) {
  ClaimVerdict verdict{std::move(claim), State::kVerified, fmt::format("{}", fmt::join(laws, ", "))};
  for (const std::string& law : laws) {
    if (failed(report, law)) return {verdict.claim, State::kRefuted, law};
  }
  for (const std::string& law : laws) {
    if (const std::string why = silence(report, law); !why.empty()) return {verdict.claim, State::kNotVerified, why};
  }
  return verdict;
}

bool met(const Report& report, std::initializer_list<const char*> hazards) {
  return std::any_of(hazards.begin(), hazards.end(),
                     [&](const char* hazard) { return report.hazards.contains(hazard); });
}

bool applicable(const Report& report, const std::string& law) {
  return std::any_of(report.laws.begin(), report.laws.end(),
                     [&](const auto& entry) { return law == entry.first->id && entry.second.applicable; });
}

}  // namespace

std::vector<ClaimVerdict> claim_verdicts(const Report& report) {
  using properties::Determinism;
  const properties::Claims& claims = report.claims;
  std::vector<ClaimVerdict> verdicts;
  // A spec chooses by key or by a table; a run over many specs has both.
  std::vector<std::string> choice;
  if (!applicable(report, "hash_routing") || applicable(report, "selection")) choice.emplace_back("selection");
  if (applicable(report, "hash_routing")) choice.emplace_back("hash_routing");

  std::vector<std::string> laws = claims.returns_logits ? std::vector<std::string>{"precision"} : choice;
  if (claims.returns_logits) laws.insert(laws.end(), choice.begin(), choice.end());
  laws.emplace_back("weights");
  verdicts.push_back(judged(report, "arithmetic " + oracle::arithmetic_name(claims.arithmetic), laws));
  // A stated answer that is contradicted without breaking a law is one of every bit.
  if (failed(report, "known_answer") && report.broken_by_known_cases.empty()) {
    verdicts.back().state = State::kRefuted;
    verdicts.back().by = "known_answer";
  }
  // Given logits come out as they went in: that says nothing of those that the router computes.
  const auto ask_for_hidden_states = [&] {
    if (verdicts.back().state != State::kVerified || report.shapes.hidden_size_max > 0) return;
    verdicts.back().state = State::kNotVerified;
    verdicts.back().by = "every case started from given logits";
  };
  ask_for_hidden_states();
  if (claims.determinism != Determinism::kNone) verdicts.push_back(judged(report, "run_to_run", {"run_to_run"}));
  if (claims.determinism == Determinism::kBatchInvariant) {
    verdicts.push_back(judged(report, "batch_invariant", {"batch_invariance"}));
  }
  if (claims.tie_rule == properties::TieRule::kLowestIndex) {
    verdicts.push_back(judged(report, "ties lowest_index", {"selection"}));
    if (verdicts.back().state == State::kVerified &&
        !met(report, {"exact_ties", "ties_across_cut", "weak_orders", "tied_pairs"})) {
      verdicts.back().state = State::kNotVerified;
      verdicts.back().by = "no case with equal keys at the cut";
    }
  }
  if (claims.output_order == properties::OutputOrder::kKeyDescThenIndex) {
    verdicts.push_back(judged(report, "order key_desc_then_index", {"order"}));
  }
  if (claims.returns_logits) {
    verdicts.push_back(judged(report, "returned logits", {"precision"}));
    ask_for_hidden_states();
  }
  if (claims.returns_bookkeeping) verdicts.push_back(judged(report, "bookkeeping", {"bookkeeping"}));
  return verdicts;
}

}  // namespace samebits::harness
