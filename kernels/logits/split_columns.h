// The columns of a merged product, each piece to its own output.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "kernels/cuda/view.h"

namespace samebits::cuda {

// One piece: columns [first_column, first_column + columns) of the sums.
struct ColumnPiece {
  std::int32_t first_column, columns;
  bool is_gate;  // finished as logits, with the spec and the linear bias of the router view; starts at column 0
  bool bf16;     // rounded once, to nearest even
  void* output;  // [T, columns] of bf16 or fp32; null: not wanted
  std::int64_t stride;
};

// Folds call.sums and writes the pieces for the rows that are not padding; pieces in ascending order of their columns.
// Launches only, like the functions of cuda/launch.h.
cudaError_t launch_split_columns(const RouterView& router, const CallView& call, const std::vector<ColumnPiece>& pieces,
                                 cudaStream_t stream);

}  // namespace samebits::cuda
