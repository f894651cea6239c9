// Values that pass through bf16, or through functions that lose them, where the spec says fp32.
#include <vector>

#include "kernels/common/bits.h"
#include "kernels/common/sizes.h"
#include "kernels/cpu/gate_weight.h"
#include "kernels/cpu/logits.h"
#include "kernels/cpu/score.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/weigh.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

using cpu::RouterConstants;
using cpu::RowInfo;
using cpu::RowScratch;

void bf16_bias(const samebits_router_spec& spec, const float* bias, float* out) {
  cpu::round_bias(SAMEBITS_BF16, bias, ranked_experts(spec), out);
}

void bf16_logits(const RouterConstants& constants, const std::uint16_t* hidden_states, std::int64_t row_stride,
                 std::int64_t num_rows, std::int64_t num_tokens, float* logits, std::int64_t logits_stride) {
  RouterConstants rounded = constants;
  rounded.spec.logits_dtype = SAMEBITS_BF16;
  cpu::logits_tc256(rounded, hidden_states, row_stride, num_rows, num_tokens, logits, logits_stride);
}

void bf16_scores_in_keys(const RouterConstants& constants, const RowInfo& row, const float* logits, const float* scores,
                         float* keys) {
  std::vector<float> rounded(scores, scores + ranked_experts(constants.spec));
  for (float& score : rounded) score = round_to_bf16(score);
  cpu::rank_keys(constants, row, logits, rounded.data(), keys);
}

void bias_of_output_dtype(const samebits_router_spec& spec, const float* bias, float* out) {
  cpu::round_bias(spec.weights_dtype, bias, ranked_experts(spec), out);
}

void bf16_logits_above_8_rows(const RouterConstants& constants, const std::uint16_t* hidden_states,
                              std::int64_t row_stride, std::int64_t num_rows, std::int64_t num_tokens, float* logits,
                              std::int64_t logits_stride) {
  const auto logits_of = num_tokens > 8 ? bf16_logits : cpu::logits_tc256;
  logits_of(constants, hidden_states, row_stride, num_rows, num_tokens, logits, logits_stride);
}

void bf16_weights(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  RouterConstants rounded = constants;
  rounded.spec.weights_dtype = SAMEBITS_BF16;
  cpu::weigh_tc256(rounded, scratch, weights);
}

// tanh x = (e^2x - 1) / (e^2x + 1), which is inf / inf where e^2x overflows.
void softcap_by_exponentials(const RouterConstants& constants, const std::uint16_t* hidden_states,
                             std::int64_t row_stride, std::int64_t num_rows, std::int64_t num_tokens, float* logits,
                             std::int64_t logits_stride) {
  RouterConstants uncapped = constants;
  uncapped.spec.softcap = 0.0f;
  cpu::logits_tc256(uncapped, hidden_states, row_stride, num_rows, num_tokens, logits, logits_stride);
  const float softcap = constants.spec.softcap;
  if (softcap == 0.0f) return;
  for (std::int64_t r = 0; r < num_rows; ++r) {
    for (std::int64_t e = 0; e < constants.gate_weight->gate_rows(); ++e) {
      float& logit = logits[r * logits_stride + e];
      const float power = cpu::apply_elementwise(cpu::Elementwise::kExp, 2.0f * (logit / softcap));
      logit = canonical(softcap * ((power - 1.0f) / (power + 1.0f)));
    }
  }
}

}  // namespace

std::vector<Mutant> precision_mutants() {
  using cpu::Steps;
  return {
      {"M21",
       "bf16_bias",
       "the selection bias is rounded to bf16 although the spec says fp32",
       "selection",
       "sgl-project/sglang#31213, vllm-project/vllm#50761, NVIDIA/Megatron-LM#1482",
       {"glm-5.3-flash"},
       with(&Steps::prepare_bias, bf16_bias)},
      {"M22",
       "bf16_logits",
       "logits are rounded to bf16 although the spec says fp32",
       "precision",
       "sgl-project/sglang#34758",
       {"glm-5.3-flash"},
       with(&Steps::logits, bf16_logits)},
      {"M23",
       "bf16_scores_in_keys",
       "scores are rounded to bf16 before the bias is added",
       "selection",
       "flagos-ai/FlagGems#4610",
       {"glm-5.3-flash"},
       with(&Steps::key, bf16_scores_in_keys)},
      {"M24",
       "bias_of_output_dtype",
       "the selection bias is rounded to the dtype of the weights",
       "selection",
       "NVIDIA/TensorRT-LLM#13328",
       {"ernie-4.5-21b-a3b"},
       with(&Steps::prepare_bias, bias_of_output_dtype)},
      {"M25",
       "bf16_logits_above_8_rows",
       "logits are rounded to bf16 in calls of more than 8 rows",
       "batch_invariance",
       "vllm-project/vllm#54048, sgl-project/sglang#33764",
       {"glm-5.3-flash"},
       with(&Steps::logits, bf16_logits_above_8_rows)},
      {"M26",
       "bf16_weights",
       "weights pass through bf16 although the spec says fp32",
       "weights",
       "sgl-project/sglang#33631, sgl-project/sglang#33608",
       {"glm-5.3-flash"},
       with(&Steps::weigh, bf16_weights)},
      {"U03",
       "softcap_by_exponentials",
       "the softcap is a quotient of exponentials, NaN for 2z / c above 88.7",
       "precision",
       "a SGLang path that forms tanh from exponentials",
       {"grok-2"},
       with(&Steps::logits, softcap_by_exponentials)},
  };
}

}  // namespace samebits::mutants
