// Other experts or another order of slots.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "kernels/common/bits.h"
#include "kernels/common/sizes.h"
#include "kernels/cpu/score.h"
#include "kernels/cpu/select.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

using cpu::RouterConstants;
using cpu::RowInfo;
using cpu::RowScratch;

constexpr float kInf = std::numeric_limits<float>::infinity();

void truncated_bf16_bias(const samebits_router_spec& spec, const float* bias, float* out) {
  cpu::prepare_selection_bias(spec, bias, out);
  if (spec.selection_bias_dtype != SAMEBITS_BF16) return;
  for (std::int64_t e = 0; e < ranked_experts(spec); ++e) {
    if (!is_nan(bias[e])) out[e] = from_bits(to_bits(bias[e]) & 0xffff0000u);
  }
}

bool ranks_all(const samebits_router_spec& spec) {
  return spec.selection_method != SAMEBITS_SELECT_HASH_TABLE && spec.topk_scope == SAMEBITS_TOPK_GLOBAL;
}

// The bits as signed integers are in order for positive numbers only.
void negative_keys_reversed(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  if (!ranks_all(constants.spec)) return cpu::select_tc256(constants, row, scratch);
  cpu::mask_groups(constants.spec, scratch);
  cpu::best_keys(scratch.keys, scratch.excluded, ranked_experts(constants.spec), constants.spec.top_k, scratch.ids,
                 [](float a, float b) { return a < 0.0f && b < 0.0f ? a < b : cpu::ranks_before(a, b); });
}

void nan_key_is_largest(const RouterConstants& constants, const RowInfo& row, const float* logits, const float* scores,
                        float* keys) {
  cpu::rank_keys(constants, row, logits, scores, keys);
  for (std::int64_t e = 0; e < ranked_experts(constants.spec); ++e) keys[e] = is_nan(keys[e]) ? kInf : keys[e];
}

void negative_nan_is_largest(const RouterConstants& constants, const RowInfo& row, const float* logits,
                             const float* scores, float* keys) {
  cpu::rank_keys(constants, row, logits, scores, keys);
  for (std::int64_t e = 0; e < ranked_experts(constants.spec); ++e) {
    if (is_nan(logits[e]) && std::signbit(logits[e])) keys[e] = kInf;
  }
}

void expert_tail_dropped(const RouterConstants& constants, const RowInfo& row, const float* logits, const float* scores,
                         float* keys) {
  cpu::rank_keys(constants, row, logits, scores, keys);
  const std::int64_t num_ranked = ranked_experts(constants.spec), whole = num_ranked / 8 * 8;
  if (whole >= constants.spec.top_k) std::fill(keys + whole, keys + num_ranked, -kInf);
}

void rank_by_saturated_score(const RouterConstants& constants, const RowInfo& row, const float* logits,
                             const float* scores, float* keys) {
  cpu::rank_keys(constants, row, logits, scores, keys);
  if (constants.spec.rank_by != SAMEBITS_RANK_BY_LOGIT || constants.spec.score_func != SAMEBITS_SCORE_SIGMOID) return;
  cpu::apply_score_func(constants.spec, logits, ranked_experts(constants.spec), keys);
}

void ties_after_eight_slots(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  cpu::select_tc256(constants, row, scratch);
  const std::int64_t k = constants.spec.top_k;
  if (constants.spec.selection_method == SAMEBITS_SELECT_HASH_TABLE) return;
  for (std::int64_t i = 8; i < k;) {
    std::int64_t end = i + 1;
    while (end < k && scratch.keys[scratch.ids[end]] == scratch.keys[scratch.ids[i]]) ++end;
    std::reverse(scratch.ids + i, scratch.ids + end);
    i = end;
  }
}

// k times the argmax; the key of a chosen one becomes a very small number, which some keys are below.
void taken_mark_is_finite(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  const samebits_router_spec& spec = constants.spec;
  if (!ranks_all(spec) || spec.n_group > 1) return cpu::select_tc256(constants, row, scratch);
  std::vector<float> keys(scratch.keys, scratch.keys + ranked_experts(spec));
  for (std::int64_t c = 0; c < spec.top_k; ++c) {
    cpu::best_keys(keys.data(), nullptr, ranked_experts(spec), 1, scratch.ids + c, cpu::ranks_before);
    keys[static_cast<std::size_t>(scratch.ids[c])] = -1e9f;
  }
}

void keys_in_double(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  cpu::select_tc256(constants, row, scratch);
  const samebits_router_spec& spec = constants.spec;
  if (constants.selection_bias == nullptr || spec.rank_by != SAMEBITS_RANK_BY_SCORE || spec.n_group > 1) return;
  const float* bias = constants.selection_bias + row.row_class * ranked_experts(spec);
  const auto key = [&](std::int32_t e) { return static_cast<double>(scratch.scores[e]) + bias[e]; };
  std::vector<std::int32_t> ids(static_cast<std::size_t>(ranked_experts(spec)));
  std::iota(ids.begin(), ids.end(), 0);
  std::ranges::stable_sort(ids, [&](std::int32_t a, std::int32_t b) {
    return key(a) > key(b) || (std::isnan(key(b)) && !std::isnan(key(a)));
  });
  std::copy_n(ids.begin(), spec.top_k, scratch.ids);
}

void per_group_slots_by_group(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  cpu::select_tc256(constants, row, scratch);
  const samebits_router_spec& spec = constants.spec;
  if (spec.topk_scope != SAMEBITS_TOPK_PER_GROUP) return;
  const std::int64_t size = ranked_experts(spec) / spec.n_group;
  std::stable_sort(scratch.ids, scratch.ids + spec.top_k,
                   [size](std::int32_t a, std::int32_t b) { return a / size < b / size; });
}

}  // namespace

std::vector<Mutant> unlisted_choice_mutants() {
  using cpu::Steps;
  return {
      {"U10",
       "truncated_bf16_bias",
       "a bf16 selection bias is cut toward zero instead of rounded",
       "selection",
       "casts by a shift of 16 bits",
       {"deepseek-v3", nullptr, {{"selection.bias", "bf16"}}},
       with(&Steps::prepare_bias, truncated_bf16_bias)},
      {"U17",
       "negative_keys_reversed",
       "of two negative keys the smaller one ranks first",
       "selection",
       "floats compared as signed integers",
       {"gpt-oss-20b"},
       with(&Steps::select, negative_keys_reversed)},
      {"U18",
       "nan_key_is_largest",
       "a NaN key ranks before every number",
       "non_finite",
       "radix sorts in descending order of the bits",
       {"qwen3-30b-a3b"},
       with(&Steps::key, nan_key_is_largest)},
      {"U19",
       "negative_nan_is_largest",
       "a given logit that is a NaN with its sign bit set ranks first",
       "non_finite",
       "a test for NaN that compares the bits with +inf",
       {"qwen3-30b-a3b"},
       with(&Steps::key, negative_nan_is_largest)},
      {"U20",
       "expert_tail_dropped",
       "experts past the last multiple of eight are never considered",
       "selection",
       "vector loads of eight keys without a tail",
       {"qwen1.5-moe-a2.7b"},
       with(&Steps::key, expert_tail_dropped)},
      {"U21",
       "rank_by_saturated_score",
       "experts are ranked by their sigmoids instead of their logits",
       "selection",
       "Llama-4: the sigmoid comes after the top-k",
       {"llama-4-scout"},
       with(&Steps::key, rank_by_saturated_score)},
      {"U22",
       "ties_after_eight_slots",
       "from the ninth slot on, equal keys come in descending order of their ids",
       "order",
       "a stable network for eight and another path above",
       {"qwen3-next-80b-a3b"},
       with(&Steps::select, ties_after_eight_slots)},
      {"U23",
       "taken_mark_is_finite",
       "the key of a chosen expert becomes -1e9, above -inf and NaN",
       "unique_in_range",
       "repeated argmax that hides the winner behind a constant",
       {"gpt-oss-20b"},
       with(&Steps::select, taken_mark_is_finite)},
      {"U24",
       "keys_in_double",
       "keys are added and compared in double instead of fp32",
       "selection",
       "references in NumPy or Python floats",
       {"glm-5.3-flash"},
       with(&Steps::select, keys_in_double)},
      {"U25",
       "per_group_slots_by_group",
       "the chosen of each group fill the slots group by group",
       "order",
       "",
       {"intern-s1-pro"},
       with(&Steps::select, per_group_slots_by_group)},
  };
}

}  // namespace samebits::mutants
