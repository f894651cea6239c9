// Weights that are renormalised as log-sigmoids.
#pragma once

#include <cstdint>

namespace samebits::cpu {

// weights[c] = scale * sigmoid(z_c) / sum of sigmoids, c < n, formed as exp(l - log(sum of exp(l))) with l = log
// sigmoid(z) below its maximum; +0 for a NaN logit. False: no logit is above -inf, and all weights are +0. terms[n] is
// scratch.
bool log_space_weights(const float* logits, std::int64_t n, float scale, float* terms, float* weights);

}  // namespace samebits::cpu
