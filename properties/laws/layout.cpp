#include "properties/laws/laws.h"
#include "properties/laws/rows.h"

namespace samebits::properties {
namespace {

std::optional<std::string> not_applicable(const oracle::RouterSpec&, const Claims& claims) {
  if (claims.determinism == Determinism::kBatchInvariant) return std::nullopt;
  return "the router does not claim that a row's bits depend on the row alone, so it may compute other layouts "
         "otherwise";
}

std::string description(const RunRequest& request) {
  const Layout& layout = request.layout;
  if (request.constants_gap > 0) {
    return " of a router created from matrices with " + std::to_string(request.constants_gap) +
           " elements between their rows";
  }
  std::string text = " with " + std::to_string(layout.input_gap) + " elements between rows of the input, " +
                     std::to_string(layout.output_gap) + " or more between those of the outputs";
  if (layout.shifted) text += ", every base one element further";
  return text + (layout.ids_int64 ? ", int64 ids" : "") + (layout.weights_bf16 ? ", bf16 weights" : "");
}

LawOutcome check(const Evidence& evidence) {
  LawOutcome outcome;
  for (const Run& run : evidence.runs) {
    if (run.request.layout == Layout{} && run.request.constants_gap == 0) continue;
    const auto fail = [&](std::string what, std::string observed, std::string expected) {
      ++outcome.relevant;
      if (outcome.violation) return;
      Violation violation;
      violation.law = kLayout.id;
      violation.summary = "a call" + description(run.request) + " (run " + run.request.id + ") " + std::move(what);
      violation.observed = std::move(observed);
      violation.expected = std::move(expected);
      outcome.violation = std::move(violation);
    };
    if (!run.result.gaps_intact) {
      fail("wrote outside its rows: " + run.result.damage, run.result.damage, "untouched memory between rows");
    } else if (run.result.refused && evidence.claims.bit_exact()) {
      fail("is refused, though the contract has it: " + run.result.message, run.result.message, "a result");
    } else {
      compare_with_main(evidence, run, kLayout, description(run.request), outcome);
    }
  }
  return outcome;
}

}  // namespace

constinit const Law kLayout = {
    .id = "layout",
    .statement =
        "where rows lie and in which type ids and weights are wanted changes no value: rows with gaps, bases aligned "
        "to an element only, int64 ids, weights rounded to bf16; gaps are not written",
    .source =
        "samebits.h (strides and dtypes); vllm-project/vllm#56900 (rows of a padded tensor read at stride E), "
        "ROCm/aiter#1086 (weights written at the stride of the ids), vllm-project/vllm#57167 (slices of wider tensors)",
    .hazards =
        "gaps of 8 or 64, of 1, 3 or 7 elements and of more than a row, full of NaN and 100, few rows and up to 300, "
        "bases one element past the alignment, both "
        "types of ids and weights, constants with gaps",
    .min_relevant = 8,
    .not_applicable = not_applicable,
    .check = check,
};

}  // namespace samebits::properties
