#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/common/bits.h"
#include "kernels/common/sizes.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/sparsemixer.h"
#include "kernels/cpu/value.h"
#include "kernels/cpu/weigh.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

using cpu::RouterConstants;
using cpu::RowInfo;
using cpu::RowScratch;

float finite_or_zero(float x) {
  return std::isfinite(x) ? x : 0.0f;
}

void biased_values(const RouterConstants& constants, const RowInfo& row, const float* logits, RowScratch& scratch) {
  RouterConstants biased = constants;
  if (constants.selection_bias != nullptr) biased.spec.weight_source = SAMEBITS_WEIGHT_BIASED_SCORE;
  cpu::value_experts(biased, row, logits, scratch);
}

// What the first pass masked stays masked in the next ones.
void sparsemixer_with_kept_mask(const RouterConstants& constants, const RowInfo& row, const float* logits,
                                RowScratch& scratch) {
  const samebits_router_spec& spec = constants.spec;
  cpu::value_experts(constants, row, logits, scratch);
  if (spec.selection_method != SAMEBITS_SELECT_SPARSEMIXER) return;
  float* pass = scratch.keys;
  cpu::sparsemixer_pass(spec, logits, scratch.ids[0], nullptr, 0, pass);
  for (std::int64_t c = 1; c < spec.top_k; ++c) {
    pass[scratch.ids[c - 1]] = -INFINITY;
    cpu::softmax(pass, ranked_experts(spec), scratch.scores);
    const float score = scratch.scores[scratch.ids[c]];
    scratch.chosen_values[c] = is_nan(score) ? 0.0f : score;
  }
}

void uniform_hash_weights(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  if (constants.spec.selection_method == SAMEBITS_SELECT_HASH_TABLE) {
    std::fill_n(scratch.chosen_values, topk_columns(constants.spec), 1.0f);
    std::fill_n(scratch.chosen_logits, topk_columns(constants.spec), 0.0f);
  }
  cpu::weigh_tc256(constants, scratch, weights);
}

// Every weight is divided by the sum of the routed experts alone.
void sum_without_shared_experts(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  const samebits_router_spec& spec = constants.spec;
  cpu::weigh_tc256(constants, scratch, weights);
  const std::int64_t columns = topk_columns(spec);
  if (columns == spec.top_k || spec.renormalize == SAMEBITS_RENORM_NONE) return;
  const float routed = std::accumulate(weights, weights + spec.top_k, 0.0f);
  const float all = std::accumulate(weights, weights + columns, 0.0f);
  for (std::int64_t c = 0; c < columns; ++c) weights[c] = finite_or_zero(weights[c] * (all / routed));
}

void expert_scale_by_slot(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  RouterConstants unscaled = constants;
  unscaled.per_expert_scale = nullptr;
  cpu::weigh_tc256(unscaled, scratch, weights);
  if (constants.per_expert_scale == nullptr) return;
  for (std::int64_t c = 0; c < topk_columns(constants.spec); ++c) {
    weights[c] = finite_or_zero(weights[c] * constants.per_expert_scale[c]);
  }
}

}  // namespace

std::vector<Mutant> weight_mutants() {
  using cpu::Steps;
  return {
      {"M27",
       "biased_weights",
       "weights come from score + bias although the spec says unbiased",
       "weights",
       "vllm-project/vllm#11971, huggingface/transformers#39581",
       {"glm-5.3-flash"},
       with(&Steps::value, biased_values)},
      {"M92",
       "uniform_hash_weights",
       "experts from a hash table all get the same weight",
       "weights",
       "pie #480: 1/k instead of the renormalised scores of the chosen",
       {"deepseek-v4-flash", "0"},
       with(&Steps::weigh, uniform_hash_weights)},
      {"U04",
       "sparsemixer_with_kept_mask",
       "the threshold mask of the first pass is kept in the later ones",
       "weights",
       "Phi-3.5-MoE: each pass has a mask of its own",
       {"phi-3.5-moe"},
       with(&Steps::value, sparsemixer_with_kept_mask)},
      {"U05",
       "sum_without_shared_experts",
       "shared experts in the gate take no part in the sum",
       "weights",
       "Inkling: shared experts are normalised with the routed ones",
       {"inkling-small"},
       with(&Steps::weigh, sum_without_shared_experts)},
      {"U06",
       "expert_scale_by_slot",
       "the scale of an expert is looked up by slot instead of by id",
       "weights",
       "Gemma-4: per_expert_scale is gathered by id",
       {"gemma-4-26b-a4b"},
       with(&Steps::weigh, expert_scale_by_slot)},
  };
}

}  // namespace samebits::mutants
