// Faults around a call: one lambda wraps both samebits_route and samebits_route_from_logits.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/router.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {

// What a call says; a fault may change the inputs before the call and the outputs on both sides of it.
struct CallArguments {
  const samebits_router& router;
  samebits_inputs inputs;  // a copy
  samebits_outputs& outputs;
  void* workspace;

  const samebits_router_spec& spec() const { return router.constants.spec; }
  std::int64_t valid_rows() const {
    if (inputs.num_valid_rows == nullptr) return inputs.num_tokens;
    return std::clamp<std::int64_t>(*inputs.num_valid_rows, 0, inputs.num_tokens);
  }
};

template <class Fault>
struct WrappedCall {
  template <decltype(&samebits_route) next>
  static samebits_status call(const samebits_router* router, const samebits_inputs* inputs, samebits_outputs* outputs,
                              void* workspace, void* stream) {
    CallArguments arguments{*router, *inputs, *outputs, workspace};
    return Fault{}(arguments, [&] { return next(router, &arguments.inputs, outputs, workspace, stream); });
  }
};

// fault(arguments, next): the status of the call, which next() makes.
template <class Fault>
AbiFaults calls(Fault) {
  AbiFaults faults;
  faults.route = WrappedCall<Fault>::template call<samebits_route>;
  faults.route_from_logits = WrappedCall<Fault>::template call<samebits_route_from_logits>;
  return faults;
}

}  // namespace samebits::mutants
