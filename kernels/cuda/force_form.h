// Test hooks: one form for all calls, and no waiting within a launch.
#pragma once

#include <optional>

#include "kernels/cuda/form.h"

namespace samebits::cuda {

// From the next call on, whatever its rows; nullopt: by rows again. A device whose tensor cores are not used still
// gets the plain form, and calls that the fused form does not serve get another one.
void force_form(std::optional<Form> form);

// The form forced by force_form, else the one that the environment variable SAMEBITS_CUDA_FORM (plain, decode,
// prefill or fused) named when this was first called. Throws Error for another value of it.
std::optional<Form> forced_form();

// true: from the next call on, the selecting blocks of the fused form do not wait for the multiplying ones.
void force_no_waiting(bool never_wait);

// Handover::patience; 0 where waiting is switched off by force_no_waiting or by SAMEBITS_CUDA_WAIT=never (read once).
std::int32_t handover_patience();

}  // namespace samebits::cuda
