// Weights by other roundings, other scales and other rules for what is not finite.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/common/bits.h"
#include "kernels/common/sizes.h"
#include "kernels/cpu/value.h"
#include "kernels/cpu/weigh.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

using cpu::RouterConstants;
using cpu::RowInfo;
using cpu::RowScratch;

constexpr float kInf = std::numeric_limits<float>::infinity();

float finite_or_zero(float x) {
  return std::isfinite(x) ? x : 0.0f;
}

void nan_zeroes_row(const RouterConstants& constants, const RowInfo& row, const float* logits, RowScratch& scratch) {
  cpu::value_experts(constants, row, logits, scratch);
  const std::int64_t columns = topk_columns(constants.spec);
  if (std::any_of(scratch.chosen_logits, scratch.chosen_logits + columns, is_nan)) {
    std::fill_n(scratch.chosen_values, columns, 0.0f);
  }
}

void inf_zeroes_row(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  float* values = scratch.chosen_values;
  const std::int64_t columns = topk_columns(constants.spec);
  if (std::find(values, values + columns, kInf) != values + columns) std::fill_n(values, columns, 0.0f);
  cpu::weigh_tc256(constants, scratch, weights);
}

void first_inf_takes_all(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  float* values = scratch.chosen_values;
  float* end = values + topk_columns(constants.spec);
  float* first = std::find(values, end, kInf);
  if (first != end) std::replace(first + 1, end, kInf, 0.0f);
  cpu::weigh_tc256(constants, scratch, weights);
}

void truncated_bf16_weights(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  RouterConstants exact = constants;
  exact.spec.weights_dtype = SAMEBITS_FP32;
  cpu::weigh_tc256(exact, scratch, weights);
  if (constants.spec.weights_dtype != SAMEBITS_BF16) return;
  for (std::int64_t c = 0; c < topk_columns(constants.spec); ++c) {
    weights[c] = from_bits(to_bits(weights[c]) & 0xffff0000u);
  }
}

void rounded_before_scale(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  const samebits_router_spec& spec = constants.spec;
  RouterConstants unscaled = constants;
  const bool late = spec.weights_dtype == SAMEBITS_BF16 && spec.scale_stage == SAMEBITS_SCALE_AFTER_RENORM;
  if (late) unscaled.spec.routed_scaling_factor = 1.0f;
  cpu::weigh_tc256(unscaled, scratch, weights);
  if (!late) return;
  for (std::int64_t c = 0; c < topk_columns(spec); ++c) {
    weights[c] = finite_or_zero(round_to_bf16(weights[c] * spec.routed_scaling_factor));
  }
}

void log_space_as_ratio(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  RouterConstants ratio = constants;
  if (constants.spec.renormalize == SAMEBITS_RENORM_LOG_SPACE_L1) ratio.spec.renormalize = SAMEBITS_RENORM_L1;
  cpu::weigh_tc256(ratio, scratch, weights);
}

void expert_scale_before_sum(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  RouterConstants unscaled = constants;
  unscaled.per_expert_scale = nullptr;
  for (std::int64_t c = 0; constants.per_expert_scale != nullptr && c < topk_columns(constants.spec); ++c) {
    scratch.chosen_values[c] *= constants.per_expert_scale[scratch.ids[c]];
  }
  cpu::weigh_tc256(unscaled, scratch, weights);
}

void global_scale_on_routed_only(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  RouterConstants unscaled = constants;
  unscaled.global_scale = nullptr;
  cpu::weigh_tc256(unscaled, scratch, weights);
  for (std::int64_t c = 0; constants.global_scale != nullptr && c < topk_columns(constants.spec); ++c) {
    if (scratch.ids[c] < ranked_experts(constants.spec))
      weights[c] = finite_or_zero(weights[c] * *constants.global_scale);
  }
}

void ids_sorted_alone(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  RouterConstants unsorted = constants;
  unsorted.spec.sort = SAMEBITS_SORT_BY_KEY_DESC;
  cpu::weigh_tc256(unsorted, scratch, weights);
  if (constants.spec.sort == SAMEBITS_SORT_BY_INDEX) {
    std::sort(scratch.ids, scratch.ids + topk_columns(constants.spec));
  }
}

void remapped_expert_keeps_weight(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  RouterConstants kept = constants;
  kept.spec.zero_type = SAMEBITS_ZERO_EXPERTS_IDENTITY;
  cpu::weigh_tc256(kept, scratch, weights);
  if (constants.spec.zero_type != SAMEBITS_ZERO_EXPERTS_IDENTITY_REMAPPED_TO_ID0_WEIGHT0) return;
  for (std::int64_t c = 0; c < topk_columns(constants.spec); ++c) {
    const bool zero = scratch.ids[c] >= constants.spec.num_experts && scratch.ids[c] < ranked_experts(constants.spec);
    if (zero) scratch.ids[c] = 0;
  }
}

void subnormal_weights_flushed(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  cpu::weigh_tc256(constants, scratch, weights);
  for (std::int64_t c = 0; c < topk_columns(constants.spec); ++c) {
    if (std::fpclassify(weights[c]) == FP_SUBNORMAL) weights[c] = 0.0f;
  }
}

}  // namespace

std::vector<Mutant> unlisted_weight_mutants() {
  using cpu::Steps;
  const auto weigh = [](decltype(Steps::weigh) fault) { return with(&Steps::weigh, fault); };
  return {
      {"U47",
       "nan_zeroes_row",
       "one chosen expert that is NaN makes every weight of the row 0",
       "weights",
       "a sum with NaN, sanitised at the end",
       {"glm-5.3-flash"},
       with(&Steps::value, nan_zeroes_row)},
      {"U48",
       "inf_zeroes_row",
       "one score of +inf makes every weight of the row 0",
       "weights",
       "inf / inf, sanitised at the end",
       {"deepseek-v4-flash"},
       weigh(inf_zeroes_row)},
      {"U49",
       "first_inf_takes_all",
       "of several scores of +inf the first gets all the weight",
       "weights",
       "",
       {"deepseek-v4-flash"},
       weigh(first_inf_takes_all)},
      {"U50",
       "truncated_bf16_weights",
       "bf16 weights are cut toward zero instead of rounded",
       "weights",
       "",
       {"qwen3-30b-a3b"},
       weigh(truncated_bf16_weights)},
      {"U51",
       "rounded_before_scale",
       "weights are rounded to bf16 before the scale and after it",
       "weights",
       "a cast before the routed scaling factor",
       {"deepseek-v3", nullptr, {{"weights.dtype", "bf16"}}},
       weigh(rounded_before_scale)},
      {"U52",
       "subnormal_weights_flushed",
       "subnormal weights become 0",
       "weights",
       "CUDA builds with --use_fast_math",
       {"glm-5.3-flash"},
       weigh(subnormal_weights_flushed)},
      {"U53",
       "log_space_as_ratio",
       "log-sigmoids are renormalised as sigmoids, 0 where they underflow",
       "weights",
       "",
       {"inkling-small"},
       weigh(log_space_as_ratio)},
      {"U54",
       "expert_scale_before_sum",
       "the scale of an expert is applied before the sum is taken",
       "weights",
       "",
       {"gemma-4-26b-a4b"},
       weigh(expert_scale_before_sum)},
      {"U55",
       "global_scale_on_routed_only",
       "the learned factor is left out for the shared experts",
       "weights",
       "",
       {"inkling-small"},
       weigh(global_scale_on_routed_only)},
      {"U56",
       "ids_sorted_alone",
       "ids are sorted by index and the weights stay where they were",
       "weights",
       "",
       {"qwen3-30b-a3b", nullptr, {{"selection.sort", "by_index"}}},
       weigh(ids_sorted_alone)},
      {"U57",
       "remapped_expert_keeps_weight",
       "a zero expert becomes id 0 and keeps its weight",
       "weights",
       "vLLM's zero experts of LongCat-Flash",
       {"longcat-flash", nullptr, {{"special.zero_type", "identity_remapped_to_id0_weight0"}}},
       weigh(remapped_expert_keeps_weight)},
  };
}

}  // namespace samebits::mutants
