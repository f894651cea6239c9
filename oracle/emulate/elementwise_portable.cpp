#include "oracle/emulate/elementwise-inl.h"

namespace samebits::oracle::elementwise {

const Functions portable = kFunctions;

}  // namespace samebits::oracle::elementwise
