// Dispatch bookkeeping from ids.
#pragma once

#include <cstdint>
#include <span>

#include "oracle/tensors/router_outputs.h"

namespace samebits::second {

// ids [T, K], -1 where a slot has none; G ids; blocks of `block_size` slots, 0: no padded form.
oracle::Bookkeeping bookkeeping(std::span<const std::int64_t> ids, std::int64_t num_ids, std::int64_t block_size);

}  // namespace samebits::second
