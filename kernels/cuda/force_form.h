// Test hook: one form of the logits for all calls.
#pragma once

#include <optional>

#include "kernels/cuda/form.h"

namespace samebits::cuda {

// From the next call on, whatever its rows; nullopt: by rows again. A device whose tensor cores are not used still
// gets the plain form.
void force_form(std::optional<Form> form);

// The form forced by force_form, else the one that the environment variable SAMEBITS_CUDA_FORM (plain, decode or
// prefill) named when this was first called. Throws Error for another value of it.
std::optional<Form> forced_form();

}  // namespace samebits::cuda
