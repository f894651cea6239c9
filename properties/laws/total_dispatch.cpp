#include "properties/laws/laws.h"
#include "properties/laws/rows.h"

namespace samebits::properties {
namespace {

constexpr const char* kRefusal = "an error (invalid argument or unsupported), and nothing written";

// Row counts that look like another size of the call, or like none at all.
bool is_edge(const Evidence& evidence, const Run& run) {
  const std::int64_t rows = num_rows(run);
  return rows <= 1 || rows == oracle::topk_columns(evidence.c.spec) || rows == oracle::gate_rows(evidence.c.spec);
}

// What is wrong; empty: nothing.
std::string problem_of(const Run& run) {
  const bool wrong_call = run.request.misuse != Misuse::kNone;
  const RunResult& result = run.result;
  if (result.status == RunResult::Status::kOk) {
    return wrong_call ? "is served, although the call is wrong" : "";
  }
  if (result.status != RunResult::Status::kError) return "";  // termination
  if (!result.outputs_untouched) {
    return "returned an error (" + result.message + ") after it had written: " + result.damage;
  }
  return wrong_call && !result.refused ? "failed instead of being refused: " + result.message : "";
}

LawOutcome check(const Evidence& evidence) {
  LawOutcome outcome;
  for (const Run& run : evidence.runs) {
    const bool error = run.result.status == RunResult::Status::kError;
    const bool served = run.result.status == RunResult::Status::kOk;
    const bool wrong_call = run.request.misuse != Misuse::kNone;
    if (!error && !(served && (wrong_call || (is_usable(evidence, run) && is_edge(evidence, run))))) continue;
    ++outcome.relevant;
    const std::string problem = problem_of(run);
    if (problem.empty() || outcome.violation) continue;
    Violation violation;
    violation.law = kTotalDispatch.id;
    violation.summary = "run " + run.request.id + " (" + std::to_string(num_rows(run)) + " rows) " + problem;
    violation.observed = served ? "ok" : problem;
    violation.expected = wrong_call ? kRefusal : "a result, or an error before anything is written";
    outcome.violation = violation;
  }
  return outcome;
}

}  // namespace

constinit const Law kTotalDispatch = {
    .id = "total_dispatch",
    .statement =
        "a call gives the exact result or an error before anything is written, no third outcome; a wrong call is "
        "refused with an error",
    .source =
        "samebits.h (status codes); flashinfer-ai/flashinfer#3840 (nothing launched for a shape without a kernel), "
        "NVIDIA/TransformerEngine#2821 (a launch that fails in silence), NVIDIA/TransformerEngine#2986 (raise, not "
        "fall "
        "back)",
    .hazards =
        "no rows, one row, as many rows as columns and as experts; missing tensors, wrong dtypes and shapes, too many "
        "rows, constants and hash tables that the spec excludes",
    .min_relevant = 8,
    .not_applicable = [](const oracle::RouterSpec&, const Claims&) -> std::optional<std::string> {
      return std::nullopt;
    },
    .check = check,
};

}  // namespace samebits::properties
