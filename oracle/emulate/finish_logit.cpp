#include "oracle/emulate/finish_logit.h"

#include "oracle/emulate/fp32.h"
#include "oracle/emulate/tc256.h"
#include "oracle/tensors/bf16.h"

namespace samebits::oracle {

float finish_logit(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t expert, float sum) {
  float logit = sum;
  if (spec.gate.linear_bias != BiasType::kNone) {
    const float bias = inputs.linear_bias.at(static_cast<std::size_t>(expert));
    logit = fadd_rn(logit, spec.gate.linear_bias == BiasType::kBf16 ? round_to_bf16(bias) : bias);
  }
  if (spec.gate.logits_dtype == FloatType::kBf16) logit = round_to_bf16(logit);
  const float temperature = static_cast<float>(spec.logits.temperature);
  if (temperature != 1.0f) logit = fdiv_rn(logit, temperature);
  if (spec.logits.softcap) {
    const float cap = static_cast<float>(*spec.logits.softcap);
    logit = fmul_rn(cap, tc256::tanh(fdiv_rn(logit, cap)));
  }
  return logit;
}

}  // namespace samebits::oracle
