// Checks of the constants of a router.
#pragma once

#include <cstdint>

#include "samebits/samebits.h"

namespace samebits {

// The constants, fields that the caller does not know being zero. memory_kinds: SAMEBITS_MEMORY_* bits that are
// allowed. Throws Error where they do not fit the spec. No element is read; read_hash_table checks the table.
samebits_constants checked_constants(const samebits_router_spec& spec, const samebits_constants* from,
                                     std::int32_t memory_kinds);

}  // namespace samebits
