#include "kernels/cpu/bookkeep.h"

#include <algorithm>

#include "kernels/common/sizes.h"

namespace samebits::cpu {
namespace {

// The bookkeeping is a stable counting sort of the slots by expert, once plain and once in padded blocks.
void count_slots(const std::int32_t* ids, std::int64_t num_slots, std::int64_t num_ids, std::int32_t* counts) {
  std::fill_n(counts, num_ids, 0);
  for (std::int64_t slot = 0; slot < num_slots; ++slot) {
    if (ids[slot] >= 0) ++counts[ids[slot]];
  }
}

std::int32_t rounded_up(std::int32_t count, std::int32_t block_size) {
  return (count + block_size - 1) / block_size * block_size;
}

// Counts become exclusive offsets, each expert taking a multiple of block_size places; returns the end.
std::int32_t exclusive_offsets(std::int64_t num_ids, std::int32_t block_size, std::int32_t* counts) {
  std::int32_t end = 0;
  for (std::int64_t e = 0; e < num_ids; ++e) {
    const std::int32_t places = rounded_up(counts[e], block_size);
    counts[e] = end;
    end += places;
  }
  return end;
}

void write_permutation(const std::int32_t* ids, std::int64_t num_slots, std::int32_t* next,
                       const samebits_outputs& outputs) {
  if (outputs.slot_of_position != nullptr) std::fill_n(outputs.slot_of_position, num_slots, -1);
  for (std::int64_t slot = 0; slot < num_slots; ++slot) {
    const std::int32_t position = ids[slot] < 0 ? -1 : next[ids[slot]]++;
    if (outputs.position_of_slot != nullptr) outputs.position_of_slot[slot] = position;
    if (outputs.slot_of_position != nullptr && position >= 0) {
      outputs.slot_of_position[position] = static_cast<std::int32_t>(slot);
    }
  }
}

void write_blocks(const std::int32_t* ids, std::int64_t num_slots, std::int64_t num_ids, std::int32_t* next,
                  std::int32_t end, const samebits_outputs& outputs) {
  const std::int64_t blocks = num_blocks(num_slots, num_ids, outputs.block_size);
  if (outputs.num_tokens_post_padded != nullptr) *outputs.num_tokens_post_padded = end;
  if (outputs.expert_ids != nullptr) {
    std::int64_t block = 0;
    for (std::int64_t e = 0; e < num_ids; ++e) {
      const std::int64_t stop = (e + 1 < num_ids ? next[e + 1] : end) / outputs.block_size;
      for (; block < stop; ++block) outputs.expert_ids[block] = static_cast<std::int32_t>(e);
    }
    std::fill(outputs.expert_ids + block, outputs.expert_ids + blocks, -1);
  }
  if (outputs.sorted_token_ids != nullptr) {
    std::fill_n(outputs.sorted_token_ids, blocks * outputs.block_size, static_cast<std::int32_t>(num_slots));
    for (std::int64_t slot = 0; slot < num_slots; ++slot) {
      if (ids[slot] >= 0) outputs.sorted_token_ids[next[ids[slot]]++] = static_cast<std::int32_t>(slot);
    }
  }
}

}  // namespace

std::int64_t num_blocks(std::int64_t num_slots, std::int64_t num_ids, std::int64_t block_size) {
  return (num_slots + std::min(num_ids, num_slots) * (block_size - 1)) / block_size;
}

void bookkeep_tc256(const RouterConstants& constants, const std::int32_t* ids, std::int64_t num_tokens,
                    std::int32_t* scratch, samebits_outputs& outputs) {
  const std::int64_t num_ids = gate_rows(constants.spec);
  const std::int64_t num_slots = num_tokens * topk_columns(constants.spec);

  count_slots(ids, num_slots, num_ids, scratch);
  if (outputs.tokens_per_expert != nullptr) std::copy_n(scratch, num_ids, outputs.tokens_per_expert);
  const std::int32_t end = exclusive_offsets(num_ids, 1, scratch);
  if (outputs.expert_offsets != nullptr) {
    std::copy_n(scratch, num_ids, outputs.expert_offsets);
    outputs.expert_offsets[num_ids] = end;
  }
  write_permutation(ids, num_slots, scratch, outputs);

  if (outputs.block_size > 0) {
    count_slots(ids, num_slots, num_ids, scratch);
    const std::int32_t padded_end = exclusive_offsets(num_ids, outputs.block_size, scratch);
    write_blocks(ids, num_slots, num_ids, scratch, padded_end, outputs);
  }
}

}  // namespace samebits::cpu
