#include "kernels/cpu/value.h"

#include "kernels/common/bits.h"
#include "kernels/common/sizes.h"
#include "kernels/cpu/score.h"
#include "kernels/cpu/sparsemixer.h"

namespace samebits::cpu {

void value_experts(const RouterConstants& constants, const RowInfo& row, const float* logits, RowScratch& scratch) {
  const samebits_router_spec& spec = constants.spec;
  const std::int64_t columns = topk_columns(spec);
  for (std::int64_t c = 0; c < columns; ++c) scratch.chosen_logits[c] = logits[scratch.ids[c]];
  if (spec.selection_method == SAMEBITS_SELECT_SPARSEMIXER) {
    sparsemixer_scores(spec, logits, scratch);
  } else if (spec.score_stage == SAMEBITS_SCORE_AFTER_TOPK) {
    apply_score_func(spec, scratch.chosen_logits, columns, scratch.chosen_values);
  } else {
    const bool biased = spec.weight_source == SAMEBITS_WEIGHT_BIASED_SCORE;
    for (std::int64_t c = 0; c < columns; ++c) {
      const std::int32_t id = scratch.ids[c];
      scratch.chosen_values[c] = biased ? rank_key(constants, row, logits, scratch.scores, id) : scratch.scores[id];
    }
  }
  for (std::int64_t c = 0; c < columns; ++c) {
    if (is_nan(scratch.chosen_values[c])) scratch.chosen_values[c] = 0.0f;
  }
}

}  // namespace samebits::cpu
