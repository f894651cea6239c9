// For any CPU of the target: 16-byte vectors.
#define SAMEBITS_LANES 4
#include "oracle/emulate/fast_chain-inl.h"

namespace samebits::oracle::fast_chain {

std::uint32_t baseline(const Operands& operands, float* result) {
  return chain_columns(operands, result);
}

}  // namespace samebits::oracle::fast_chain
