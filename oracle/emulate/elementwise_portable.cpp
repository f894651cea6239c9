#include "oracle/emulate/elementwise-inl.h"

namespace samebits::oracle::elementwise {

const Functions portable = {exp, sigmoid, softplus, sqrt_softplus};

}  // namespace samebits::oracle::elementwise
