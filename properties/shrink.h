// From a failing case to one of a few numbers, keeping the same law failing, in a bounded number of steps.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include <rapidcheck/Seq.h>
#include <rapidcheck/Shrinkable.h>

#include "properties/case.h"
#include "properties/judge.h"
#include "properties/law.h"
#include "properties/run.h"

namespace samebits::properties {

// Simpler cases of the same spec, most drastic first: given logits in the place of hidden states; smaller k; fewer
// rows, experts (zero and shared ones too), tokens of a table and columns; no padding, row classes, plants and offsets;
// then explicit tensors; then ranks, zeros and small integers in place of values. All are valid. Lazy.
rc::Seq<Case> simpler_cases(const Case& c);
rc::Shrinkable<Case> shrinkable(const Case& c);

struct ShrinkLimits {
  int max_evaluations = 2000;  // cases tried in all
};
struct ShrinkResult {
  Case minimal;
  Violation violation;  // of the minimal case
  int evaluations = 0;
  int steps = 0;  // accepted simplifications
};
// The violation of the law in question, or nothing when the case is clean or cannot be run.
using Fails = std::function<std::optional<Violation>(const Case&)>;

// Walks simpler_cases() greedily until a whole round of them is clean. Deterministic when `fails` is. `on_progress(
// evaluations, current)` may be empty; returning false stops early. Throws std::invalid_argument when `failing` is
// clean.
ShrinkResult shrink(const Case& failing, const Fails& fails, const ShrinkLimits& limits = {},
                    const std::function<bool(int, const Case&)>& on_progress = {});

// `failing` must violate `law` on `subject`; throws std::invalid_argument when it does not. Cases that the subject does
// not support count as not failing.
ShrinkResult shrink(const Case& failing, const std::string& law, Subject& subject, const ShrinkLimits& limits = {},
                    const std::function<bool(int, const Case&)>& on_progress = {});

// Runs and judges one case on a subject: the common path of fuzz, replay and shrink.
std::vector<LawResult> evaluate(const Case& c, Subject& subject, const std::vector<std::string>& laws = {});

}  // namespace samebits::properties
