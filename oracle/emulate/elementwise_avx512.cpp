// Compiled with the flags for AVX-512 and for vectors of loops; empty for other targets.
#ifdef __AVX512BW__

#include "oracle/emulate/elementwise-inl.h"

namespace samebits::oracle::elementwise {

const Functions hardware_avx512 = kFunctions;

}  // namespace samebits::oracle::elementwise

#endif
