// A router of the CUDA backend: its constants on the device, and its calls.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "kernels/common/call_check.h"
#include "kernels/common/error_texts.h"
#include "kernels/cuda/device_array.h"
#include "kernels/cuda/self_test.h"
#include "kernels/cuda/view.h"

namespace samebits::cuda {

// Immutable but for the error texts.
struct Router {
  RouterView view{};
  TensorCores tensor_cores = TensorCores::kOtherArch;
  int device = 0;
  std::vector<DeviceArray> arrays;  // what the view points into
  mutable ErrorTexts errors;
};

// The sizes of a router of this spec; no constants.
RouterView sizes_of(const samebits_router_spec& spec);

// Fills a new router, on the current device. Throws Error for a spec or constants that it cannot have.
void make_router(const samebits_router_spec* spec, const samebits_constants* constants, Router& router);

// Workspace of calls with up to max_tokens rows, and its preparation on the stream.
std::size_t workspace_bytes(const Router& router, std::int64_t max_tokens);
void init_workspace(const Router& router, void* workspace, std::size_t bytes, cudaStream_t stream);

// One call: checks every argument, then launches the stages on the stream. Throws Error; the outputs are untouched if
// an argument was wrong.
void route(const Router& router, Source source, const samebits_inputs* inputs, samebits_outputs* outputs,
           void* workspace, cudaStream_t stream);

}  // namespace samebits::cuda
