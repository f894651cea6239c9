#include <algorithm>
#include <cstddef>

#include "properties/explain_row.h"
#include "properties/laws/laws.h"
#include "properties/laws/rows.h"
#include "properties/oracle_answers.h"

namespace samebits::properties {
namespace {

std::optional<std::string> not_applicable(const oracle::RouterSpec& spec, const Claims& claims) {
  if (claims.output_order == OutputOrder::kAny) return "the router does not claim an order of its slots";
  if (oracle::topk_columns(spec) == 1) return "one slot has no order";
  return std::nullopt;
}

// Whether id `a` comes before id `b`: those that compete by key or by their place in the table, then the shared ones.
bool comes_before(const Evidence& evidence, std::int64_t row, std::int64_t a, std::int64_t b) {
  const oracle::RouterSpec& spec = evidence.c.spec;
  if (spec.selection.sort == oracle::SlotOrder::kByIndex) return a < b;
  const std::int64_t ranked = oracle::ranked_experts(spec);
  if (a >= ranked || b >= ranked) return a < b;
  const oracle::RowAnswer<float>& answer = evidence.oracle.row(row);
  if (!answer.keys.empty()) return ranks_before(answer, a, b);
  // An id that is not in the table has no place there; hash_routing judges it.
  const auto place_a = std::find(answer.expert_ids.begin(), answer.expert_ids.end(), a);
  const auto place_b = std::find(answer.expert_ids.begin(), answer.expert_ids.end(), b);
  return place_a < place_b || place_b == answer.expert_ids.end();
}

// The slot before one that comes first; also defined when the set itself is wrong. Slots that may hold a renamed zero
// expert are passed over.
struct Disorder {
  std::size_t slot, next;
};
std::optional<Disorder> first_disorder(const Evidence& evidence, std::int64_t row, const RowView& seen) {
  std::optional<std::size_t> last;
  for (std::size_t i = 0; i < seen.ids.size(); ++i) {
    if (may_be_renamed(evidence.c.spec, seen, i)) continue;
    if (last && !comes_before(evidence, row, seen.ids[*last], seen.ids[i])) return Disorder{*last, i};
    last = i;
  }
  return std::nullopt;
}

std::optional<Violation> check_exact(const Evidence& evidence, std::int64_t row, const RowView& seen) {
  const oracle::RowAnswer<float>& answer = evidence.oracle.row(row);
  const bool same_set = std::is_permutation(seen.ids.begin(), seen.ids.end(), answer.ids.begin(), answer.ids.end());
  const auto wrong = std::mismatch(seen.ids.begin(), seen.ids.end(), answer.ids.begin()).first;
  const auto disorder = first_disorder(evidence, row, seen);
  if (!disorder && (!same_set || wrong == seen.ids.end())) return std::nullopt;

  const std::vector<std::int64_t> expected = answer_ids(answer);
  Violation violation;
  violation.law = kOrder.id;
  violation.row = row;
  violation.slot = disorder ? static_cast<std::int64_t>(disorder->slot) : wrong - seen.ids.begin();
  violation.observed = text(seen.ids);
  violation.expected = text(expected);
  const auto slot = static_cast<std::size_t>(violation.slot);
  violation.summary = "row " + std::to_string(row) + ": slot " + std::to_string(slot) + " holds ";
  if (disorder) {
    const std::int64_t first = seen.ids[disorder->slot], second = seen.ids[disorder->next];
    violation.summary += expert_text(answer, first) + ", slot " + std::to_string(disorder->next) + " " +
                         expert_text(answer, second) + ", which comes first";
    if (static_cast<std::size_t>(std::max(first, second)) < answer.keys.size()) {
      const float a = answer.keys[static_cast<std::size_t>(first)], b = answer.keys[static_cast<std::size_t>(second)];
      if (const std::string gap = ulp_text(a, b); !gap.empty()) violation.summary += ", " + gap;
      if (a == b) violation.notes.emplace_back("equal keys: the lower id comes first");
    }
  } else {
    violation.summary += "id " + std::to_string(seen.ids[slot]) + ", expected id " + std::to_string(expected[slot]);
  }
  violation.summary += "; observed " + violation.observed + ", expected " + violation.expected;
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
                      contradiction->reason + " for any logits within the declared bound" +
                      keys_text(evidence.oracle.bounded(row), contradiction->winner, contradiction->loser);
  return violation;
}

LawOutcome check(const Evidence& evidence) {
  LawOutcome outcome;
  const bool exact = evidence.claims.bit_exact();
  for (const JudgedRow& judged : answered_rows(evidence)) {
    const std::span<const std::int64_t> ids = judged.seen.ids;
    if (!ids_problem(evidence.c.spec, judged.seen).empty()) continue;
    if (!exact && !evidence.oracle.bounded(judged.row).judged) continue;
    outcome.relevant += judged.in_main() ? 1 : 0;
    if (outcome.violation) continue;
    outcome.violation =
        exact ? check_exact(evidence, judged.row, judged.seen) : check_bounded(evidence, judged.row, ids);
    if (outcome.violation) name_run(*outcome.violation, judged);
  }
  return outcome;
}

}  // namespace

constinit const Law kOrder = {
    .id = "order",
    .statement =
        "slots are ordered by key descending, then by id ascending; a table's ids as in the table; shared experts last "
        "(or all by id, when the spec says so)",
    .source = "vllm-project/vllm#55514 (another order on every call above 256 experts), vllm-project/vllm#52679",
    .hazards = "several slots, equal keys among the chosen, keys one ulp apart, +0 and -0",
    .min_relevant = 8,
    .not_applicable = not_applicable,
    .check = check,
};

}  // namespace samebits::properties
