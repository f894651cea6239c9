// Other steps in calls of more than some number of rows, as where the row count chooses the kernel.
#pragma once

#include <cstdint>

#include "kernels/cpu/router.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {

namespace internal {

template <std::int64_t kLimit, auto kFaultySteps, auto kRoute>
samebits_status route_above(const samebits_router* router, const samebits_inputs* inputs, samebits_outputs* outputs,
                            void* workspace, void* stream) {
  static const cpu::Steps kSteps = kFaultySteps();
  if (router == nullptr || inputs == nullptr || inputs->num_tokens <= kLimit) {
    return kRoute(router, inputs, outputs, workspace, stream);
  }
  samebits_router other;
  other.steps = &kSteps;
  other.constants = router->constants;
  other.gate_weight.reset(router->gate_weight.get());  // lent for this call, which does not throw
  const samebits_status status = kRoute(&other, inputs, outputs, workspace, stream);
  static_cast<void>(other.gate_weight.release());
  if (status != SAMEBITS_OK) router->errors.set(other.errors.get());
  return status;
}

}  // namespace internal

// kFaultySteps(): the steps of calls of more than kLimit rows. Those of the mutant itself are for the others.
template <std::int64_t kLimit, auto kFaultySteps>
AbiFaults above_rows() {
  AbiFaults faults;
  faults.route = internal::route_above<kLimit, kFaultySteps, samebits_route>;
  faults.route_from_logits = internal::route_above<kLimit, kFaultySteps, samebits_route_from_logits>;
  return faults;
}

}  // namespace samebits::mutants
