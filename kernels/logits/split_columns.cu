// One thread a value: the parts of its sum are added left to right, then it is finished as a logit or cast.
#include "kernels/logits/split_columns.h"

#include <algorithm>

#include "kernels/cuda/pdl.h"
#include "kernels/logits/rows.cuh"
#include "kernels/select/fold_finish.cuh"

namespace samebits::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kPiecesPerLaunch = 16;

struct PieceList {
  ColumnPiece pieces[kPiecesPerLaunch];
  std::int32_t count, first_column, blocks_per_row;  // blocks of kThreads columns from first_column on
};

__device__ void write_value(const ColumnPiece& piece, std::int64_t row, std::int32_t column, float x) {
  const std::int64_t place = row * piece.stride + column;
  if (piece.bf16) {
    static_cast<std::uint16_t*>(piece.output)[place] = float_to_bf16(x);
  } else {
    static_cast<float*>(piece.output)[place] = x;
  }
}

__global__ void __launch_bounds__(kThreads)
    split_columns_kernel(const __grid_constant__ RouterView router, const __grid_constant__ CallView call,
                         const __grid_constant__ PieceList list) {
  wait_for_previous_kernel();
  const std::int64_t row = blockIdx.x / list.blocks_per_row;
  if (row >= valid_rows(call)) return;
  const std::int32_t column = list.first_column +
                              static_cast<std::int32_t>(blockIdx.x % list.blocks_per_row) * kThreads +
                              static_cast<std::int32_t>(threadIdx.x);
  int i = 0;
  while (i < list.count && column >= list.pieces[i].first_column + list.pieces[i].columns) ++i;
  if (i == list.count) return;
  const ColumnPiece& piece = list.pieces[i];
  if (column < piece.first_column || piece.output == nullptr) return;  // columns between pieces are padding
  const float* sums = call.sums + row * call.num_sums * router.padded_gate_rows + column;
  const float sum = fold_sums(sums, call.num_sums, router.padded_gate_rows);
  write_value(piece, row, column - piece.first_column, piece.is_gate ? finish_logit(router, column, sum) : sum);
}

}  // namespace

cudaError_t launch_split_columns(const RouterView& router, const CallView& call, const std::vector<ColumnPiece>& pieces,
                                 cudaStream_t stream) {
  if (call.num_tokens == 0) return cudaSuccess;
  for (std::size_t first = 0; first < pieces.size(); first += kPiecesPerLaunch) {
    PieceList list{};
    list.count = static_cast<std::int32_t>(std::min<std::size_t>(kPiecesPerLaunch, pieces.size() - first));
    std::copy_n(pieces.data() + first, list.count, list.pieces);
    const ColumnPiece& last = list.pieces[list.count - 1];
    list.first_column = list.pieces[0].first_column;
    list.blocks_per_row =
        static_cast<std::int32_t>(ceil_div(last.first_column + last.columns - list.first_column, kThreads));
    const auto blocks = static_cast<unsigned>(call.num_tokens * list.blocks_per_row);
    const cudaError_t status = launch_pdl(split_columns_kernel, blocks, kThreads, 0, stream, router, call, list);
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

}  // namespace samebits::cuda
