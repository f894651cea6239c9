#include <algorithm>
#include <utility>

#include "properties/explain_row.h"
#include "properties/laws/laws.h"
#include "properties/laws/rows.h"
#include "properties/oracle_answers.h"
#include "properties/spec_features.h"

namespace samebits::properties {
namespace {

std::optional<std::string> not_applicable(const oracle::RouterSpec& spec, const Claims&) {
  if (has_table(spec)) return std::nullopt;
  return "the spec looks no experts up in a table";
}

void name_mistakes(const Evidence& evidence, const JudgedRow& judged, Violation& violation) {
  for (std::string& note :
       explain_ids(evidence.c.spec, evidence.inputs, judged.row, evidence.oracle.logits(judged.row), judged.seen.ids)) {
    violation.notes.push_back(std::move(note));
  }
}

std::optional<Violation> check_row(const Evidence& evidence, const JudgedRow& judged) {
  const std::string token =
      " (token id " + std::to_string(evidence.inputs.token_ids[static_cast<std::size_t>(judged.row)]) + ")";
  if (!has_answer(evidence, judged.row)) {
    const auto answer = first_answer(judged.seen);
    if (!answer) return std::nullopt;
    Violation violation = violation_of(*answer, kHashRouting.id, judged.row, token);
    violation.notes.push_back("the table has the tokens 0 .. " + std::to_string(evidence.c.description.vocab_size - 1) +
                              "; any other gets ids -1 and weights 0");
    name_mistakes(evidence, judged, violation);
    return violation;
  }

  const std::vector<std::int64_t> expected = answer_ids(evidence.oracle.row(judged.row));
  const std::span<const std::int64_t> observed = judged.seen.ids;
  const bool same_set = std::is_permutation(observed.begin(), observed.end(), expected.begin());
  if (std::equal(observed.begin(), observed.end(), expected.begin()) ||
      (same_set && evidence.claims.output_order == OutputOrder::kAny))
    return std::nullopt;
  Violation violation;
  violation.law = kHashRouting.id;
  violation.row = judged.row;
  violation.slot = std::mismatch(observed.begin(), observed.end(), expected.begin()).first - observed.begin();
  violation.observed = text(observed);
  violation.expected = text(expected);
  violation.summary = "row " + std::to_string(judged.row) + token + ": ids are " + violation.observed +
                      (same_set ? ", in another order than in the table: expected " : ", expected from the table ") +
                      violation.expected;
  name_mistakes(evidence, judged, violation);
  return violation;
}

LawOutcome check(const Evidence& evidence) {
  LawOutcome outcome;
  for (const JudgedRow& judged : judged_rows(evidence)) {
    outcome.relevant += judged.in_main() ? 1 : 0;
    if (outcome.violation) continue;
    outcome.violation = check_row(evidence, judged);
    if (outcome.violation) name_run(*outcome.violation, judged);
  }
  return outcome;
}

}  // namespace

constinit const Law kHashRouting = {
    .id = "hash_routing",
    .statement =
        "the chosen ids are exactly those that the table holds for the token, in its order, whatever the logits are; a "
        "token id outside the table gets ids -1 and weights 0",
    .source = "vllm-project/vllm#50844 (token id not bounded before the lookup); the first layers of DeepSeek-V4",
    .hazards =
        "token ids 0, V - 1, V, -1, the least and the greatest, repeated tokens, scores that underflow at the table's "
        "experts, both integer types",
    .min_relevant = 8,
    .not_applicable = not_applicable,
    .check = check,
};

}  // namespace samebits::properties
