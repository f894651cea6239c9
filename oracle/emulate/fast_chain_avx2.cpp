// Compiled with the flags of this instruction set; empty for other targets.
#ifdef __AVX2__

#define SAMEBITS_LANES 8
#include "oracle/emulate/fast_chain-inl.h"

namespace samebits::oracle::fast_chain {

std::uint32_t avx2(const Operands& operands, float* result) {
  return chain_columns(operands, result);
}

}  // namespace samebits::oracle::fast_chain

#endif
