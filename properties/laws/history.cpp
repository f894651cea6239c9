#include "properties/laws/laws.h"
#include "properties/laws/rows.h"

namespace samebits::properties {
namespace {

std::optional<std::string> not_applicable(const oracle::RouterSpec&, const Claims& claims) {
  if (claims.determinism != Determinism::kNone) return std::nullopt;
  return "the router does not claim that a repeated call gives the same bits";
}

std::string description(const Run& run) {
  const RunRequest& request = run.request;
  if (request.launch == Launch::kGraph) return " replayed from a CUDA graph, in turn with another one";
  if (request.other_router == OtherRouter::kBefore) return " after another router was created, called and destroyed";
  if (request.other_router == OtherRouter::kBeside) return " while another router lives, which was called before";
  if (request.other_router == OtherRouter::kAtOnce) return " in a new thread, while another one calls another router";
  std::string calls;
  for (const EarlierCall& call : request.earlier) {
    calls += (calls.empty() ? "" : ", ") + (call.times > 1 ? std::to_string(call.times) + " times " : "") +
             std::to_string(call.rows.size()) + (call.given_logits ? " (given logits)" : "");
  }
  return " on a workspace that served calls of " + calls + " rows before";
}

LawOutcome check(const Evidence& evidence) {
  LawOutcome outcome;
  for (const Run& run : evidence.runs) {
    if (run.request.earlier.empty() && run.request.other_router == OtherRouter::kNone) continue;
    compare_with_main(evidence, run, kHistory, description(run), outcome);
  }
  return outcome;
}

}  // namespace

constinit const Law kHistory = {
    .id = "history",
    .statement =
        "a call gives the bits of a first call, whatever calls its workspace served before, however they were "
        "launched, and whatever other routers there are or were, in whatever thread: many rows, few, other values, "
        "other numbers of valid rows, given logits, replays of CUDA graphs",
    .source =
        "samebits.h (a workspace is prepared once); flashinfer-ai/flashinfer#4735 (the tail of a longer call), "
        "ROCm/aiter#3773 (a replay keeps what the host read at capture), deepseek-ai/DeepGEMM#451",
    .hazards =
        "many rows of NaN, then one row, then the call; one row after many; half of the rows valid in between; five "
        "or more calls of up to 300 rows, one of them with given logits; in every eighth case some 256 calls of one "
        "row between two longer ones, where counters and epochs of 7 and 8 bits wrap; a router of other weights and "
        "scales before, beside and, in host memory, at the same time in another thread; another filling of the "
        "workspace before its preparation; on a device two graphs in turn, captured with other inputs",
    .min_relevant = 8,
    .not_applicable = not_applicable,
    .check = check,
};

}  // namespace samebits::properties
