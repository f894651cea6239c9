// What the sweeps are made of; one file each.
#pragma once

#include <memory>

#include "properties/exhaustive/exhaustive.h"

namespace samebits::properties {

extern const ExhaustiveSweep kFlags, kBookkeepingCounts, kBf16Values, kWeakOrders, kTiedPairs;

inline constexpr std::int64_t kBatchRows = 4096;

// A router of E experts that ranks its logits as they are: identity scores, no bias, no renormalisation.
oracle::RouterSpec plain_spec(const char* name, std::int64_t num_experts, std::int64_t top_k);

// A case of given logits [T, E]; further tensors go into description.data.
Case given_logits(const ExhaustiveSweep& sweep, const oracle::RouterSpec& spec, std::vector<float> logits);

}  // namespace samebits::properties
