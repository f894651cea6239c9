// Groups ranked or masked wrongly.
#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/common/bits.h"
#include "kernels/common/sizes.h"
#include "kernels/cpu/select.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

using cpu::RouterConstants;
using cpu::RowInfo;
using cpu::RowScratch;

constexpr float kInf = std::numeric_limits<float>::infinity();

bool ranks_all(const samebits_router_spec& spec) {
  return spec.selection_method != SAMEBITS_SELECT_HASH_TABLE && spec.topk_scope == SAMEBITS_TOPK_GLOBAL;
}

void take_best(const samebits_router_spec& spec, RowScratch& scratch) {
  cpu::best_keys(scratch.keys, scratch.excluded, ranked_experts(spec), spec.top_k, scratch.ids, cpu::ranks_before);
}

// Like select_tc256, but `rescore` may change the group scores, and `before` orders the groups.
template <class Rescore, class Before>
void select_by_groups(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch, Rescore rescore,
                      Before before) {
  const samebits_router_spec& spec = constants.spec;
  if (!ranks_all(spec) || spec.n_group <= 1 || spec.group_mask != SAMEBITS_GROUP_MASK_NEG_INF) {
    return cpu::select_tc256(constants, row, scratch);
  }
  const std::int64_t size = ranked_experts(spec) / spec.n_group;
  cpu::mask_groups(spec, scratch);
  for (std::int64_t g = 0; g < spec.n_group; ++g) rescore(scratch.group_scores[g], g * size, size);
  cpu::best_keys(scratch.group_scores, nullptr, spec.n_group, spec.topk_group, scratch.groups, before);
  std::fill_n(scratch.excluded, ranked_experts(spec), std::uint8_t{1});
  for (std::int64_t i = 0; i < spec.topk_group; ++i) {
    std::fill_n(scratch.excluded + scratch.groups[i] * size, size, std::uint8_t{0});
  }
  take_best(spec, scratch);
}

void groups_by_unbiased_scores(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  const float* scores = scratch.scores;
  const bool by_sum = constants.spec.group_score == SAMEBITS_GROUP_SCORE_TOP2_SUM;
  const auto rescore = [=](float& group_score, std::int64_t first, std::int64_t size) {
    std::int32_t best[2];
    cpu::best_keys(scores + first, nullptr, size, by_sum ? 2 : 1, best, cpu::ranks_before);
    group_score = by_sum ? scores[first + best[0]] + scores[first + best[1]] : scores[first + best[0]];
  };
  select_by_groups(constants, row, scratch, rescore, cpu::ranks_before);
}

void group_ties_to_higher_group(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  select_by_groups(
      constants, row, scratch, [](float&, std::int64_t, std::int64_t) {},
      [](float key, float listed) { return !cpu::ranks_before(listed, key); });
}

void nan_poisons_group(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  const float* keys = scratch.keys;
  const auto rescore = [=](float& group_score, std::int64_t first, std::int64_t size) {
    if (std::any_of(keys + first, keys + first + size, is_nan)) group_score = from_bits(kNaNBits);
  };
  select_by_groups(constants, row, scratch, rescore, cpu::ranks_before);
}

void second_best_below_best(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  const float* keys = scratch.keys;
  const bool by_sum = constants.spec.group_score == SAMEBITS_GROUP_SCORE_TOP2_SUM;
  const auto rescore = [=](float& group_score, std::int64_t first, std::int64_t size) {
    float best = -kInf, second = -kInf;
    for (std::int64_t e = first; e < first + size; ++e) best = keys[e] > best ? keys[e] : best;
    for (std::int64_t e = first; e < first + size; ++e) second = keys[e] < best && keys[e] > second ? keys[e] : second;
    if (by_sum) group_score = best + second;
  };
  select_by_groups(constants, row, scratch, rescore, cpu::ranks_before);
}

void group_threshold_keeps_ties(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  const samebits_router_spec& spec = constants.spec;
  if (!ranks_all(spec) || spec.n_group <= 1 || spec.group_mask != SAMEBITS_GROUP_MASK_NEG_INF) {
    return cpu::select_tc256(constants, row, scratch);
  }
  cpu::mask_groups(spec, scratch);
  std::int32_t worst = scratch.groups[0];
  for (std::int64_t i = 1; i < spec.topk_group; ++i) {
    if (cpu::ranks_before(scratch.group_scores[worst], scratch.group_scores[scratch.groups[i]])) {
      worst = scratch.groups[i];
    }
  }
  const std::int64_t size = ranked_experts(spec) / spec.n_group;
  for (std::int64_t g = 0; g < spec.n_group; ++g) {
    if (scratch.group_scores[g] == scratch.group_scores[worst]) {
      std::fill_n(scratch.excluded + g * size, size, std::uint8_t{0});
    }
  }
  take_best(spec, scratch);
}

// NaN * 0 and Inf * 0 are NaN, not 0.
void mask_by_multiplication(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  const samebits_router_spec& spec = constants.spec;
  if (!ranks_all(spec) || spec.n_group <= 1 || spec.group_mask != SAMEBITS_GROUP_MASK_ZERO) {
    return cpu::select_tc256(constants, row, scratch);
  }
  const std::int64_t size = ranked_experts(spec) / spec.n_group;
  const std::vector<float> keys(scratch.keys, scratch.keys + ranked_experts(spec));
  cpu::mask_groups(spec, scratch);
  std::vector<float> kept(keys.size(), 0.0f);
  for (std::int64_t i = 0; i < spec.topk_group; ++i) std::fill_n(kept.begin() + scratch.groups[i] * size, size, 1.0f);
  for (std::size_t e = 0; e < keys.size(); ++e) scratch.keys[e] = kept[e] == 1.0f ? keys[e] : keys[e] * 0.0f;
  take_best(spec, scratch);
}

}  // namespace

std::vector<Mutant> unlisted_group_mutants() {
  using cpu::Steps;
  return {
      {"U11",
       "groups_by_unbiased_scores",
       "groups are ranked by their scores without the selection bias",
       "selection",
       "",
       {"deepseek-v3"},
       with(&Steps::select, groups_by_unbiased_scores)},
      {"U12",
       "group_ties_to_higher_group",
       "of equal groups the higher one is kept",
       "selection",
       "",
       {"deepseek-v3"},
       with(&Steps::select, group_ties_to_higher_group)},
      {"U13",
       "nan_poisons_group",
       "a group with one NaN key is ranked as NaN",
       "selection",
       "a maximum that propagates NaN",
       {"deepseek-v3"},
       with(&Steps::select, nan_poisons_group)},
      {"U14",
       "second_best_below_best",
       "the second best of a group must be smaller than the best",
       "selection",
       "a search for the second largest value by x < max",
       {"deepseek-v3"},
       with(&Steps::select, second_best_below_best)},
      {"U15",
       "group_threshold_keeps_ties",
       "every group with the score of the last kept one is kept",
       "selection",
       "masks made by comparing with the value of a top-k",
       {"deepseek-v3"},
       with(&Steps::select, group_threshold_keeps_ties)},
      {"U16",
       "mask_by_multiplication",
       "keys of rejected groups are multiplied by 0, so NaN stays NaN",
       "selection",
       "masks applied as a product",
       {"deepseek-v2"},
       with(&Steps::select, mask_by_multiplication)},
  };
}

}  // namespace samebits::mutants
