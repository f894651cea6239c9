// Wrong bookkeeping of right ids: each fault lets the right step run and spoils one array.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/common/bits.h"
#include "kernels/common/sizes.h"
#include "kernels/cpu/bookkeep.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

using cpu::RouterConstants;

void post_padded_is_unpadded(const RouterConstants& constants, const std::int32_t* ids, std::int64_t num_tokens,
                             std::int32_t* scratch, samebits_outputs& outputs) {
  cpu::bookkeep_tc256(constants, ids, num_tokens, scratch, outputs);
  if (outputs.block_size == 0 || outputs.num_tokens_post_padded == nullptr) return;
  const std::int64_t slots = num_tokens * topk_columns(constants.spec);
  *outputs.num_tokens_post_padded =
      static_cast<std::int32_t>(std::count_if(ids, ids + slots, [](std::int32_t id) { return id >= 0; }));
}

void expert_ids_compacted(const RouterConstants& constants, const std::int32_t* ids, std::int64_t num_tokens,
                          std::int32_t* scratch, samebits_outputs& outputs) {
  cpu::bookkeep_tc256(constants, ids, num_tokens, scratch, outputs);
  if (outputs.block_size == 0 || outputs.expert_ids == nullptr) return;
  const std::int64_t num_slots = num_tokens * topk_columns(constants.spec);
  const std::int64_t blocks = cpu::num_blocks(num_slots, gate_rows(constants.spec), outputs.block_size);
  std::int32_t last = -1, place = -1;
  for (std::int64_t b = 0; b < blocks && outputs.expert_ids[b] >= 0; ++b) {
    if (outputs.expert_ids[b] != last) ++place;
    last = outputs.expert_ids[b];
    outputs.expert_ids[b] = place;
  }
}

void last_block_repeats_slot(const RouterConstants& constants, const std::int32_t* ids, std::int64_t num_tokens,
                             std::int32_t* scratch, samebits_outputs& outputs) {
  cpu::bookkeep_tc256(constants, ids, num_tokens, scratch, outputs);
  if (outputs.block_size == 0 || outputs.sorted_token_ids == nullptr) return;
  const std::int64_t slots = num_tokens * topk_columns(constants.spec);
  const std::int64_t places =
      cpu::num_blocks(slots, gate_rows(constants.spec), outputs.block_size) * outputs.block_size;
  std::int32_t* end = outputs.sorted_token_ids + places;
  while (end != outputs.sorted_token_ids && end[-1] == slots) --end;
  for (; end != outputs.sorted_token_ids && (end - outputs.sorted_token_ids) % outputs.block_size != 0; ++end) {
    *end = end[-1];
  }
}

void last_offset_counts_padding(const RouterConstants& constants, const std::int32_t* ids, std::int64_t num_tokens,
                                std::int32_t* scratch, samebits_outputs& outputs) {
  cpu::bookkeep_tc256(constants, ids, num_tokens, scratch, outputs);
  if (outputs.expert_offsets == nullptr) return;
  outputs.expert_offsets[gate_rows(constants.spec)] =
      static_cast<std::int32_t>(num_tokens * topk_columns(constants.spec));
}

void position_of_padding_is_zero(const RouterConstants& constants, const std::int32_t* ids, std::int64_t num_tokens,
                                 std::int32_t* scratch, samebits_outputs& outputs) {
  cpu::bookkeep_tc256(constants, ids, num_tokens, scratch, outputs);
  if (outputs.position_of_slot == nullptr) return;
  std::replace(outputs.position_of_slot, outputs.position_of_slot + num_tokens * topk_columns(constants.spec), -1, 0);
}

void shared_experts_not_counted(const RouterConstants& constants, const std::int32_t* ids, std::int64_t num_tokens,
                                std::int32_t* scratch, samebits_outputs& outputs) {
  cpu::bookkeep_tc256(constants, ids, num_tokens, scratch, outputs);
  if (outputs.tokens_per_expert == nullptr) return;
  std::fill(outputs.tokens_per_expert + ranked_experts(constants.spec),
            outputs.tokens_per_expert + gate_rows(constants.spec), 0);
}

// Inside an expert, all slots of the first column come first, then those of the second.
void slots_column_by_column(const RouterConstants& constants, const std::int32_t* ids, std::int64_t num_tokens,
                            std::int32_t* scratch, samebits_outputs& outputs) {
  cpu::bookkeep_tc256(constants, ids, num_tokens, scratch, outputs);
  const std::int64_t columns = topk_columns(constants.spec), slots = num_tokens * columns;
  if (outputs.slot_of_position == nullptr) return;
  std::int32_t* begin = outputs.slot_of_position;
  std::int32_t* end = std::find(begin, begin + slots, -1);
  std::stable_sort(begin, end, [&](std::int32_t a, std::int32_t b) {
    return ids[a] < ids[b] || (ids[a] == ids[b] && a % columns < b % columns);
  });
  for (std::int32_t* position = begin; outputs.position_of_slot != nullptr && position != end; ++position) {
    outputs.position_of_slot[*position] = static_cast<std::int32_t>(position - begin);
  }
}

void counts_in_8_bits(const RouterConstants& constants, const std::int32_t* ids, std::int64_t num_tokens,
                      std::int32_t* scratch, samebits_outputs& outputs) {
  cpu::bookkeep_tc256(constants, ids, num_tokens, scratch, outputs);
  for (std::int64_t e = 0; outputs.tokens_per_expert != nullptr && e < gate_rows(constants.spec); ++e) {
    outputs.tokens_per_expert[e] &= 255;
  }
}

}  // namespace

std::vector<Mutant> unlisted_bookkeeping_mutants() {
  using cpu::Steps;
  const auto bookkeep = [](decltype(Steps::bookkeep) fault) { return with(&Steps::bookkeep, fault); };
  return {
      {"U92",
       "post_padded_is_unpadded",
       "the end of the block form does not count the pads",
       "bookkeeping",
       "",
       {"glm-5.3-flash"},
       bookkeep(post_padded_is_unpadded)},
      {"U93",
       "expert_ids_compacted",
       "blocks are numbered by the experts that have slots",
       "bookkeeping",
       "",
       {"glm-5.3-flash"},
       bookkeep(expert_ids_compacted)},
      {"U94",
       "last_block_repeats_slot",
       "the pads of the last block repeat its last slot",
       "bookkeeping",
       "",
       {"glm-5.3-flash"},
       bookkeep(last_block_repeats_slot)},
      {"U95",
       "last_offset_counts_padding",
       "the last offset is T K, padding rows or not",
       "bookkeeping",
       "",
       {"glm-5.3-flash"},
       bookkeep(last_offset_counts_padding)},
      {"U96",
       "position_of_padding_is_zero",
       "the position of a slot without an expert is 0",
       "bookkeeping",
       "",
       {"glm-5.3-flash"},
       bookkeep(position_of_padding_is_zero)},
      {"U97",
       "counts_in_8_bits",
       "the count of an expert wraps around at 256",
       "bookkeeping",
       "four counters packed in a word",
       {"mixtral-8x7b"},
       bookkeep(counts_in_8_bits)},
      {"U98",
       "shared_experts_not_counted",
       "shared experts in the gate have a count of 0",
       "bookkeeping",
       "",
       {"inkling-small"},
       bookkeep(shared_experts_not_counted)},
      {"U99",
       "slots_column_by_column",
       "the slots of an expert are ordered by column, then by row",
       "bookkeeping",
       "a kernel whose threads walk the columns",
       {"glm-5.3-flash"},
       bookkeep(slots_column_by_column)},
  };
}

}  // namespace samebits::mutants
