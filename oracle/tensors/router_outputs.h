// What a router returns for T rows and K = topk_columns(spec) columns; G = gate_rows(spec) is the number of ids.
// Optional parts are empty when they were not asked for.
#pragma once

#include <cstdint>
#include <vector>

namespace samebits::oracle {

// Deterministic dispatch bookkeeping (docs/contract.md): a slot is the flat index token * K + column.
struct Bookkeeping {
  std::vector<std::int32_t> tokens_per_expert;  // [G]
  std::vector<std::int32_t> expert_offsets;     // [G + 1] exclusive prefix sum of tokens_per_expert
  // [T * K] slots by expert, ascending inside one; -1 past expert_offsets[G]
  std::vector<std::int32_t> slot_of_position;
  std::vector<std::int32_t> position_of_slot;  // [T * K] the inverse; -1 where the id is -1
  // The padded block form for grouped GEMMs with block size B; empty unless B > 0 was asked for.
  // Capacity in blocks: floor((T*K + min(G, T*K)*(B-1)) / B), which is attained and therefore tight.
  std::vector<std::int32_t> sorted_token_ids;  // [capacity * B] slots, each expert padded to a multiple of B;
                                               // pads and everything past the active end hold T * K
  std::vector<std::int32_t> expert_ids;        // [capacity] expert of each block; -1 past the active end
  std::int32_t num_tokens_post_padded = 0;     // active end of sorted_token_ids

  bool operator==(const Bookkeeping&) const = default;
};

struct RouterOutputs {
  std::int64_t num_tokens = 0;
  std::int64_t top_k = 0;              // K, shared experts in the gate included
  std::vector<std::int64_t> topk_ids;  // [T, K]; -1 in padding rows and in rows that have no answer
  std::vector<float> topk_weights;     // [T, K]; 0 where the id is -1
  std::vector<float> router_logits;    // [T, G] or empty; padding rows are untouched
  Bookkeeping bookkeeping;             // empty vectors unless asked for
};

}  // namespace samebits::oracle
