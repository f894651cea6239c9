#include "kernels/mutants/mutants.h"

#include <algorithm>
#include <cstring>
#include <iterator>

namespace samebits::mutants {

std::span<const Mutant> all_mutants() {
  static const std::vector<Mutant> all = [] {
    std::vector<Mutant> mutants;
    for (const auto list : {
             bias_mutants,
             bookkeeping_mutants,
             determinism_mutants,
             group_mutants,
             hash_mutants,
             layout_mutants,
             mapping_mutants,
             non_finite_mutants,
             padding_mutants,
             precision_mutants,
             renorm_mutants,
             row_mutants,
             scale_mutants,
             semantics_mutants,
             shape_mutants,
             sync_mutants,
             ties_mutants,
             unlisted_bookkeeping_mutants,
             unlisted_call_mutants,
             unlisted_choice_mutants,
             unlisted_constant_mutants,
             unlisted_gate_mutants,
             unlisted_group_mutants,
             unlisted_history_mutants,
             unlisted_logit_mutants,
             unlisted_logit_call_mutants,
             unlisted_many_row_mutants,
             unlisted_output_mutants,
             unlisted_score_mutants,
             unlisted_sum_mutants,
             unlisted_wanted_mutants,
             unlisted_weight_mutants,
         }) {
      std::ranges::move(list(), std::back_inserter(mutants));
    }
    for (Mutant& mutant : mutants) mutant.steps.name = mutant.name;
    std::ranges::sort(mutants, [](const Mutant& a, const Mutant& b) { return std::strcmp(a.id, b.id) < 0; });
    return mutants;
  }();
  return all;
}

const Mutant* find_mutant(const char* name) {
  for (const Mutant& mutant : all_mutants()) {
    if (std::strcmp(mutant.name, name) == 0 || std::strcmp(mutant.id, name) == 0) return &mutant;
  }
  return nullptr;
}

}  // namespace samebits::mutants
