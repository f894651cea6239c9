#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

#include "properties/explain_row.h"
#include "properties/laws/laws.h"
#include "properties/laws/rows.h"
#include "properties/oracle_answers.h"
#include "properties/spec_features.h"

namespace samebits::properties {
namespace {

std::vector<std::int64_t> without(std::vector<std::int64_t> ids, std::vector<std::int64_t> removed) {
  std::sort(ids.begin(), ids.end());
  std::sort(removed.begin(), removed.end());
  std::vector<std::int64_t> rest;
  std::set_difference(ids.begin(), ids.end(), removed.begin(), removed.end(), std::back_inserter(rest));
  return rest;
}

std::string cut_text(const oracle::RowAnswer<float>& answer) {
  if (answer.last_chosen < 0 || answer.first_rejected < 0) return "no expert is left below the cut";
  const float above = answer.keys[static_cast<std::size_t>(answer.last_chosen)];
  const float below = answer.keys[static_cast<std::size_t>(answer.first_rejected)];
  std::string line = "cut: expert " + std::to_string(answer.last_chosen) + " with key " + text(above) +
                     " above, expert " + std::to_string(answer.first_rejected) + " with key " + text(below) + " below";
  if (above == below) return line + "; equal keys, so the lower id is chosen";
  const std::string gap = ulp_text(above, below);
  return gap.empty() ? line : line + "; " + gap;
}

std::optional<Violation> check_exact(const Evidence& evidence, std::int64_t row, std::span<const std::int64_t> ids) {
  const oracle::RowAnswer<float>& answer = evidence.oracle.row(row);
  if (std::equal(ids.begin(), ids.end(), answer.ids.begin(), answer.ids.end())) return std::nullopt;
  const std::vector<std::int64_t> expected = answer_ids(answer);
  const std::vector<std::int64_t> observed(ids.begin(), ids.end());
  const std::vector<std::int64_t> extra = without(observed, expected);
  const std::vector<std::int64_t> missing = without(expected, observed);
  if (extra.empty() && missing.empty()) return std::nullopt;

  Violation violation;
  violation.law = kSelection.id;
  violation.row = row;
  violation.observed = text(ids);
  violation.expected = text(expected);
  violation.summary = "row " + std::to_string(row) + ":";
  if (extra.empty() || missing.empty()) {  // ids repeat or are out of range
    violation.summary += " the chosen ids are not the expected set";
  } else {
    const std::int64_t wrong = extra.front();
    violation.summary +=
        " " + expert_text(answer, wrong) + " was chosen, expected " + expert_text(answer, missing.front());
    violation.slot = std::find(ids.begin(), ids.end(), wrong) - ids.begin();
    const auto ranked = static_cast<std::int64_t>(answer.keys.size());
    if (wrong >= 0 && wrong < ranked && missing.front() < ranked) {
      const float a = answer.keys[static_cast<std::size_t>(wrong)];
      const float b = answer.keys[static_cast<std::size_t>(missing.front())];
      if (const std::string gap = ulp_text(a, b); !gap.empty()) violation.summary += ", " + gap;
    }
  }
  violation.summary += "; observed " + violation.observed + ", expected " + violation.expected;
  violation.notes.push_back(cut_text(answer));
  for (std::string& note : explain_ids(evidence.c.spec, evidence.inputs, row, evidence.oracle.logits(row), ids)) {
    violation.notes.push_back(std::move(note));
  }
  return violation;
}

std::optional<Violation> check_bounded(const Evidence& evidence, std::int64_t row, std::span<const std::int64_t> ids) {
  const BoundedRow& bounded = evidence.oracle.bounded(row);
  const auto contradiction = selection_contradiction(evidence.c.spec, bounded, ids, evidence.claims.tie_rule);
  if (!contradiction) return std::nullopt;
  Violation violation;
  violation.law = kSelection.id;
  violation.row = row;
  violation.slot = std::find(ids.begin(), ids.end(), contradiction->loser) - ids.begin();
  violation.observed = text(ids);
  violation.summary = "row " + std::to_string(row) + ": expert " + std::to_string(contradiction->loser) +
                      " was chosen, but " + contradiction->reason;
  if (contradiction->winner >= 0) {
    violation.expected =
        "expert " + std::to_string(contradiction->winner) + " before expert " + std::to_string(contradiction->loser);
    violation.summary +=
        keys_text(bounded, contradiction->winner, contradiction->loser) + " for any logits within the declared bound";
    if (same_key_by_construction(bounded, contradiction->loser, contradiction->winner)) {
      violation.notes.emplace_back("the keys are equal by construction and the router claims ties to the lower id");
    }
  }
  const oracle::RowAnswer<float>& answer = evidence.oracle.row(row);
  violation.notes.push_back("the contract tc256 chooses " + text(answer_ids(answer)) + "; " + cut_text(answer));
  for (std::string& note : explain_ids(evidence.c.spec, evidence.inputs, row, evidence.oracle.logits(row), ids)) {
    violation.notes.push_back(std::move(note));
  }
  return violation;
}

LawOutcome check(const Evidence& evidence) {
  LawOutcome outcome;
  const bool exact = evidence.claims.bit_exact();
  for (const JudgedRow& judged : answered_rows(evidence)) {
    const std::span<const std::int64_t> ids = judged.seen.ids;
    if (!exact && (!evidence.oracle.bounded(judged.row).judged || !ids_problem(evidence.c.spec, judged.seen).empty()))
      continue;
    outcome.relevant += judged.in_main() ? 1 : 0;
    if (outcome.violation) continue;
    outcome.violation = exact ? check_exact(evidence, judged.row, ids) : check_bounded(evidence, judged.row, ids);
    if (outcome.violation) name_run(*outcome.violation, judged);
  }
  return outcome;
}

}  // namespace

constinit const Law kSelection = {
    .id = "selection",
    .statement =
        "the chosen experts are those of the declared contract under its tie rule; with a declared error "
        "bound: a choice that some keys within the bound justify",
    .source =
        "vllm-project/vllm#55514 (ties), deepseek-ai/DeepSeek-V3#741 (masked groups), sgl-project/sglang#31213 "
        "(bias in bf16), flashinfer-ai/flashinfer#2822 (negative logits)",
    .hazards =
        "gaps of 0, 1 and 2 ulp at the cut, ties across lanes and across the cut, large biases with a small "
        "spread, negative keys, saturated scores, row classes, ties in every group, zero experts",
    .min_relevant = 8,
    .not_applicable = [](const oracle::RouterSpec& spec, const Claims&) -> std::optional<std::string> {
      if (has_table(spec)) return "a table chooses the experts: hash_routing judges them";
      if (oracle::top_k(spec) == oracle::ranked_experts(spec) && !renames_zero_experts(spec)) {
        return "every expert is chosen";
      }
      return std::nullopt;
    },
    .check = check,
};

}  // namespace samebits::properties
