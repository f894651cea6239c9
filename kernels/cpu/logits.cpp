#include "kernels/cpu/logits.h"

#include "kernels/common/bits.h"
#include "kernels/common/sizes.h"
#include "kernels/cpu/simd.h"

namespace samebits::cpu {

void logits_tc256(const RouterConstants& constants, const std::uint16_t* hidden_states, std::int64_t row_stride,
                  std::int64_t num_rows, std::int64_t, float* logits, std::int64_t logits_stride) {
  multiply_rows(*constants.gate_weight, hidden_states, row_stride, num_rows, 0, constants.gate_weight->hidden_size(),
                logits, logits_stride);
  for (std::int64_t r = 0; r < num_rows; ++r) finish_logits(constants, logits + r * logits_stride);
}

void finish_logits(const RouterConstants& constants, float* logits) {
  const samebits_router_spec& spec = constants.spec;
  const std::int64_t num_rows = gate_rows(spec);
  for (std::int64_t e = 0; e < num_rows; ++e) {
    float x = logits[e];
    if (constants.linear_bias != nullptr) x = canonical(x + constants.linear_bias[e]);
    if (spec.logits_dtype == SAMEBITS_BF16) x = round_to_bf16(x);
    logits[e] = x;
  }
  if (spec.temperature != 1.0f) {
    for (std::int64_t e = 0; e < num_rows; ++e) logits[e] = canonical(logits[e] / spec.temperature);
  }
  if (spec.softcap == 0.0f) return;
  for (std::int64_t e = 0; e < num_rows; ++e) logits[e] /= spec.softcap;
  apply_elementwise(Elementwise::kTanh, logits, num_rows, logits);
  for (std::int64_t e = 0; e < num_rows; ++e) logits[e] = canonical(spec.softcap * logits[e]);
}

}  // namespace samebits::cpu
