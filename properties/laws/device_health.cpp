#include "properties/laws/laws.h"
#include "properties/laws/rows.h"

namespace samebits::properties {
namespace {

std::optional<std::string> not_applicable(const oracle::RouterSpec&, const Claims& claims) {
  if (claims.device_memory) return std::nullopt;
  return "the router works in host memory and uses no device";
}

LawOutcome check(const Evidence& evidence) {
  LawOutcome outcome;
  for (const Run& run : evidence.runs) {
    const std::string& problem = run.result.device_problem;
    if (run.result.status != RunResult::Status::kOk && problem.empty()) continue;  // termination, total_dispatch
    ++outcome.relevant;
    if (problem.empty() || outcome.violation) continue;
    Violation violation;
    violation.law = kDeviceHealth.id;
    violation.observed = problem;
    violation.expected = "a device that computes, and nothing allocated or waited for by the call";
    violation.summary = "run " + run.request.id + " (" + std::to_string(num_rows(run)) + " rows): " + problem;
    outcome.violation = violation;
  }
  return outcome;
}

}  // namespace

constinit const Law kDeviceHealth = {
    .id = "device_health",
    .statement =
        "a call leaves a device that computes, without a pending error, and neither allocates device memory nor waits "
        "for the device",
    .source =
        "samebits.h (no allocation, no synchronisation during a call); FlashInfer probes the device after each case "
        "(test_unified_moe_fuzz.py)",
    .hazards =
        "a kernel of our own after every call, whose result is known; calls captured in a mode in which allocating and "
        "synchronising fail",
    .min_relevant = 8,
    .not_applicable = not_applicable,
    .check = check,
};

}  // namespace samebits::properties
