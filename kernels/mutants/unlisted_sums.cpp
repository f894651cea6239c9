// Weights by other sums and other quotients.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/common/sizes.h"
#include "kernels/cpu/select.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/weigh.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

using cpu::RouterConstants;
using cpu::RowScratch;

constexpr float kInf = std::numeric_limits<float>::infinity();

float finite_or_zero(float x) {
  return std::isfinite(x) ? x : 0.0f;
}

float with_eps(const samebits_router_spec& spec, float sum) {
  if (spec.eps_mode == SAMEBITS_EPS_ADD) return sum + spec.eps;
  if (spec.eps_mode == SAMEBITS_EPS_CLAMP_MIN) return sum > spec.eps ? sum : spec.eps;
  return sum;
}

float sum_of(const float* values, std::int64_t n) {
  return std::accumulate(values + 1, values + n, values[0]);
}

// Renormalised weights by other formulas: sum(values, n) is the S of the row and weight(s, D, scale) a weight of it.
// What is left to do (learned scales, rounding, order) is the router's own.
template <class Sum, class Weight>
void renormalize_by(const RouterConstants& constants, RowScratch& scratch, float* weights, Sum sum, Weight weight) {
  const std::int64_t columns = topk_columns(constants.spec);
  float* values = scratch.chosen_values;
  const bool infinite = std::find(values, values + columns, kInf) != values + columns;
  if (constants.spec.renormalize != SAMEBITS_RENORM_L1 || infinite) {
    return cpu::weigh_tc256(constants, scratch, weights);
  }
  const float divisor = with_eps(constants.spec, sum(values, columns));
  if (divisor == 0.0f) return cpu::weigh_tc256(constants, scratch, weights);
  RouterConstants rest = constants;
  const bool applied = constants.spec.scale_stage != SAMEBITS_SCALE_ON_EXPERT_OUTPUT;
  const float scale = applied ? constants.spec.routed_scaling_factor : 1.0f;
  rest.spec.renormalize = SAMEBITS_RENORM_NONE;
  rest.spec.routed_scaling_factor = 1.0f;
  for (std::int64_t c = 0; c < columns; ++c) values[c] = weight(values[c], divisor, scale);
  cpu::weigh_tc256(rest, scratch, weights);
}

float weight_of_contract(float s, float divisor, float scale) {
  return s / divisor * scale;
}

void product_with_reciprocal(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  renormalize_by(constants, scratch, weights, sum_of,
                 [](float s, float divisor, float scale) { return s * (1.0f / divisor) * scale; });
}

void scale_over_sum_first(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  renormalize_by(constants, scratch, weights, sum_of,
                 [](float s, float divisor, float scale) { return s * (scale / divisor); });
}

void eps_in_every_term(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  const float eps = constants.spec.eps_mode == SAMEBITS_EPS_ADD ? constants.spec.eps : 0.0f;
  renormalize_by(constants, scratch, weights, sum_of,
                 [eps](float s, float divisor, float scale) { return weight_of_contract(s + eps, divisor, scale); });
}

void eps_twice(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  const float eps = constants.spec.eps_mode == SAMEBITS_EPS_ADD ? constants.spec.eps : 0.0f;
  renormalize_by(constants, scratch, weights, sum_of,
                 [eps](float s, float divisor, float scale) { return weight_of_contract(s, divisor + eps, scale); });
}

void sum_by_tree(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  const auto sum = [](const float* values, std::int64_t n) { return cpu::sum32(values, n); };
  renormalize_by(constants, scratch, weights, sum, weight_of_contract);
}

void sum_in_order_of_ids(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  const std::int32_t* ids = scratch.ids;
  const auto sum = [ids](const float* values, std::int64_t n) {
    std::vector<std::int64_t> slots(static_cast<std::size_t>(n));
    std::iota(slots.begin(), slots.end(), 0);
    std::ranges::sort(slots, [ids](std::int64_t a, std::int64_t b) { return ids[a] < ids[b]; });
    float total = 0.0f;
    for (const std::int64_t slot : slots) total += values[slot];
    return total;
  };
  renormalize_by(constants, scratch, weights, sum, weight_of_contract);
}

// The sum takes in the next experts too, until there are 2^n terms.
void sum_over_power_of_two(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  const samebits_router_spec& spec = constants.spec;
  std::int64_t terms = 1;
  while (terms < spec.top_k) terms *= 2;
  const bool ranked = spec.selection_method == SAMEBITS_SELECT_TOPK && spec.topk_scope == SAMEBITS_TOPK_GLOBAL &&
                      spec.n_group == 1 && spec.score_stage == SAMEBITS_SCORE_BEFORE_TOPK;
  if (!ranked || terms > ranked_experts(spec)) return cpu::weigh_tc256(constants, scratch, weights);
  std::vector<std::int32_t> ids(static_cast<std::size_t>(terms));
  cpu::best_keys(scratch.keys, nullptr, ranked_experts(spec), terms, ids.data(), cpu::ranks_before);
  const auto sum = [&](const float* values, std::int64_t n) {
    float total = sum_of(values, n);
    for (std::int64_t i = spec.top_k; i < terms; ++i) {
      total += finite_or_zero(scratch.scores[ids[static_cast<std::size_t>(i)]]);
    }
    return total;
  };
  renormalize_by(constants, scratch, weights, sum, weight_of_contract);
}

void zero_sum_is_uniform(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  const std::int64_t columns = topk_columns(constants.spec);
  if (constants.spec.renormalize == SAMEBITS_RENORM_L1 &&
      with_eps(constants.spec, sum_of(scratch.chosen_values, columns)) == 0.0f) {
    std::fill_n(scratch.chosen_values, columns, 1.0f);
  }
  cpu::weigh_tc256(constants, scratch, weights);
}

void eps_as_floor(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  RouterConstants floored = constants;
  if (constants.spec.eps_mode == SAMEBITS_EPS_ADD) floored.spec.eps_mode = SAMEBITS_EPS_CLAMP_MIN;
  cpu::weigh_tc256(floored, scratch, weights);
}

}  // namespace

std::vector<Mutant> unlisted_sum_mutants() {
  using cpu::Steps;
  const auto weigh = [](decltype(Steps::weigh) fault) { return with(&Steps::weigh, fault); };
  return {
      {"U38",
       "product_with_reciprocal",
       "scores are multiplied by 1 / D instead of divided by D",
       "weights",
       "",
       {"glm-5.3-flash"},
       weigh(product_with_reciprocal)},
      {"U39",
       "scale_over_sum_first",
       "scores are multiplied by scale / D, formed once",
       "weights",
       "",
       {"glm-5.3-flash"},
       weigh(scale_over_sum_first)},
      {"U40",
       "eps_in_every_term",
       "eps is added to every score as well as to their sum",
       "weights",
       "",
       {"glm-5.3-flash"},
       weigh(eps_in_every_term)},
      {"U41", "eps_twice", "eps is added to the sum twice", "weights", "", {"glm-5.3-flash"}, weigh(eps_twice)},
      {"U42",
       "eps_as_floor",
       "eps is a floor of the sum instead of being added to it",
       "weights",
       "llama.cpp clamps where the models add",
       {"glm-5.3-flash"},
       weigh(eps_as_floor)},
      {"U43",
       "sum_by_tree",
       "the chosen scores are added as a tree over lanes",
       "weights",
       "warp shuffles",
       {"glm-5.3-flash"},
       weigh(sum_by_tree)},
      {"U44",
       "sum_in_order_of_ids",
       "the chosen scores are added in the order of their ids",
       "weights",
       "references that ask for an unsorted top-k",
       {"glm-5.3-flash"},
       weigh(sum_in_order_of_ids)},
      {"U45",
       "sum_over_power_of_two",
       "the sum runs over k rounded up to a power of two",
       "weights",
       "",
       {"deepseek-v4-flash"},
       weigh(sum_over_power_of_two)},
      {"U46",
       "zero_sum_is_uniform",
       "where the sum is 0 all experts get the same weight",
       "weights",
       "",
       {"minimax-m2"},
       weigh(zero_sum_is_uniform)},
  };
}

}  // namespace samebits::mutants
