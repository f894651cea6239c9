// Which router specs are meaningful, and which of them no backend computes.
#pragma once

#include "samebits/samebits.h"

namespace samebits {

// Throws Error: INVALID_ARGUMENT for a spec that contradicts itself (field, value found, values allowed), UNSUPPORTED
// with "not implemented: ..." for one that needs more than this backend has.
void check_spec(const samebits_router_spec& spec);

}  // namespace samebits
