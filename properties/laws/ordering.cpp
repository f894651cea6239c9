#include "properties/laws/laws.h"
#include "properties/laws/rows.h"

namespace samebits::properties {
namespace {

std::optional<std::string> not_applicable(const oracle::RouterSpec&, const Claims& claims) {
  if (!claims.device_memory) return "the router works in host memory, where inputs are complete before the call";
  if (claims.determinism != Determinism::kNone) return std::nullopt;
  return "the router does not claim that a repeated call gives the same bits";
}

const char* input_name(const Evidence& evidence, InputTensor input) {
  switch (input) {
    case InputTensor::kRows:
      return evidence.inputs.from_logits() ? "router_logits" : "hidden_states";
    case InputTensor::kTokenIds:
      return "token_ids";
    case InputTensor::kRowClass:
      return "row_class";
    case InputTensor::kNumValidRows:
      return "num_valid_rows";
  }
  return "an input";
}

LawOutcome check(const Evidence& evidence) {
  LawOutcome outcome;
  for (const Run& run : evidence.runs) {
    if (run.request.launch != Launch::kLateInput) continue;
    compare_with_main(evidence, run, kOrdering,
                      std::string(" with ") + input_name(evidence, run.request.late_input) +
                          " written by the kernel before it on the stream",
                      outcome);
  }
  return outcome;
}

}  // namespace

constinit const Law kOrdering = {
    .id = "ordering",
    .statement =
        "a call reads no input before the work ahead of it on its stream has written it, also where that lets the next "
        "kernel start early",
    .source =
        "NVIDIA/TensorRT-LLM#13294 (dependents released too early), NVIDIA/cccl#3131 (programmatic dependent launch), "
        "sgl-project/sglang#26627 (a race between streams)",
    .hazards =
        "each input in turn still NaN or -1 when the call is made: a kernel that lets dependents launch at once, waits "
        "for two milliseconds and then writes it; a stream that does not wait for the default one",
    .min_relevant = 8,
    .not_applicable = not_applicable,
    .check = check,
};

}  // namespace samebits::properties
