// Groups of experts, and constants that stand for "lower than any key" where keys are lower.
#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/common/bits.h"
#include "kernels/common/sizes.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/value.h"
#include "kernels/mutants/choose.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

using cpu::RouterConstants;
using cpu::RowInfo;
using cpu::RowScratch;

void max_for_sum(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  RouterConstants other = constants;
  if (constants.spec.n_group > 1) other.spec.group_score = SAMEBITS_GROUP_SCORE_MAX;
  cpu::select_tc256(other, row, scratch);
}

void mask_with_zero(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  RouterConstants other = constants;
  if (constants.spec.n_group > 1) other.spec.group_mask = SAMEBITS_GROUP_MASK_ZERO;
  cpu::select_tc256(other, row, scratch);
}

void one_group_more(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  RouterConstants other = constants;
  other.spec.topk_group = std::min(constants.spec.topk_group + 1, constants.spec.n_group);
  cpu::select_tc256(other, row, scratch);
}

// The scores of the weights come from a softmax over the chosen groups alone.
void softmax_after_mask(const RouterConstants& constants, const RowInfo& row, const float* logits,
                        RowScratch& scratch) {
  cpu::value_experts(constants, row, logits, scratch);
  const samebits_router_spec& spec = constants.spec;
  if (spec.n_group == 1 || spec.score_func != SAMEBITS_SCORE_SOFTMAX) return;
  const std::int64_t n = ranked_experts(spec), size = n / spec.n_group;
  std::vector<float> kept(static_cast<std::size_t>(n), -std::numeric_limits<float>::infinity());
  for (std::int32_t g = 0; g < spec.topk_group; ++g) {
    const std::int64_t first = scratch.groups[g] * size;
    std::copy_n(logits + first, size, kept.begin() + first);
  }
  cpu::softmax(kept.data(), n, scratch.scores);
  for (std::int64_t c = 0; c < spec.top_k; ++c) {
    const float score = scratch.scores[scratch.ids[c]];
    scratch.chosen_values[c] = is_nan(score) ? 0.0f : score;
  }
}

void maximum_from_smallest_positive(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  select_by(constants, row, scratch, [](Candidates& candidates, std::int64_t k, std::int32_t* ids) {
    choose_above(candidates, k, ids, std::numeric_limits<float>::min(), 0.0f);
  });
}

void chosen_become_minus_one(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  select_by(constants, row, scratch, [](Candidates& candidates, std::int64_t k, std::int32_t* ids) {
    choose_by_rounds(candidates, k, ids, [](float) { return -1.0f; });
  });
}

void chosen_key_reflected(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  select_by(constants, row, scratch, [](Candidates& candidates, std::int64_t k, std::int32_t* ids) {
    choose_by_rounds(candidates, k, ids, [](float key) { return -1.0f - key; });
  });
}

}  // namespace

std::vector<Mutant> group_mutants() {
  using cpu::Steps;
  return {
      {"M41",
       "max_for_sum",
       "a group's score is its best key instead of the sum of its two best",
       "selection",
       "vllm-project/vllm#13474",
       {"deepseek-v3"},
       with(&Steps::select, max_for_sum)},
      {"M42",
       "mask_with_zero",
       "experts of rejected groups get the key 0 instead of being excluded",
       "selection",
       "sgl-project/sglang#3705, huggingface/transformers#45440",
       {"deepseek-v3"},
       with(&Steps::select, mask_with_zero)},
      {"M43",
       "one_group_more",
       "one group more than the spec says is kept",
       "selection",
       "flashinfer-ai/flashinfer#1723",
       {"deepseek-v3"},
       with(&Steps::select, one_group_more)},
      {"M44",
       "softmax_after_mask",
       "weights come from a softmax over the experts of the kept groups instead of all",
       "weights",
       "InternLM/lmdeploy#3030",
       {"deepseek-v2"},
       with(&Steps::value, softmax_after_mask)},
      {"M45",
       "maximum_from_smallest_positive",
       "a running maximum starts from the smallest positive float: no key of 0 or less is ever chosen",
       "unique_in_range",
       "vllm-project/vllm#24146",
       {"deepseek-v3"},
       with_any_ids(with(&Steps::select, maximum_from_smallest_positive))},
      {"M46",
       "chosen_become_minus_one",
       "the key of a chosen expert becomes -1, which is above keys lower than that",
       "unique_in_range",
       "vllm-project/vllm#31478, vllm-project/vllm#42608",
       {"deepseek-v3"},
       with(&Steps::select, chosen_become_minus_one)},
      {"M47",
       "chosen_key_reflected",
       "the key v of a chosen expert becomes -1 - v, which is above the others where v < -1",
       "unique_in_range",
       "NVIDIA/TransformerEngine#2009",
       {"glm-5.3-flash"},
       with(&Steps::select, chosen_key_reflected)},
  };
}

}  // namespace samebits::mutants
