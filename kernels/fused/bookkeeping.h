// The bookkeeping that a launch of few rows is to do.
#pragma once

#include "kernels/cuda/launch.h"

namespace samebits::cuda {

struct Bookkeeping {
  bool wanted;
  BookkeepOutputs outputs;
};

}  // namespace samebits::cuda
