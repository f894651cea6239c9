// Dispatch bookkeeping by its definition: for every expert in turn, its slots in ascending order. A single thread needs
// no histogram or scan beyond that.

#include <algorithm>

#include "oracle/reference/answer.h"

namespace samebits::oracle {
namespace {

// slots[e]: the slots of expert e, ascending. Ids outside [0, num_ids) (padding: -1) belong to nobody.
std::vector<std::vector<std::int32_t>> slots_by_expert(std::span<const std::int64_t> topk_ids, std::int64_t num_ids) {
  std::vector<std::vector<std::int32_t>> slots(static_cast<std::size_t>(num_ids));
  for (std::size_t slot = 0; slot < topk_ids.size(); ++slot) {
    const std::int64_t id = topk_ids[slot];
    if (id >= 0 && id < num_ids) slots[static_cast<std::size_t>(id)].push_back(static_cast<std::int32_t>(slot));
  }
  return slots;
}

void fill_blocks(const std::vector<std::vector<std::int32_t>>& slots, std::int64_t num_slots, std::int32_t block_size,
                 Bookkeeping& result) {
  const std::int64_t experts = static_cast<std::int64_t>(slots.size());
  const std::int64_t capacity = (num_slots + std::min(experts, num_slots) * (block_size - 1)) / block_size;
  const std::int32_t sentinel = static_cast<std::int32_t>(num_slots);
  for (std::size_t e = 0; e < slots.size(); ++e) {
    if (slots[e].empty()) continue;
    result.sorted_token_ids.insert(result.sorted_token_ids.end(), slots[e].begin(), slots[e].end());
    while (result.sorted_token_ids.size() % static_cast<std::size_t>(block_size) != 0) {
      result.sorted_token_ids.push_back(sentinel);
    }
    const std::size_t blocks = result.sorted_token_ids.size() / static_cast<std::size_t>(block_size);
    result.expert_ids.resize(blocks, static_cast<std::int32_t>(e));
  }
  result.num_tokens_post_padded = static_cast<std::int32_t>(result.sorted_token_ids.size());
  result.sorted_token_ids.resize(static_cast<std::size_t>(capacity * block_size), sentinel);
  result.expert_ids.resize(static_cast<std::size_t>(capacity), -1);
}

}  // namespace

Bookkeeping bookkeeping(std::span<const std::int64_t> topk_ids, std::int64_t num_tokens, std::int64_t topk_columns,
                        std::int64_t num_ids, std::int32_t block_size) {
  const std::int64_t num_slots = num_tokens * topk_columns;
  const auto slots = slots_by_expert(topk_ids.first(static_cast<std::size_t>(num_slots)), num_ids);
  Bookkeeping result;
  result.expert_offsets.push_back(0);
  result.position_of_slot.assign(static_cast<std::size_t>(num_slots), -1);
  for (const std::vector<std::int32_t>& of_expert : slots) {
    for (const std::int32_t slot : of_expert) {
      result.position_of_slot[static_cast<std::size_t>(slot)] =
          static_cast<std::int32_t>(result.slot_of_position.size());
      result.slot_of_position.push_back(slot);
    }
    result.tokens_per_expert.push_back(static_cast<std::int32_t>(of_expert.size()));
    result.expert_offsets.push_back(static_cast<std::int32_t>(result.slot_of_position.size()));
  }
  result.slot_of_position.resize(static_cast<std::size_t>(num_slots), -1);
  if (block_size > 0) fill_blocks(slots, num_slots, block_size, result);
  return result;
}

}  // namespace samebits::oracle
