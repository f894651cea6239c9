// The one place where the C++ RouterSpec and the C samebits_router_spec meet.
#pragma once

#include <string>

#include "oracle/spec/router_spec.h"
#include "properties/claims.h"
#include "samebits/samebits.h"

namespace samebits::harness {

// The spec as a router sees it. Real numbers are rounded to fp32 once; what is absent becomes 0. Throws
// std::invalid_argument with field and value for a size that the C struct cannot hold.
//
// Not carried, because no router computes with it: names, sources and notes, num_layers, num_moe_layers,
// gate.gemm_dtype, tie_break (one value), weights.apply_to, hash.layers, hash.table_dtype (hash_table_dtype), capacity
// (refused), outputs. Of bias_variants only their number is.
samebits_router_spec to_abi(const oracle::RouterSpec& spec);

// The carried fields back; everything else has its default, bias variants are named "0", "1", ... unless there is one.
// Throws std::invalid_argument with field and value for an enumerator that does not exist.
oracle::RouterSpec from_abi(const samebits_router_spec& spec);

// In which type a router of this spec gets its hash table: SAMEBITS_INT32 or SAMEBITS_INT64; SAMEBITS_DTYPE_NONE: it
// gets none.
std::int32_t hash_table_dtype(const oracle::RouterSpec& spec);

// Promises of a router; `info` has passed problem_of (abi_table.h).
properties::Claims to_claims(const samebits_info& info);

// "invalid argument (1)"; "unknown status 42".
std::string status_text(samebits_status status);

}  // namespace samebits::harness
