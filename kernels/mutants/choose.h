// Choices of experts as faulty kernels make them: over all that compete in a row, with another order or another search.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/common/sizes.h"
#include "kernels/cpu/bookkeep.h"
#include "kernels/cpu/select.h"
#include "kernels/cpu/value.h"

namespace samebits::mutants {

struct Candidate {
  float key;
  std::int32_t id;
};
using Candidates = std::vector<Candidate>;

// The right order.
inline bool comes_before(const Candidate& a, const Candidate& b) {
  return cpu::ranks_before(a.key, b.key) || (!cpu::ranks_before(b.key, a.key) && a.id < b.id);
}

// The other tie rule.
inline bool higher_id_before(const Candidate& a, const Candidate& b) {
  return cpu::ranks_before(a.key, b.key) || (!cpu::ranks_before(b.key, a.key) && a.id > b.id);
}

// Steps::select by choose(candidates, k, ids): candidates, by id, are the experts that no group mask excludes. Where a
// table or each group by itself decides, the choice is the right one.
template <class Choose>
void select_by(const cpu::RouterConstants& constants, const cpu::RowInfo& row, cpu::RowScratch& scratch,
               const Choose& choose) {
  const samebits_router_spec& spec = constants.spec;
  if (spec.selection_method == SAMEBITS_SELECT_HASH_TABLE || spec.topk_scope == SAMEBITS_TOPK_PER_GROUP) {
    return cpu::select_tc256(constants, row, scratch);
  }
  cpu::mask_groups(spec, scratch);
  Candidates candidates;
  for (std::int64_t e = 0; e < ranked_experts(spec); ++e) {
    if (scratch.excluded[e] == 0) candidates.push_back({scratch.keys[e], static_cast<std::int32_t>(e)});
  }
  choose(candidates, std::int64_t{spec.top_k}, scratch.ids);
}

// The first k in an order.
template <class Before>
void choose_in_order(Candidates& candidates, std::int64_t k, std::int32_t* ids, const Before& before) {
  std::partial_sort(candidates.begin(), candidates.begin() + k, candidates.end(), before);
  for (std::int64_t c = 0; c < k; ++c) ids[c] = candidates[static_cast<std::size_t>(c)].id;
}

// k times the first of the largest keys; hide(key) takes the place of a key that was chosen.
template <class Hide>
void choose_by_rounds(Candidates& candidates, std::int64_t k, std::int32_t* ids, const Hide& hide) {
  for (std::int64_t c = 0; c < k; ++c) {
    Candidate& best = *std::min_element(candidates.begin(), candidates.end(), comes_before);
    ids[c] = best.id;
    best.key = hide(best.key);
  }
}

// The same by a running maximum that begins with `start` and index -1: ids are -1 where no key is above it.
inline void choose_above(Candidates& candidates, std::int64_t k, std::int32_t* ids, float start, float hidden) {
  for (std::int64_t c = 0; c < k; ++c) {
    Candidate none{start, -1};
    Candidate* best = &none;
    for (Candidate& candidate : candidates) {
      if (candidate.key > best->key) best = &candidate;
    }
    ids[c] = best->id;
    best->key = hidden;
  }
}

// For a select step whose ids may lie outside 0 .. G - 1: the steps after it take those for experts without a value and
// do not count them, where a kernel would read and write what is not its own.
inline cpu::Steps with_any_ids(cpu::Steps steps) {
  steps.value = [](const cpu::RouterConstants& constants, const cpu::RowInfo& row, const float* logits,
                   cpu::RowScratch& scratch) {
    const std::int64_t columns = topk_columns(constants.spec);
    const std::vector<std::int32_t> ids(scratch.ids, scratch.ids + columns);
    const auto is_outside = [&](std::int32_t id) { return id < 0 || id >= gate_rows(constants.spec); };
    std::replace_if(scratch.ids, scratch.ids + columns, is_outside, 0);
    cpu::value_experts(constants, row, logits, scratch);
    for (std::int64_t c = 0; c < columns; ++c) {
      scratch.ids[c] = ids[static_cast<std::size_t>(c)];
      if (is_outside(scratch.ids[c])) scratch.chosen_values[c] = 0.0f;
    }
  };
  steps.bookkeep = [](const cpu::RouterConstants& constants, const std::int32_t* ids, std::int64_t num_tokens,
                      std::int32_t* scratch, samebits_outputs& outputs) {
    std::vector<std::int32_t> counted(ids, ids + num_tokens * topk_columns(constants.spec));
    std::ranges::replace_if(
        counted, [&](std::int32_t id) { return id >= gate_rows(constants.spec); }, -1);
    cpu::bookkeep_tc256(constants, counted.data(), num_tokens, scratch, outputs);
  };
  return steps;
}

}  // namespace samebits::mutants
