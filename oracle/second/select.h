// Which experts a row gets, from rank keys.
#pragma once

#include <cstdint>
#include <vector>

#include "oracle/second/ball.h"
#include "oracle/second/row.h"

namespace samebits::second {

// Keys before any mask: score or logit, plus the selection bias. Output [R].
std::vector<Ball> rank_keys(const RouterSpec& spec, const Row& row, const std::vector<Ball>& logits,
                            const std::vector<Ball>& scores);

struct Selection {
  std::vector<std::int32_t> ids;  // k chosen, in slot order
  // Whether the bounds leave no other set, and no other order of the slots.
  bool set_is_certain = true;
  bool order_is_certain = true;
  std::vector<Ball> keys;                // [R] after a `zero` mask
  std::vector<Ball> group_scores;        // [n_group] or empty
  std::vector<std::uint8_t> group_kept;  // [n_group] or empty
  std::vector<std::uint8_t> excluded;    // [R] masked by neg_inf
  // Worst key of the chosen, and best key of those neither chosen nor excluded; -1: none, or per_group.
  std::int32_t last_chosen = -1;
  std::int32_t first_rejected = -1;
};

// Not for hash_table, which ranks nothing.
Selection select(const RouterSpec& spec, std::vector<Ball> keys);

}  // namespace samebits::second
