// The sizes of a router that follow from its spec; E, R, G, k and K as in samebits.h.
#pragma once

#include <cstdint>

#include "samebits/samebits.h"

namespace samebits {

inline std::int64_t ranked_experts(const samebits_router_spec& spec) {  // R
  return std::int64_t{spec.num_experts} + spec.zero_experts;
}
inline std::int64_t shared_in_gate(const samebits_router_spec& spec) {
  return spec.shared_mode == SAMEBITS_SHARED_IN_GATE ? spec.shared_experts : 0;
}
inline std::int64_t gate_rows(const samebits_router_spec& spec) {  // G
  return ranked_experts(spec) + shared_in_gate(spec);
}
inline std::int64_t topk_columns(const samebits_router_spec& spec) {  // K
  return spec.top_k + shared_in_gate(spec);
}

}  // namespace samebits
