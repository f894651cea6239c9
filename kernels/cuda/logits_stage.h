// The stage of a call that multiplies: which form, which rows, and its launch.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/cuda/form.h"
#include "kernels/cuda/self_test.h"
#include "kernels/cuda/view.h"
#include "kernels/cuda/workspace.h"

namespace samebits::cuda {

struct OutputPieces;

// A form of the logits: plain where the tensor cores are not used; else the forced form, or the one for this many rows.
Form choose_form(const RouterView& router, TensorCores tensor_cores, std::int64_t num_tokens);

// Whether the rows cannot be read where they are: the kernels read whole units of 16 bytes.
bool needs_copy(const RouterView& router, const samebits_tensor& hidden_states);

struct LogitsStage {
  Form form;
  samebits_tensor hidden_states;  // [T, H] of the whole call
  bool copies_rows;               // the product reads prepared rows of the workspace
  Workspace workspace;
};

// Where the product finds the rows from `first` on: fills call.input of the view, after a copy or a preparation of them
// where that is needed. Throws Error.
void launch_input(const RouterView& router, const LogitsStage& stage, std::int64_t first, CallView& view,
                  cudaStream_t stream);

// Launches the product for the rows [first, first + view.num_tokens) of the call in a form of the logits, and fills the
// input and the sums of the view; in the prefill form to other places, where they are given. Throws Error.
void launch_logits(const RouterView& router, const LogitsStage& stage, std::int64_t first, CallView& view,
                   cudaStream_t stream, const OutputPieces* outputs = nullptr);

}  // namespace samebits::cuda
