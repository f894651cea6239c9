// Scores by other functions, other sums and other roundings.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/common/bits.h"
#include "kernels/common/sizes.h"
#include "kernels/cpu/score.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/value.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

using cpu::Elementwise;
using cpu::RouterConstants;
using cpu::RowInfo;
using cpu::RowScratch;

constexpr float kInf = std::numeric_limits<float>::infinity();

bool scores_all_by(const samebits_router_spec& spec, std::int32_t func) {
  return spec.score_func == func && spec.score_stage == SAMEBITS_SCORE_BEFORE_TOPK &&
         spec.selection_method != SAMEBITS_SELECT_SPARSEMIXER;
}

// The score of every logit becomes f(logit), where the spec has this function.
template <class F>
void rescore_each(const RouterConstants& constants, std::int32_t func, const float* logits, float* scores, F f) {
  cpu::score_experts(constants, logits, scores);
  if (!scores_all_by(constants.spec, func)) return;
  for (std::int64_t e = 0; e < gate_rows(constants.spec); ++e) {
    const float score = canonical(f(logits[e]));
    scores[e] = constants.spec.score_dtype == SAMEBITS_BF16 ? round_to_bf16(score) : score;
  }
}

void sigmoid_by_tanh(const RouterConstants& constants, const float* logits, float* scores) {
  rescore_each(constants, SAMEBITS_SCORE_SIGMOID, logits, scores,
               [](float x) { return 0.5f * cpu::apply_elementwise(Elementwise::kTanh, 0.5f * x) + 0.5f; });
}

void truncated_bf16_scores(const RouterConstants& constants, const float* logits, float* scores) {
  RouterConstants exact = constants;
  exact.spec.score_dtype = SAMEBITS_FP32;
  cpu::score_experts(exact, logits, scores);
  if (constants.spec.score_dtype != SAMEBITS_BF16) return;
  for (std::int64_t e = 0; e < gate_rows(constants.spec); ++e) {
    scores[e] = canonical(from_bits(to_bits(scores[e]) & 0xffff0000u));
  }
}

float largest_number(const std::vector<float>& logits) {
  float largest = -kInf;
  for (const float x : logits) largest = x > largest ? x : largest;
  return largest;
}

// A softmax whose steps can be replaced one by one; NaN logits keep a NaN score and have no part in the sum.
template <class Largest, class Exp, class Sum>
void rescore_by_softmax(const RouterConstants& constants, const float* logits, float* scores, Largest largest, Exp exp,
                        Sum sum) {
  cpu::score_experts(constants, logits, scores);
  if (!scores_all_by(constants.spec, SAMEBITS_SCORE_SOFTMAX)) return;
  std::vector<float> terms(logits, logits + gate_rows(constants.spec));
  const float m = largest(terms);
  if (std::isinf(m)) return;
  for (float& term : terms) term = is_nan(term - m) ? 0.0f : exp(term - m);
  const float total = sum(terms, m);
  for (std::size_t e = 0; e < terms.size(); ++e) {
    scores[e] = is_nan(logits[e] - m) ? from_bits(kNaNBits) : terms[e] / total;
    if (constants.spec.score_dtype == SAMEBITS_BF16) scores[e] = round_to_bf16(scores[e]);
  }
}

float exp_of_contract(float x) {
  return cpu::apply_elementwise(Elementwise::kExp, x);
}

float sum_of_contract(const std::vector<float>& terms, float) {
  return cpu::sum32(terms.data(), static_cast<std::int64_t>(terms.size()));
}

void softmax_over_padded_lanes(const RouterConstants& constants, const float* logits, float* scores) {
  rescore_by_softmax(constants, logits, scores, largest_number, exp_of_contract, [](std::vector<float> terms, float m) {
    while (terms.size() % 32 != 0) terms.push_back(exp_of_contract(0.0f - m));
    return sum_of_contract(terms, m);
  });
}

void softmax_max_starts_at_first(const RouterConstants& constants, const float* logits, float* scores) {
  const auto largest = [](const std::vector<float>& values) {
    float m = values[0];
    for (const float x : values) m = x > m ? x : m;
    return m;
  };
  rescore_by_softmax(constants, logits, scores, largest, exp_of_contract, sum_of_contract);
}

void minus_inf_row_is_nan(const RouterConstants& constants, const float* logits, float* scores) {
  cpu::score_experts(constants, logits, scores);
  const std::vector<float> row(logits, logits + gate_rows(constants.spec));
  if (!scores_all_by(constants.spec, SAMEBITS_SCORE_SOFTMAX) || largest_number(row) != -kInf) return;
  std::fill_n(scores, row.size(), from_bits(kNaNBits));
}

// Left to right instead of in the order of a warp.
void chosen_softmax_left_to_right(const RouterConstants& constants, const RowInfo& row, const float* logits,
                                  RowScratch& scratch) {
  cpu::value_experts(constants, row, logits, scratch);
  const samebits_router_spec& spec = constants.spec;
  const float m = scratch.chosen_logits[0];
  if (spec.score_stage != SAMEBITS_SCORE_AFTER_TOPK || spec.score_func != SAMEBITS_SCORE_SOFTMAX || std::isinf(m))
    return;
  float total = 0.0f;
  for (std::int64_t c = 0; c < spec.top_k; ++c) {
    const float term = exp_of_contract(scratch.chosen_logits[c] - m);
    scratch.chosen_values[c] = is_nan(term) ? 0.0f : term;
    total += scratch.chosen_values[c];
  }
  for (std::int64_t c = 0; c < spec.top_k; ++c) {
    float& value = scratch.chosen_values[c];
    value = total == 0.0f ? 0.0f : value / total;
    if (spec.score_dtype == SAMEBITS_BF16) value = round_to_bf16(value);
  }
}

void subnormal_scores_flushed(const RouterConstants& constants, const float* logits, float* scores) {
  cpu::score_experts(constants, logits, scores);
  for (std::int64_t e = 0; e < gate_rows(constants.spec); ++e) {
    if (std::fpclassify(scores[e]) == FP_SUBNORMAL) scores[e] = 0.0f;
  }
}

void sigmoid_of_overflowing_exp(const RouterConstants& constants, const float* logits, float* scores) {
  rescore_each(constants, SAMEBITS_SCORE_SIGMOID, logits, scores, [](float x) {
    // Right to the bit but where e^-x overflows.
    return x < -88.8f ? 0.0f : cpu::apply_elementwise(Elementwise::kSigmoid, x);
  });
}

void softplus_by_log_of_sum(const RouterConstants& constants, const float* logits, float* scores) {
  rescore_each(constants, SAMEBITS_SCORE_SQRT_SOFTPLUS, logits, scores, [](float x) {
    if (x > -15.0f) return cpu::apply_elementwise(Elementwise::kSqrtSoftplus, x);
    return std::sqrt(cpu::apply_elementwise(Elementwise::kLog, 1.0f + cpu::apply_elementwise(Elementwise::kExp, x)));
  });
}

void softplus_cut_at_20(const RouterConstants& constants, const float* logits, float* scores) {
  rescore_each(constants, SAMEBITS_SCORE_SQRT_SOFTPLUS, logits, scores, [](float x) {
    return x > 10.0f ? std::sqrt(x) : cpu::apply_elementwise(Elementwise::kSqrtSoftplus, x);
  });
}

// As 2^(x log2 e) with one rounded product: the error grows with |x|.
void softmax_by_fast_exp(const RouterConstants& constants, const float* logits, float* scores) {
  rescore_by_softmax(
      constants, logits, scores, largest_number, [](float x) { return std::exp2(x * 0x1.715476p+0f); },
      sum_of_contract);
}

void softmax_summed_left_to_right(const RouterConstants& constants, const float* logits, float* scores) {
  rescore_by_softmax(constants, logits, scores, largest_number, exp_of_contract,
                     [](const std::vector<float>& terms, float) {
                       float total = 0.0f;
                       for (const float term : terms) total += term;
                       return total;
                     });
}

}  // namespace

std::vector<Mutant> unlisted_score_mutants() {
  using cpu::Steps;
  return {
      {"U26",
       "subnormal_scores_flushed",
       "subnormal scores become 0",
       "selection",
       "CUDA builds with --use_fast_math",
       {"minimax-m2"},
       with(&Steps::score, subnormal_scores_flushed)},
      {"U27",
       "sigmoid_by_tanh",
       "the sigmoid is 0.5 tanh(x / 2) + 0.5, 0 far below zero",
       "weights",
       "GPU kernels that have tanh in hardware",
       {"glm-5.3-flash"},
       with(&Steps::score, sigmoid_by_tanh)},
      {"U28",
       "sigmoid_of_overflowing_exp",
       "the sigmoid is 1 / (1 + e^-x), 0 where e^-x overflows",
       "selection",
       "",
       {"minimax-m2"},
       with(&Steps::score, sigmoid_of_overflowing_exp)},
      {"U29",
       "softplus_by_log_of_sum",
       "softplus below -15 is log(1 + e^x), where 1 + e^x has lost e^x",
       "selection",
       "",
       {"deepseek-v4-flash"},
       with(&Steps::score, softplus_by_log_of_sum)},
      {"U30",
       "softplus_is_x_above_10",
       "softplus(x) is x above 10",
       "weights",
       "PyTorch's threshold, which is 20",
       {"deepseek-v4-flash"},
       with(&Steps::score, softplus_cut_at_20)},
      {"U31",
       "truncated_bf16_scores",
       "bf16 scores are cut toward zero instead of rounded",
       "weights",
       "",
       {"deepseek-v3", nullptr, {{"score.dtype", "bf16"}}},
       with(&Steps::score, truncated_bf16_scores)},
      {"U32",
       "softmax_by_fast_exp",
       "the exponential of the softmax is 2^(x log2 e), the product rounded",
       "weights",
       "__expf and ex2.approx",
       {"mixtral-8x7b", nullptr, {{"weights.dtype", "fp32"}}},
       with(&Steps::score, softmax_by_fast_exp)},
      {"U33",
       "softmax_summed_left_to_right",
       "the terms of the softmax are added from the first to the last",
       "weights",
       "",
       {"qwen3-30b-a3b", nullptr, {{"weights.dtype", "fp32"}}},
       with(&Steps::score, softmax_summed_left_to_right)},
      {"U34",
       "softmax_over_padded_lanes",
       "the softmax runs over E rounded up to 32, the rest with logit 0",
       "weights",
       "",
       {"qwen1.5-moe-a2.7b"},
       with(&Steps::score, softmax_over_padded_lanes)},
      {"U35",
       "softmax_max_starts_at_first",
       "a NaN in the first logit stays the maximum of the softmax",
       "non_finite",
       "m = x[0]; if (x > m) m = x",
       {"qwen3-30b-a3b"},
       with(&Steps::score, softmax_max_starts_at_first)},
      {"U36",
       "minus_inf_row_is_nan",
       "a softmax whose largest logit is -inf is NaN everywhere",
       "non_finite",
       "exp(-inf - -inf)",
       {"qwen3-30b-a3b"},
       with(&Steps::score, minus_inf_row_is_nan)},
      {"U37",
       "chosen_softmax_left_to_right",
       "the softmax over the chosen is summed from the first slot to the last",
       "weights",
       "",
       {"gpt-oss-20b", nullptr, {{"score.dtype", "fp32"}, {"weights.dtype", "fp32"}}},
       with(&Steps::value, chosen_softmax_left_to_right)},
  };
}

}  // namespace samebits::mutants
