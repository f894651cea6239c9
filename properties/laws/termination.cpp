#include "properties/laws/laws.h"
#include "properties/laws/rows.h"

namespace samebits::properties {
namespace {

// Whether an error is no fault: of a wrong call, and of what a router may refuse (total_dispatch and layout judge it).
bool may_fail(const RunRequest& request, const RunResult& result) {
  const bool refusable =
      !(request.layout == Layout{}) || request.constants_gap > 0 || request.variation != Variation::kNone;
  return request.misuse != Misuse::kNone || (result.refused && refusable);
}

std::string what_happened(const Run& run, const oracle::RouterSpec& spec) {
  const std::string message = run.result.message.empty() ? "" : ": " + run.result.message;
  switch (run.result.status) {
    case RunResult::Status::kError:
      return may_fail(run.request, run.result) ? "" : "returned an error" + message;
    case RunResult::Status::kCrashed:
      return "crashed" + message;
    case RunResult::Status::kTimedOut:
      return "did not end in time" + message;
    case RunResult::Status::kOk:
      break;
  }
  if (run.request.misuse != Misuse::kNone) return "";
  const std::string problem = shape_problem(run, spec);
  return problem.empty() ? "" : "ended without a result: " + problem;
}

LawOutcome check(const Evidence& evidence) {
  LawOutcome outcome;
  for (const Run& run : evidence.runs) {
    ++outcome.relevant;
    const std::string problem = what_happened(run, evidence.c.spec);
    if (problem.empty() || outcome.violation) continue;
    Violation violation;
    violation.law = kTermination.id;
    violation.summary = "run " + run.request.id + " (" + std::to_string(num_rows(run)) + " rows) " + problem;
    violation.observed = problem;
    violation.expected = "a result";
    if (run.request.rows.size() == 1) violation.row = run.request.rows.front();
    outcome.violation = violation;
  }
  return outcome;
}

}  // namespace

constinit const Law kTermination = {
    .id = "termination",
    .statement = "every call ends with a result: no crash, no hang, no error for a supported request",
    .source =
        "vllm-project/vllm#24146 (selection that never ends when all keys are negative), "
        "flashinfer-ai/flashinfer#3840 (nothing launched for a shape without a kernel)",
    .hazards = "negative keys, rows of NaN and -inf, row counts across kernel boundaries, one and zero valid rows",
    .min_relevant = 8,
    .not_applicable = [](const oracle::RouterSpec&, const Claims&) -> std::optional<std::string> {
      return std::nullopt;
    },
    .check = check,
};

}  // namespace samebits::properties
