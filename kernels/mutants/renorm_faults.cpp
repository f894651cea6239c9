// Sums that vanish or overflow, and what stands beside them.
#include <algorithm>
#include <limits>
#include <numeric>

#include "kernels/common/bits.h"
#include "kernels/common/sizes.h"
#include "kernels/cpu/score.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/sparsemixer.h"
#include "kernels/cpu/value.h"
#include "kernels/cpu/weigh.h"
#include "kernels/mutants/above_rows.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

using cpu::RouterConstants;
using cpu::RowInfo;
using cpu::RowScratch;

// 0 / 0 where every score underflows.
void no_eps(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  const std::int64_t columns = topk_columns(constants.spec);
  const float sum = std::accumulate(scratch.chosen_values, scratch.chosen_values + columns, 0.0f);
  RouterConstants bare = constants;
  bare.spec.eps_mode = SAMEBITS_EPS_NONE;
  cpu::weigh_tc256(bare, scratch, weights);
  if (constants.spec.renormalize == SAMEBITS_RENORM_L1 && sum == 0.0f) {
    std::fill_n(weights, columns, std::numeric_limits<float>::quiet_NaN());
  }
}

// What is left of a small score beside a large bias is little, or nothing.
void score_from_key(const RouterConstants& constants, const RowInfo& row, const float* logits, RowScratch& scratch) {
  cpu::value_experts(constants, row, logits, scratch);
  const samebits_router_spec& spec = constants.spec;
  if (constants.selection_bias == nullptr || spec.selection_method == SAMEBITS_SELECT_HASH_TABLE) return;
  const float* bias = constants.selection_bias + row.row_class * ranked_experts(spec);
  for (std::int64_t c = 0; c < spec.top_k; ++c) {
    const std::int32_t id = scratch.ids[c];
    const float score = scratch.keys[id] - bias[id];
    scratch.chosen_values[c] = is_nan(score) ? 0.0f : score;
  }
}

void sum_at_least_one_millionth(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  RouterConstants clamped = constants;
  clamped.spec.eps_mode = SAMEBITS_EPS_CLAMP_MIN;
  clamped.spec.eps = 1e-6f;
  cpu::weigh_tc256(clamped, scratch, weights);
}

void softmax_less(float subtracted, const float* logits, std::int64_t n, float* scores) {
  for (std::int64_t e = 0; e < n; ++e) {
    const float term = cpu::apply_elementwise(cpu::Elementwise::kExp, logits[e] - subtracted);
    scores[e] = is_nan(logits[e]) ? 0.0f : term;
  }
  const float sum = cpu::sum32(scores, n);
  for (std::int64_t e = 0; e < n; ++e) scores[e] = is_nan(logits[e]) ? from_bits(kNaNBits) : scores[e] / sum;
}

void softmax_without_maximum(const RouterConstants& constants, const float* logits, float* scores) {
  if (constants.spec.score_func != SAMEBITS_SCORE_SOFTMAX) return cpu::score_experts(constants, logits, scores);
  softmax_less(0.0f, logits, gate_rows(constants.spec), scores);
}

// Where E is no multiple of 32, lanes without an expert bring 0 into the maximum.
void idle_lanes_are_zero(const RouterConstants& constants, const float* logits, float* scores) {
  cpu::score_experts(constants, logits, scores);
  const std::int64_t n = gate_rows(constants.spec);
  if (constants.spec.score_func != SAMEBITS_SCORE_SOFTMAX || n % 32 == 0) return;
  if (std::none_of(logits, logits + n, [](float z) { return z >= 0.0f; })) softmax_less(0.0f, logits, n, scores);
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
    pass[scratch.ids[c - 1]] = -std::numeric_limits<float>::infinity();
    cpu::softmax(pass, ranked_experts(spec), scratch.scores);
    const float score = scratch.scores[scratch.ids[c]];
    scratch.chosen_values[c] = is_nan(score) ? 0.0f : score;
  }
}

}  // namespace

std::vector<Mutant> renorm_mutants() {
  using cpu::Steps;
  return {
      {"M15",
       "no_eps",
       "weights are divided by their sum alone, which may be 0",
       "finite_isolated",
       "flashinfer-ai/flashinfer#3803, sgl-project/sglang#31017",
       {"glm-5.3-flash"},
       with(&Steps::weigh, no_eps)},
      {"M16",
       "no_eps_in_one_path",
       "the path for more than 16 rows divides by the sum alone",
       "batch_invariance",
       "flashinfer-ai/flashinfer#3946",
       {"glm-5.3-flash"},
       cpu::tc256_steps(),
       above_rows<16, [] { return with(&Steps::weigh, no_eps); }>()},
      {"M17",
       "score_from_key",
       "the score of a chosen expert is its key minus its bias",
       "weights",
       "flashinfer-ai/flashinfer#3875, vllm-project/vllm#47367",
       {"glm-5.3-flash"},
       with(&Steps::value, score_from_key)},
      {"M18",
       "sum_at_least_one_millionth",
       "the sum of the weights is clamped to 1e-6 where the spec adds 1e-20",
       "sum",
       "",
       {"glm-5.3-flash"},
       with(&Steps::weigh, sum_at_least_one_millionth)},
      {"M19",
       "softmax_without_maximum",
       "the softmax does not subtract the largest logit",
       "weights",
       "",
       {"olmoe-1b-7b"},
       with(&Steps::score, softmax_without_maximum)},
      {"M20",
       "idle_lanes_are_zero",
       "lanes without an expert bring 0 into the maximum of the softmax, so that negative logits underflow",
       "selection",
       "NVIDIA/TransformerEngine#2009",
       {"qwen1.5-moe-a2.7b"},
       with(&Steps::score, idle_lanes_are_zero)},
      {"U04",
       "sparsemixer_with_kept_mask",
       "the threshold mask of the first pass is kept in the later ones",
       "weights",
       "Phi-3.5-MoE: each pass has a mask of its own",
       {"phi-3.5-moe"},
       with(&Steps::value, sparsemixer_with_kept_mask)},
  };
}

}  // namespace samebits::mutants
