// The logits step of tc256, and its last part for routers that multiply in another way.
#pragma once

#include <cstdint>

#include "kernels/cpu/steps.h"

namespace samebits::cpu {

// Steps::logits of tc256.
void logits_tc256(const RouterConstants& constants, const std::uint16_t* hidden_states, std::int64_t row_stride,
                  std::int64_t num_rows, std::int64_t num_tokens, float* logits, std::int64_t logits_stride);

// What follows the product: linear bias, rounding to bf16, temperature and softcap, each if the spec asks for it; in
// place, logits [G] of one row.
void finish_logits(const RouterConstants& constants, float* logits);

}  // namespace samebits::cpu
