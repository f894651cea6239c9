#include <cstddef>

#include "properties/explain_row.h"
#include "properties/laws/laws.h"
#include "properties/laws/rows.h"
#include "properties/oracle_answers.h"

namespace samebits::properties {
namespace {

std::optional<std::string> not_applicable(const oracle::RouterSpec& spec, const Claims& claims) {
  if (claims.output_order == OutputOrder::kAny) return "the router does not claim an order of its slots";
  if (oracle::top_k(spec) == 1) return "one slot has no order";
  return std::nullopt;
}

// The slots out of order by the contract's keys; also defined when the set itself is wrong.
std::optional<std::size_t> first_disorder(const Evidence& evidence, std::int64_t row,
                                          std::span<const std::int64_t> ids) {
  const bool by_index = evidence.c.spec.selection.sort == oracle::SlotOrder::kByIndex;
  const oracle::RowAnswer<float>& answer = evidence.oracle.row(row);
  for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
    if (by_index ? ids[i + 1] < ids[i] : ranks_before(answer, ids[i + 1], ids[i])) return i;
  }
  return std::nullopt;
}

std::optional<Violation> check_exact(const Evidence& evidence, std::int64_t row, std::span<const std::int64_t> ids) {
  const auto slot = first_disorder(evidence, row, ids);
  if (!slot) return std::nullopt;
  const oracle::RowAnswer<float>& answer = evidence.oracle.row(row);
  const float first = answer.keys[static_cast<std::size_t>(ids[*slot])];
  const float second = answer.keys[static_cast<std::size_t>(ids[*slot + 1])];
  const std::vector<std::int64_t> expected(answer.ids.begin(), answer.ids.end());
  Violation violation;
  violation.law = kOrder.id;
  violation.row = row;
  violation.slot = static_cast<std::int64_t>(*slot);
  violation.observed = text(ids);
  violation.expected = text(expected);
  violation.summary = "row " + std::to_string(row) + ": slot " + std::to_string(*slot) + " holds expert " +
                      std::to_string(ids[*slot]) + " (key " + text(first) + "), slot " + std::to_string(*slot + 1) +
                      " expert " + std::to_string(ids[*slot + 1]) + " (key " + text(second) + "), which comes first";
  if (const std::string gap = ulp_text(first, second); !gap.empty()) violation.summary += ", " + gap;
  violation.summary += "; observed " + violation.observed + ", expected " + violation.expected;
  if (first == second) violation.notes.emplace_back("equal keys: the lower id comes first");
  return violation;
}

std::optional<Violation> check_bounded(const Evidence& evidence, std::int64_t row, std::span<const std::int64_t> ids) {
  const auto contradiction =
      order_contradiction(evidence.c.spec, evidence.oracle.bounded(row), ids, evidence.claims.tie_rule);
  if (!contradiction) return std::nullopt;
  Violation violation;
  violation.law = kOrder.id;
  violation.row = row;
  violation.observed = text(ids);
  violation.expected =
      "expert " + std::to_string(contradiction->winner) + " before expert " + std::to_string(contradiction->loser);
  violation.summary = "row " + std::to_string(row) + ": in the order " + violation.observed + " " +
                      contradiction->reason + " for any logits within the declared bound: keys " +
                      text(evidence.oracle.bounded(row).keys[static_cast<std::size_t>(contradiction->winner)]) +
                      " and " + text(evidence.oracle.bounded(row).keys[static_cast<std::size_t>(contradiction->loser)]);
  return violation;
}

LawOutcome check(const Evidence& evidence) {
  LawOutcome outcome;
  if (oracle::top_k(evidence.c.spec) < 2) return outcome;
  const bool exact = evidence.claims.bit_exact();
  for (const JudgedRow& judged : judged_rows(evidence)) {
    const std::span<const std::int64_t> ids = judged.seen.ids;
    if (!ids_problem(ids, oracle::num_experts(evidence.c.spec)).empty()) continue;
    if (!exact && !evidence.oracle.bounded(judged.row).judged) continue;
    outcome.relevant += judged.in_main() ? 1 : 0;
    if (outcome.violation) continue;
    outcome.violation = exact ? check_exact(evidence, judged.row, ids) : check_bounded(evidence, judged.row, ids);
    if (outcome.violation) name_run(*outcome.violation, judged);
  }
  return outcome;
}

}  // namespace

constinit const Law kOrder = {
    .id = "order",
    .statement = "slots are ordered by key descending, then by id ascending (or by id, when the spec says so)",
    .source = "vllm-project/vllm#55514 (another order on every call above 256 experts), vllm-project/vllm#52679",
    .hazards = "several slots, equal keys among the chosen, keys one ulp apart, +0 and -0",
    .min_relevant = 8,
    .not_applicable = not_applicable,
    .check = check,
};

}  // namespace samebits::properties
