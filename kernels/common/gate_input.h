// What the spec says about the row that the gate reads.
#pragma once

#include <cmath>

#include "kernels/common/bits.h"
#include "samebits/samebits.h"

namespace samebits {

inline bool has_prepared_input(const samebits_router_spec& spec) {
  return spec.input_norm != SAMEBITS_INPUT_NORM_NONE || spec.input_scale_vector != 0 ||
         spec.input_scale_rsqrt_hidden_size != 0 || spec.input_scale != 1.0f;
}

// The factor on the input as fp32: input_scale, or H^-1/2 in fp32 or rounded to bf16.
inline float input_scale_factor(const samebits_router_spec& spec) {
  if (spec.input_scale_rsqrt_hidden_size == 0) return spec.input_scale;
  const float scale = 1.0f / std::sqrt(static_cast<float>(spec.hidden_size));
  return spec.input_scale_rsqrt_hidden_size == 2 ? round_to_bf16(scale) : scale;
}

}  // namespace samebits
