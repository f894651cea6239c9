// The selection bias in the wrong place, twice, or of another class of rows.
#include <vector>

#include "kernels/common/sizes.h"
#include "kernels/cpu/score.h"
#include "kernels/cpu/value.h"
#include "kernels/mutants/above_rows.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

using cpu::RouterConstants;
using cpu::RowInfo;
using cpu::RowScratch;

const float* bias_of(const RouterConstants& constants, const RowInfo& row) {
  return constants.selection_bias + row.row_class * ranked_experts(constants.spec);
}

void biased_weights(const RouterConstants& constants, const RowInfo& row, const float* logits, RowScratch& scratch) {
  RouterConstants biased = constants;
  if (constants.selection_bias != nullptr) biased.spec.weight_source = SAMEBITS_WEIGHT_BIASED_SCORE;
  cpu::value_experts(biased, row, logits, scratch);
}

// keys = score function of logit + bias.
void score_of_biased_logits(const RouterConstants& constants, const RowInfo& row, const float* logits,
                            const float* scores, float* keys) {
  if (constants.selection_bias == nullptr) return cpu::rank_keys(constants, row, logits, scores, keys);
  const std::int64_t n = ranked_experts(constants.spec);
  std::vector<float> biased(logits, logits + n);
  for (std::int64_t e = 0; e < n; ++e) biased[static_cast<std::size_t>(e)] += bias_of(constants, row)[e];
  cpu::apply_score_func(constants.spec, biased.data(), n, keys);
}

void bias_twice(const RouterConstants& constants, const RowInfo& row, const float* logits, const float* scores,
                float* keys) {
  cpu::rank_keys(constants, row, logits, scores, keys);
  if (constants.selection_bias == nullptr) return;
  for (std::int64_t e = 0; e < ranked_experts(constants.spec); ++e) keys[e] += bias_of(constants, row)[e];
}

// Image rows get the bias of text rows.
void keys_of_first_class(const RouterConstants& constants, const RowInfo& row, const float* logits, const float* scores,
                         float* keys) {
  RowInfo text = row;
  text.row_class = 0;
  cpu::rank_keys(constants, text, logits, scores, keys);
}

}  // namespace

std::vector<Mutant> bias_mutants() {
  using cpu::Steps;
  return {
      {"M27",
       "biased_weights",
       "weights come from score + bias although the spec says unbiased",
       "weights",
       "vllm-project/vllm#11971, huggingface/transformers#39581",
       {"glm-5.3-flash"},
       with(&Steps::value, biased_weights)},
      {"M28",
       "sigmoid_of_biased_logits",
       "experts are ranked by the sigmoid of logit + bias",
       "selection",
       "NVIDIA/Megatron-LM, commit eec34ff3",
       {"glm-5.3-flash"},
       with(&Steps::key, score_of_biased_logits)},
      {"M29",
       "bias_before_softmax",
       "experts are ranked by the softmax of logit + bias",
       "selection",
       "ROCm/aiter#4247",
       {"ernie-4.5-21b-a3b"},
       with(&Steps::key, score_of_biased_logits)},
      {"M30",
       "bias_twice_above_64_rows",
       "in calls of more than 64 rows the bias is added twice",
       "batch_invariance",
       "ROCm/aiter#4247",
       {"ernie-4.5-21b-a3b"},
       cpu::tc256_steps(),
       above_rows<64, [] { return with(&Steps::key, bias_twice); }>()},
      {"U02",
       "text_bias_for_image_rows",
       "rows of every class are ranked with the bias of the first",
       "selection",
       "engines that load the bias of image rows and never read it",
       {"deepseek-v4-flash-vision-exp"},
       with(&Steps::key, keys_of_first_class)},
  };
}

}  // namespace samebits::mutants
