// The table of a hash layer: the experts of each token id.
#pragma once

#include <cstdint>
#include <vector>

#include "samebits/samebits.h"

namespace samebits {

// The ids of the table, [hash_vocab_size, k] without gaps. Throws Error for a wrong shape or dtype, an id outside
// 0 .. R-1 and an id that is twice in a row.
std::vector<std::int32_t> read_hash_table(const samebits_router_spec& spec, const samebits_tensor& table);

}  // namespace samebits
