// The logits of 17 to some hundred rows by wgmma, a chunk a block (decode_wide.cuh): which tile computes a call, and
// its launch.
#include <algorithm>
#include <iterator>

#include "kernels/logits/decode_wide.cuh"
#include "kernels/logits/decode_wide.h"
#include "kernels/logits/row_boxes.h"

namespace samebits::cuda {
namespace {

template <class Tile>
cudaError_t launch(const RouterView& router, const CallView& call, cudaStream_t stream) {
  CUtensorMap rows;
  WideDecodeCall wide{};
  wide.weight_tiles = router.weight_tiles;
  wide.padded_gate_rows = router.padded_gate_rows;
  wide.num_blocks = static_cast<std::int32_t>(ceil_div(router.padded_hidden_size, kTileColumns));
  wide.num_valid_rows = call.num_valid_rows;
  wide.num_tokens = static_cast<std::int32_t>(call.num_tokens);
  wide.tile_rows = static_cast<std::int32_t>(std::min<std::int64_t>(call.num_tokens, Tile::kRows));
  wide.sums = call.sums;
  cudaError_t status = encode_rows(router, call, wide.tile_rows, &rows);
  if (status != cudaSuccess) return status;
  status =
      cudaFuncSetAttribute(decode_wide_kernel<Tile>, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes);
  if (status != cudaSuccess) return status;
  const dim3 grid(static_cast<unsigned>(ceil_div(router.padded_gate_rows, Tile::kExperts)),
                  static_cast<unsigned>(ceil_div(call.num_tokens, Tile::kRows)),
                  static_cast<unsigned>(router.num_chunks));
  return launch_pdl(decode_wide_kernel<Tile>, grid, dim3(Tile::kThreads), Tile::kSharedBytes, stream, rows, wide);
}

using Launch = cudaError_t (*)(const RouterView&, const CallView&, cudaStream_t);
constexpr Launch kLaunches[] = {launch<WideTile<1, 24>>, launch<WideTile<1, 72>>, launch<WideTile<2, 64>>};
enum TileIndex { kNarrow, kMiddle, kTall };

template <class Tile>
std::int64_t num_blocks(const RouterView& router, const CallView& call) {
  return ceil_div(router.padded_gate_rows, Tile::kExperts) * ceil_div(call.num_tokens, Tile::kRows) * router.num_chunks;
}

// Measured on an H200: the narrowest tile whose blocks run at once, two on a multiprocessor; of the others first one
// whose blocks have it alone.
TileIndex choose_tile(const RouterView& router, const CallView& call) {
  constexpr std::int64_t kMultiprocessors = 132;
  const std::int64_t middle = num_blocks<WideTile<1, 72>>(router, call);
  if (num_blocks<WideTile<1, 24>>(router, call) <= 2 * kMultiprocessors) return kNarrow;
  if (middle <= kMultiprocessors || call.num_tokens <= WideTile<1, 72>::kRows) return kMiddle;
  if (num_blocks<WideTile<2, 64>>(router, call) <= kMultiprocessors) return kTall;
  return middle <= 2 * kMultiprocessors ? kMiddle : kTall;
}

}  // namespace

// At 32 rows wgmma is faster by up to 0.5 us, but of a large weight (Kimi-K3) slower by 0.4.
bool takes_decode_wide(const RouterView& router, std::int64_t num_tokens) {
  constexpr std::int64_t kLargeWeight = 512 * 28;
  const bool is_large = std::int64_t{router.padded_gate_rows} * router.num_chunks > kLargeWeight;
  return router.num_parts == 1 && num_tokens >= (is_large ? 33 : 17);
}

int num_decode_wide_tiles() {
  return std::size(kLaunches);
}

cudaError_t launch_decode_wide_tile(int tile, const RouterView& router, const CallView& call, cudaStream_t stream) {
  return kLaunches[tile](router, call, stream);
}

cudaError_t launch_decode_wide(const RouterView& router, const CallView& call, cudaStream_t stream) {
  return kLaunches[choose_tile(router, call)](router, call, stream);
}

}  // namespace samebits::cuda
