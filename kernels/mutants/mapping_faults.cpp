// Ids that stand for something else than the expert: of groups, positions, replicas, shared experts. The ABI has no map
// of experts to places; these are the same faults where a router of this ABI can have them.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/common/sizes.h"
#include "kernels/cpu/bookkeep.h"
#include "kernels/cpu/logits.h"
#include "kernels/cpu/select.h"
#include "kernels/cpu/weigh.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

using cpu::RouterConstants;
using cpu::RowInfo;
using cpu::RowScratch;

void ids_inside_the_group(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch) {
  const samebits_router_spec& spec = constants.spec;
  cpu::select_tc256(constants, row, scratch);
  if (spec.topk_scope != SAMEBITS_TOPK_PER_GROUP) return;
  const std::int64_t group_size = ranked_experts(spec) / spec.n_group;
  for (std::int64_t c = 0; c < spec.top_k; ++c) scratch.ids[c] %= static_cast<std::int32_t>(group_size);
}

void positions_mapped_twice(const RouterConstants& constants, const std::int32_t* ids, std::int64_t num_tokens,
                            std::int32_t* scratch, samebits_outputs& outputs) {
  cpu::bookkeep_tc256(constants, ids, num_tokens, scratch, outputs);
  if (outputs.slot_of_position == nullptr) return;
  const std::int64_t slots = num_tokens * topk_columns(constants.spec);
  const std::vector<std::int32_t> once(outputs.slot_of_position, outputs.slot_of_position + slots);
  for (std::int64_t position = 0; position < slots; ++position) {
    const std::int32_t slot = once[static_cast<std::size_t>(position)];
    if (slot >= 0) outputs.slot_of_position[position] = once[static_cast<std::size_t>(slot)];
  }
}

// Two ranks take the rows in turn; on the second one the experts lie in another order.
void experts_in_order_of_the_rank(const RouterConstants& constants, const std::uint16_t* hidden_states,
                                  std::int64_t row_stride, std::int64_t num_rows, std::int64_t num_tokens,
                                  float* logits, std::int64_t logits_stride) {
  cpu::logits_tc256(constants, hidden_states, row_stride, num_rows, num_tokens, logits, logits_stride);
  for (std::int64_t row = 1; row < num_rows; row += 2) {
    float* of_row = logits + row * logits_stride;
    for (std::int64_t e = 0; e + 1 < constants.spec.num_experts; e += 2) std::swap(of_row[e], of_row[e + 1]);
  }
}

void shared_replace_last_slots(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  const samebits_router_spec& spec = constants.spec;
  cpu::weigh_tc256(constants, scratch, weights);
  const std::int64_t shared = shared_in_gate(spec), columns = topk_columns(spec);
  for (std::int64_t c = std::max<std::int64_t>(spec.top_k - shared, 0); c < columns; ++c) {
    const bool is_left = c + shared < columns;
    scratch.ids[c] = is_left ? scratch.ids[c + shared] : -1;
    weights[c] = is_left ? weights[c + shared] : 0.0f;
  }
}

void shared_weight_over_scale(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  const samebits_router_spec& spec = constants.spec;
  cpu::weigh_tc256(constants, scratch, weights);
  for (std::int64_t c = spec.top_k; c < topk_columns(spec); ++c) weights[c] /= spec.routed_scaling_factor;
}

}  // namespace

std::vector<Mutant> mapping_mutants() {
  using cpu::Steps;
  return {
      {"M68",
       "ids_inside_the_group",
       "ids chosen from each group count from the group's first expert",
       "selection",
       "vllm-project/vllm-gaudi#1796: global ids where local ones are needed; here the other way round",
       {"intern-s1-pro"},
       with(&Steps::select, ids_inside_the_group)},
      {"M69",
       "positions_mapped_twice",
       "the map from positions to slots is applied twice",
       "bookkeeping",
       "sgl-project/sglang#25285: the map of logical to physical experts applied twice",
       {"glm-5.3-flash"},
       with(&Steps::bookkeep, positions_mapped_twice)},
      {"M70",
       "experts_in_order_of_the_rank",
       "odd rows belong to a second rank, on which neighbouring experts have each other's places",
       "batch_invariance",
       "sgl-project/sglang#32962: the choice of a replica depends on the rank",
       {"glm-5.3-flash"},
       with(&Steps::logits, experts_in_order_of_the_rank)},
      {"M71",
       "shared_replace_last_slots",
       "shared experts in the gate take the last slots of the chosen instead of slots of their own",
       "selection",
       "sgl-project/sglang#8125, #38963",
       {"inkling-small"},
       with(&Steps::weigh, shared_replace_last_slots)},
      {"M72",
       "shared_weight_over_scale",
       "weights of shared experts in the gate are divided by the scale, for a caller that multiplies later",
       "weights",
       "sgl-project/sglang#28237, #29059",
       {"inkling-small"},
       with(&Steps::weigh, shared_weight_over_scale)},
  };
}

}  // namespace samebits::mutants
