// Which features a spec has.
#pragma once

#include "oracle/spec/router_spec.h"

namespace samebits::properties {

inline bool has_selection_bias(const oracle::RouterSpec& spec) {
  return spec.selection.bias != oracle::BiasType::kNone;
}
inline bool has_table(const oracle::RouterSpec& spec) {
  return spec.selection.method == oracle::SelectionMethod::kHashTable;
}
inline bool is_sparsemixer(const oracle::RouterSpec& spec) {
  return spec.selection.method == oracle::SelectionMethod::kSparsemixer;
}
inline bool selects_per_group(const oracle::RouterSpec& spec) {
  return spec.selection.topk_scope == oracle::TopkScope::kPerGroup;
}
// Groups are ranked, and experts of the others rejected.
inline bool ranks_groups(const oracle::RouterSpec& spec) {
  return spec.selection.n_group > 1 && spec.selection.group_mask != oracle::GroupMask::kNone;
}
// false: a score depends on which experts were chosen.
inline bool scores_before_selection(const oracle::RouterSpec& spec) {
  return spec.score.stage == oracle::ScoreStage::kBeforeTopk && !is_sparsemixer(spec);
}
inline bool renames_zero_experts(const oracle::RouterSpec& spec) {
  return spec.special.zero_type == oracle::ZeroType::kIdentityRemappedToId0Weight0;
}

}  // namespace samebits::properties
