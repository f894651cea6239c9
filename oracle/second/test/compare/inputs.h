// Tensors of a case: random ones, and numbers at which routers have failed.
#pragma once

#include <cstdint>

#include "oracle/second/test/compare/random.h"
#include "oracle/spec/router_spec.h"
#include "oracle/tensors/router_inputs.h"

namespace samebits::second {

enum class Start { kHiddenStates, kGivenLogits };

// T rows. With `ordinary`, numbers as a model has them; otherwise rows and constants of mixed kinds: ties, gaps of 0 to
// 2 ulp, saturation, subnormals, NaN and infinities, biases with an offset, sums of zero, ids and classes at and beyond
// the edges.
oracle::RouterInputs make_inputs(const oracle::RouterSpec& spec, Start start, std::int64_t num_tokens, bool ordinary,
                                 Random& random);

}  // namespace samebits::second
