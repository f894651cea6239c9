// From a failing case to one of a few numbers, keeping the same law failing, in a bounded number of steps.
#pragma once

#include <functional>
#include <string>

#include <rapidcheck/Seq.h>
#include <rapidcheck/Shrinkable.h>

#include "properties/case.h"
#include "properties/judge.h"
#include "properties/law.h"
#include "properties/run.h"

namespace samebits::properties {

// Simpler cases of the same spec, most drastic first: fewer rows, experts, columns, smaller k; then explicit tensors;
// then zeros and small integers in place of values. Lazy.
rc::Seq<Case> simpler_cases(const Case& c);
rc::Shrinkable<Case> shrinkable(const Case& c);

struct ShrinkLimits {
  int max_evaluations = 2000;  // cases tried in all
};
struct ShrinkResult {
  Case minimal;
  Violation violation;  // of the minimal case
  int evaluations = 0;
  int steps = 0;        // accepted simplifications
};
// `failing` must violate `law` on `subject`; throws std::invalid_argument when it does not. Cases that the subject does
// not support count as not failing. `on_progress(evaluations, current)` may be empty; returning false stops early.
ShrinkResult shrink(const Case& failing, const std::string& law, Subject& subject, const ShrinkLimits& limits = {},
                    const std::function<bool(int, const Case&)>& on_progress = {});

// Runs and judges one case on a subject: the common path of fuzz, replay and shrink.
std::vector<LawResult> evaluate(const Case& c, Subject& subject, const std::vector<std::string>& laws = {});

}  // namespace samebits::properties
