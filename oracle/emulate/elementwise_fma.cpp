// Compiled with the flag for FMA3; empty for other targets.
#ifdef __FMA__

#include "oracle/emulate/elementwise-inl.h"

namespace samebits::oracle::elementwise {

const Functions hardware_fma = kFunctions;

}  // namespace samebits::oracle::elementwise

#endif
