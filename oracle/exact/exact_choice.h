// The experts that infinitely precise logits followed by the published formulas choose, and how that is known.
#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "oracle/spec/router_spec.h"
#include "oracle/tensors/router_inputs.h"

namespace samebits::oracle {

enum class DecidedBy : std::uint8_t {
  kErrorBound,   // double: every key above the cut is further from every key below than both may be off; or a table
  kExactLogits,  // the exact sums of products, compared without error
  kTie,          // keys that are equal without error at the cut: the lower id
  kNothing,      // the keys differ by less than what double loses in the score functions and the bias
  kNotJudged,    // an operand or a logit is not finite, or the row has no answer
};

struct ExactChoice {
  DecidedBy decided_by = DecidedBy::kNotJudged;
  std::vector<std::int32_t> ids;  // [k] best key first, of equal keys the lower id; shared experts left out
  // At the cut between the chosen and the others (per_group: the nearest one): distance of the keys, and how much of it
  // may be an error. Groups may have been decided by less. Infinite where nothing was rejected.
  double gap = std::numeric_limits<double>::infinity();
  double bound = 0.0;

  bool decided() const { return decided_by < DecidedBy::kNothing; }
};
// Roundings of the spec to bf16 (prepared input, logits, bias, scores) take place, no other. Exact sums are taken only
// where the bound does not decide, of the experts near the cut, or of all where groups are ranked.
ExactChoice exact_choice(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t row);

}  // namespace samebits::oracle
