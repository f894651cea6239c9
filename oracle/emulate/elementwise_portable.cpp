#include "oracle/emulate/elementwise-inl.h"

namespace samebits::oracle::elementwise {

const Functions portable = {exp, sigmoid, softplus, sqrt_softplus, tanh, log, log1p, rsqrt};

}  // namespace samebits::oracle::elementwise
