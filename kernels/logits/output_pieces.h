// Where the columns of a product go that the tiles of the prefill form store themselves.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/cuda/view.h"
#include "kernels/logits/split_columns.h"

namespace samebits::cuda {

inline constexpr int kMostOutputPieces = 4;

// Columns [first_column, end_column) of the product, multiples of 8; in fp32, or rounded once to bf16. 8-byte aligned
// at the first and at every 4th (bf16) or 2nd (fp32) column of every row.
struct OutputPiece {
  void* output;
  std::int64_t stride;
  std::int32_t first_column, end_column, bf16;
};
struct OutputPieces {
  std::int32_t count;  // 0: to the sums of the call
  OutputPiece pieces[kMostOutputPieces];
};

// The pieces of a front projection that are wanted, if tiles can store them: they are few and aligned, and nothing is
// left to do for the gate's logits but to store them.
std::optional<OutputPieces> direct_outputs(const RouterView& router, const std::vector<ColumnPiece>& pieces);

}  // namespace samebits::cuda
