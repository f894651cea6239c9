// Compiled with the flag for FMA3; empty for other targets.
#ifdef __FMA__

#include "oracle/emulate/elementwise-inl.h"

namespace samebits::oracle::elementwise {

const Functions hardware_fma = {exp, sigmoid, softplus, sqrt_softplus, tanh, log, log1p, rsqrt};

}  // namespace samebits::oracle::elementwise

#endif
