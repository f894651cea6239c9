// The weights of the chosen.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "oracle/second/ball.h"
#include "oracle/second/functions.h"
#include "oracle/second/row.h"

namespace samebits::second {

struct Weighing {
  std::vector<std::int32_t> ids;         // [K] as returned
  std::vector<std::int32_t> expert_ids;  // [K] before zero experts are renamed
  std::vector<Ball> values;              // [K] what the weights start from, in the order of `ids`
  std::vector<Ball> weights;             // [K]
  Ball sum;                              // S
  Ball denominator;                      // D; 1 without renormalisation
};

// `slots` are the ids of the K columns in slot order, shared experts in the gate last; `logits` [G]; `slot_scores` [K]
// the scores of the slots; `unmasked_keys` [R], empty for hash_table.
Weighing weigh(const RouterSpec& spec, const Row& row, const Functions& functions, std::span<const std::int32_t> slots,
               const std::vector<Ball>& logits, const std::vector<Ball>& slot_scores,
               const std::vector<Ball>& unmasked_keys);

}  // namespace samebits::second
