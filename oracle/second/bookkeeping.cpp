#include "oracle/second/bookkeeping.h"

#include <algorithm>

namespace samebits::second {

oracle::Bookkeeping bookkeeping(std::span<const std::int64_t> ids, std::int64_t num_ids, std::int64_t block_size) {
  oracle::Bookkeeping result;
  const auto slots = static_cast<std::int64_t>(ids.size());
  result.slot_of_position.assign(ids.size(), -1);
  result.position_of_slot.assign(ids.size(), -1);
  if (block_size > 0) {
    const std::int64_t blocks = (slots + (std::min(num_ids, slots) * (block_size - 1))) / block_size;
    result.sorted_token_ids.assign(static_cast<std::size_t>(blocks * block_size), static_cast<std::int32_t>(slots));
    result.expert_ids.assign(static_cast<std::size_t>(blocks), -1);
  }
  std::size_t position = 0;
  std::int64_t padded = 0;
  for (std::int64_t expert = 0; expert < num_ids; ++expert) {
    result.expert_offsets.push_back(static_cast<std::int32_t>(position));
    std::int32_t count = 0;
    for (std::size_t slot = 0; slot < ids.size(); ++slot) {
      if (ids[slot] != expert) continue;
      result.slot_of_position[position] = static_cast<std::int32_t>(slot);
      result.position_of_slot[slot] = static_cast<std::int32_t>(position);
      ++position;
      if (block_size > 0) {
        if (count % block_size == 0)
          result.expert_ids[static_cast<std::size_t>(padded / block_size)] = static_cast<std::int32_t>(expert);
        result.sorted_token_ids[static_cast<std::size_t>(padded)] = static_cast<std::int32_t>(slot);
        ++padded;
      }
      ++count;
    }
    result.tokens_per_expert.push_back(count);
    if (block_size > 0) padded = (padded + block_size - 1) / block_size * block_size;
  }
  result.expert_offsets.push_back(static_cast<std::int32_t>(position));
  result.num_tokens_post_padded = static_cast<std::int32_t>(padded);
  return result;
}

}  // namespace samebits::second
