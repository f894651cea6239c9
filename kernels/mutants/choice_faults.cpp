#include <algorithm>

#include "kernels/common/bits.h"
#include "kernels/common/sizes.h"
#include "kernels/cpu/score.h"
#include "kernels/cpu/select.h"
#include "kernels/cpu/simd.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

using cpu::RouterConstants;
using cpu::RowInfo;
using cpu::RowScratch;

void bf16_selection_bias(const samebits_router_spec& spec, const float* bias, float* out) {
  cpu::round_bias(SAMEBITS_BF16, bias, ranked_experts(spec), out);
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

// Image rows get the bias of text rows.
void keys_of_first_class(const RouterConstants& constants, const RowInfo& row, const float* logits, const float* scores,
                         float* keys) {
  RowInfo text = row;
  text.row_class = 0;
  cpu::rank_keys(constants, text, logits, scores, keys);
}

// An equal key that comes later goes in front.
void select_higher_id(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  const samebits_router_spec& spec = constants.spec;
  if (spec.selection_method == SAMEBITS_SELECT_HASH_TABLE || spec.topk_scope == SAMEBITS_TOPK_PER_GROUP) {
    return cpu::select_tc256(constants, row, scratch);
  }
  cpu::mask_groups(spec, scratch);
  cpu::best_keys(scratch.keys, scratch.excluded, ranked_experts(spec), spec.top_k, scratch.ids,
                 [](float key, float listed) { return !cpu::ranks_before(listed, key); });
}

void hash_ids_by_score(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  cpu::select_tc256(constants, row, scratch);
  if (constants.spec.selection_method != SAMEBITS_SELECT_HASH_TABLE) return;
  const float* scores = scratch.scores;
  std::sort(scratch.ids, scratch.ids + constants.spec.top_k, [scores](std::int32_t a, std::int32_t b) {
    return cpu::ranks_before(scores[a], scores[b]) || (a < b && !cpu::ranks_before(scores[b], scores[a]));
  });
}

}  // namespace

std::vector<Mutant> choice_mutants() {
  using cpu::Steps;
  return {
      {"M01",
       "ties_to_higher_id",
       "of equal keys the higher expert id is chosen first",
       "selection",
       "ggml-org/llama.cpp#17659",
       {"qwen3-30b-a3b"},
       with(&Steps::select, select_higher_id)},
      {"M21",
       "bf16_bias",
       "the selection bias is rounded to bf16 although the spec says fp32",
       "selection",
       "sgl-project/sglang#31213, vllm-project/vllm#50761",
       {"glm-5.3-flash"},
       with(&Steps::prepare_bias, bf16_selection_bias)},
      {"M91",
       "hash_ids_by_score",
       "ids from a hash table are sorted by score",
       "order",
       "hash layers of DeepSeek-V4: ids in table order",
       {"deepseek-v4-flash", "0"},
       with(&Steps::select, hash_ids_by_score)},
      {"U01",
       "softmax_without_zero_experts",
       "the sum of the softmax leaves the zero experts out",
       "weights",
       "LongCat-Flash: softmax over 768 rows, 256 of them zero experts",
       {"longcat-flash"},
       with(&Steps::score, softmax_without_zero_experts)},
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
