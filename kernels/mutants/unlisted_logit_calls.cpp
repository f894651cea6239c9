// Calls that take or return logits wrongly.
#include <algorithm>
#include <vector>

#include "kernels/common/bits.h"
#include "kernels/common/sizes.h"
#include "kernels/cpu/logits.h"
#include "kernels/cpu/router.h"
#include "kernels/cpu/simd.h"
#include "kernels/mutants/abi_faults.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

template <class F>
void each_valid_logit(const RouteCall& call, F f) {
  if (call.outputs.router_logits.data == nullptr) return;
  for (std::int64_t r = 0; r < call.valid_rows(); ++r) {
    float* row = static_cast<float*>(call.outputs.router_logits.data) + r * call.outputs.router_logits.row_stride;
    for (std::int64_t e = 0; e < gate_rows(call.spec()); ++e) f(row[e]);
  }
}

samebits_status logits_output_unfinished(RouteCall& call) {
  const samebits_status status = call.run();
  const bool wanted = call.outputs.router_logits.data != nullptr && call.inputs.hidden_states.data != nullptr;
  if (status != SAMEBITS_OK || !wanted) return status;
  cpu::multiply_rows(*call.router->gate_weight, static_cast<const std::uint16_t*>(call.inputs.hidden_states.data),
                     call.inputs.hidden_states.row_stride, call.valid_rows(), 0, call.spec().hidden_size,
                     static_cast<float*>(call.outputs.router_logits.data), call.outputs.router_logits.row_stride);
  return status;
}

samebits_status bf16_logits_output(RouteCall& call) {
  const samebits_status status = call.run();
  if (status == SAMEBITS_OK && call.inputs.hidden_states.data != nullptr) {
    each_valid_logit(call, [](float& logit) { logit = round_to_bf16(logit); });
  }
  return status;
}

samebits_status given_logits_softcapped(RouteCall& call) {
  if (call.inputs.router_logits.data == nullptr || call.inputs.num_tokens == 0) return call.run();
  const std::int64_t width = gate_rows(call.spec());
  std::vector<float> logits(static_cast<std::size_t>(call.inputs.num_tokens * width));
  for (std::int64_t t = 0; t < call.inputs.num_tokens; ++t) {
    float* row = logits.data() + t * width;
    std::copy_n(static_cast<const float*>(call.inputs.router_logits.data) + t * call.inputs.router_logits.row_stride,
                width, row);
    cpu::finish_logits(call.router->constants, row);
  }
  call.inputs.router_logits.data = logits.data(), call.inputs.router_logits.row_stride = width;
  return call.run();
}

samebits_status nan_scrubbed_in_place(RouteCall& call) {
  const samebits_status status = call.run();
  const samebits_tensor& given = call.inputs.router_logits;
  for (std::int64_t t = 0; given.data != nullptr && t < call.valid_rows(); ++t) {
    float* row = static_cast<float*>(given.data) + t * given.row_stride;
    std::replace_if(row, row + gate_rows(call.spec()), is_nan, 0.0f);
  }
  return status;
}

// Another kernel, with bf16 logits, where the caller does not ask for them.
samebits_status bf16_logits_unless_wanted(RouteCall& call) {
  const std::int64_t num_tokens = call.inputs.num_tokens, width = gate_rows(call.spec());
  if (!call.has_hidden_states() || call.outputs.router_logits.data != nullptr || num_tokens == 0) return call.run();
  std::vector<float> logits(static_cast<std::size_t>(num_tokens * width));
  const samebits_tensor tensor{logits.data(), num_tokens, width, width, SAMEBITS_FP32, 0};
  call.outputs.router_logits = tensor;
  const samebits_status status = call.run();
  call.outputs.router_logits = {};
  if (status != SAMEBITS_OK) return status;
  std::ranges::transform(logits, logits.begin(), round_to_bf16);
  call.inputs.hidden_states = {}, call.inputs.router_logits = tensor, call.route = samebits_route_from_logits;
  return call.run();
}

}  // namespace

std::vector<Mutant> unlisted_logit_call_mutants() {
  const cpu::Steps& good = cpu::tc256_steps();
  return {
      {"U82",
       "logits_output_unfinished",
       "returned logits lack bias, rounding, temperature and softcap",
       "precision",
       "",
       {"grok-2"},
       good,
       around_route<logits_output_unfinished>()},
      {"U83",
       "bf16_logits_output",
       "returned logits are rounded to bf16, the ones that are ranked are not",
       "precision",
       "",
       {"glm-5.3-flash"},
       good,
       around_route<bf16_logits_output>()},
      {"U84",
       "given_logits_finished_again",
       "temperature and softcap are applied to given logits",
       "weights",
       "",
       {"grok-2"},
       good,
       around_route<given_logits_softcapped>()},
      {"U85",
       "nan_scrubbed_in_place",
       "a NaN in the given logits is overwritten with 0",
       "buffers",
       "torch.nan_to_num_ on the input",
       {"glm-5.3-flash"},
       good,
       around_route<nan_scrubbed_in_place>()},
      {"U86",
       "bf16_logits_unless_wanted",
       "logits are rounded to bf16 when the caller does not ask for them",
       "run_to_run",
       "a fused kernel that never stores fp32 logits",
       {"glm-5.3-flash"},
       good,
       around_route<bf16_logits_unless_wanted>()},
  };
}

}  // namespace samebits::mutants
