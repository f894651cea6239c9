// Names of the code that the backends share.
#pragma once

#include "kernels/cpu/abi_struct.h"
#include "kernels/cpu/error.h"
#include "kernels/cpu/sizes.h"

namespace samebits::cuda {

using cpu::Error;
using cpu::fail_invalid;
using cpu::fail_unsupported;
using cpu::gate_rows;
using cpu::ranked_experts;
using cpu::read_struct;
using cpu::shared_in_gate;
using cpu::topk_columns;

}  // namespace samebits::cuda
