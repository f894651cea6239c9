// A merged front projection: the gate weight and further weights as one, and its calls. See
// samebits/front_projection.h.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/common/error_texts.h"
#include "kernels/cuda/device_array.h"
#include "kernels/cuda/self_test.h"
#include "kernels/cuda/view.h"
#include "kernels/logits/split_columns.h"
#include "samebits/front_projection.h"

namespace samebits::cuda {

inline constexpr std::int64_t kMaxFrontColumns = std::int64_t{1} << 20;

// Immutable but for the error texts.
struct FrontProjection {
  // Spec and linear bias of the router; its gate rows are the columns of all pieces, one after another and each padded
  // to kGateRowPad, and it has no top-k columns. The weight is there in the layouts that the calls need.
  RouterView view{};
  std::vector<ColumnPiece> pieces;  // the gate, then the blocks; without outputs
  TensorCores tensor_cores = TensorCores::kOtherArch;
  bool plain = false;  // all calls by the plain form; decided at creation, where it may be forced
  int device = 0;
  std::vector<DeviceArray> arrays;  // what the view points into
  mutable ErrorTexts errors;
};

// Fills a new projection, on the current device. Throws Error for arguments that it cannot have.
void make_front_projection(const samebits_router_spec* spec, const samebits_constants* constants,
                           const samebits_front_block* blocks, std::int32_t num_blocks, FrontProjection& front);

std::size_t front_workspace_bytes(const FrontProjection& front, std::int64_t max_tokens);

// One call: checks every argument, then launches on the stream. Throws Error; the outputs are untouched if an argument
// was wrong.
void project(const FrontProjection& front, const samebits_inputs* inputs, const samebits_tensor* router_logits,
             const samebits_tensor* outputs, void* workspace, std::size_t workspace_bytes, cudaStream_t stream);

}  // namespace samebits::cuda
