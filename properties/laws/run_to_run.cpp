#include "properties/laws/laws.h"
#include "properties/laws/rows.h"

namespace samebits::properties {
namespace {

std::optional<std::string> not_applicable(const oracle::RouterSpec&, const Claims& claims) {
  if (claims.determinism != Determinism::kNone) return std::nullopt;
  return "the router does not claim that a repeated call gives the same bits";
}

// The bits of main again, in a call with the same rows. `where`: how that call differs.
void compare(const Run& main, const Run& run, const std::string& where, LawOutcome& outcome) {
  const std::int64_t valid = valid_rows(main);
  for (std::int64_t r = 0; r < num_rows(main); ++r) {
    ++outcome.relevant;
    if (outcome.violation) continue;
    RowView first = row_view(main, r);
    RowView second = row_view(run, r);
    if (r >= valid) first.logits = second.logits = {};  // untouched: each run has its own filling there
    if (const auto difference = first_difference(second, first)) {
      outcome.violation = violation_of(*difference, kRunToRun.id, case_row(main, r), where);
      outcome.violation->notes.push_back(count_differences(second, first));
    }
  }
}

LawOutcome check(const Evidence& evidence) {
  LawOutcome outcome;
  const Run* main = usable(evidence, "main");
  const Run* repeat = usable(evidence, "repeat");
  if (main == nullptr) return outcome;
  if (repeat != nullptr && main->request.rows == repeat->request.rows) {
    compare(*main, *repeat, " in a repeated call", outcome);
    if (!outcome.violation && main->request.want_bookkeeping &&
        main->result.outputs.bookkeeping != repeat->result.outputs.bookkeeping) {
      Violation violation;
      violation.law = kRunToRun.id;
      violation.summary = "the bookkeeping of a repeated call differs";
      violation.observed = "other bookkeeping";
      violation.expected = "that of the first call";
      outcome.violation = violation;
    }
  }
  const Run* bare = usable(evidence, "bare");
  if (bare != nullptr && main->request.rows == bare->request.rows &&
      main->request.num_valid_rows == bare->request.num_valid_rows) {
    compare(*main, *bare, " in a call that wants neither logits nor bookkeeping", outcome);
  }
  return outcome;
}

}  // namespace

constinit const Law kRunToRun = {
    .id = "run_to_run",
    .statement =
        "the same call gives the same bits again, whatever the output buffers held before and whether or not logits "
        "and bookkeeping are wanted",
    .source = "sgl-project/sglang#26627, vllm-project/vllm#31253, sgl-project/sglang#40578",
    .hazards =
        "sums whose result depends on the order of additions, several rows, other contents of the outputs, a call for "
        "ids and weights alone",
    .min_relevant = 8,
    .not_applicable = not_applicable,
    .check = check,
};

}  // namespace samebits::properties
