// What a flag of the spec means: renormalisation on and off, the softmax over all or over the chosen, whose sum it is.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "kernels/common/bits.h"
#include "kernels/common/sizes.h"
#include "kernels/cpu/score.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/value.h"
#include "kernels/cpu/weigh.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

using cpu::RouterConstants;
using cpu::RowInfo;
using cpu::RowScratch;

RouterConstants renormalizing(const RouterConstants& constants, std::int32_t renormalize) {
  RouterConstants other = constants;
  other.spec.renormalize = renormalize;
  return other;
}

void always_renormalized(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  const bool off = constants.spec.renormalize == SAMEBITS_RENORM_NONE;
  cpu::weigh_tc256(off ? renormalizing(constants, SAMEBITS_RENORM_L1) : constants, scratch, weights);
}

void never_renormalized(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  cpu::weigh_tc256(renormalizing(constants, SAMEBITS_RENORM_NONE), scratch, weights);
}

void raw_logits_if_off(const RouterConstants& constants, const RowInfo& row, const float* logits, RowScratch& scratch) {
  cpu::value_experts(constants, row, logits, scratch);
  if (constants.spec.renormalize != SAMEBITS_RENORM_NONE) return;
  for (std::int64_t c = 0; c < topk_columns(constants.spec); ++c) {
    scratch.chosen_values[c] = is_nan(scratch.chosen_logits[c]) ? 0.0f : scratch.chosen_logits[c];
  }
}

void softmax_of_chosen_if_off(const RouterConstants& constants, const RowInfo& row, const float* logits,
                              RowScratch& scratch) {
  RouterConstants other = constants;
  if (constants.spec.renormalize == SAMEBITS_RENORM_NONE) other.spec.score_stage = SAMEBITS_SCORE_AFTER_TOPK;
  cpu::value_experts(other, row, logits, scratch);
}

// Slots are spread over 32 lanes, and the loop of a lane runs to k instead of to its share.
void first_slots_renormalized(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  const std::int64_t columns = topk_columns(constants.spec);
  const std::vector<float> values(scratch.chosen_values, scratch.chosen_values + columns);
  cpu::weigh_tc256(constants, scratch, weights);
  for (std::int64_t c = 32 / columns; c < columns; ++c) {
    weights[c] = values[static_cast<std::size_t>(c)] * constants.spec.routed_scaling_factor;
  }
}

void one_slot_not_renormalized(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  if (constants.spec.top_k == 1) return never_renormalized(constants, scratch, weights);
  cpu::weigh_tc256(constants, scratch, weights);
}

// The sum runs over the routed experts alone; a zero expert is divided by it but is no part of it.
void softmax_without_zero_experts(const RouterConstants& constants, const float* logits, float* scores) {
  const samebits_router_spec& spec = constants.spec;
  cpu::score_experts(constants, logits, scores);
  if (spec.zero_experts == 0 || spec.score_func != SAMEBITS_SCORE_SOFTMAX) return;
  float routed = 0;
  for (std::int64_t e = 0; e < spec.num_experts; ++e) routed += is_nan(scores[e]) ? 0.0f : scores[e];
  for (std::int64_t e = 0; e < ranked_experts(spec); ++e) scores[e] /= routed;
}

// Every weight is divided by the sum of the routed experts alone.
void sum_without_shared_experts(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  const samebits_router_spec& spec = constants.spec;
  cpu::weigh_tc256(constants, scratch, weights);
  const std::int64_t columns = topk_columns(spec);
  if (columns == spec.top_k || spec.renormalize == SAMEBITS_RENORM_NONE) return;
  const float routed = std::accumulate(weights, weights + spec.top_k, 0.0f);
  const float all = std::accumulate(weights, weights + columns, 0.0f);
  for (std::int64_t c = 0; c < columns; ++c) {
    const float weight = weights[c] * (all / routed);
    weights[c] = std::isfinite(weight) ? weight : 0.0f;
  }
}

}  // namespace

std::vector<Mutant> semantics_mutants() {
  using cpu::Steps;
  return {
      {"M31",
       "always_renormalized",
       "weights are divided by their sum although the spec says not to",
       "sum",
       "flashinfer-ai/flashinfer#2889, vllm-project/vllm#31246",
       {"olmoe-1b-7b"},
       with(&Steps::weigh, always_renormalized)},
      {"M32",
       "never_renormalized",
       "weights are not divided by their sum although the spec says so",
       "sum",
       "pytorch/torchtitan#1448",
       {"qwen3-30b-a3b"},
       with(&Steps::weigh, never_renormalized)},
      {"M33",
       "raw_logits_if_off",
       "without renormalisation the weights are the logits",
       "weights",
       "sgl-project/sglang#35160",
       {"olmoe-1b-7b"},
       with(&Steps::value, raw_logits_if_off)},
      {"M34",
       "softmax_of_chosen_if_off",
       "without renormalisation the weights are a softmax over the chosen logits",
       "weights",
       "lablup/mlxcel#391",
       {"olmoe-1b-7b"},
       with(&Steps::value, softmax_of_chosen_if_off)},
      {"M35",
       "first_slots_renormalized",
       "only the first 32 / k slots are divided by the sum",
       "weights",
       "ggml-org/llama.cpp#16711",
       {"qwen3-30b-a3b"},
       with(&Steps::weigh, first_slots_renormalized)},
      {"M36",
       "one_slot_not_renormalized",
       "with k = 1 the weight is not divided by itself",
       "sum",
       "NVIDIA/TransformerEngine#2720, databricks/megablocks#87",
       {"mixtral-8x7b", nullptr, {{"shape.top_k", "1"}}},
       with(&Steps::weigh, one_slot_not_renormalized)},
      {"U01",
       "softmax_without_zero_experts",
       "the sum of the softmax leaves the zero experts out",
       "weights",
       "LongCat-Flash: softmax over 768 rows, 256 of them zero experts",
       {"longcat-flash"},
       with(&Steps::score, softmax_without_zero_experts)},
      {"U05",
       "sum_without_shared_experts",
       "shared experts in the gate take no part in the sum",
       "weights",
       "Inkling: shared experts are normalised with the routed ones",
       {"inkling-small"},
       with(&Steps::weigh, sum_without_shared_experts)},
  };
}

}  // namespace samebits::mutants
