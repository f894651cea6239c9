// The logits of many rows, on the tensor cores of sm_90a: which tile (prefill_tile.cuh) computes a call, and its
// launch.
#include <cuda_runtime.h>

#include <algorithm>
#include <vector>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/pdl.h"
#include "kernels/logits/prefill_tile.cuh"
#include "kernels/logits/row_boxes.h"

namespace samebits::cuda {
namespace {

// Whether two blocks copy their rows together, where the slices make pairs: it pays for tiles that take as long to be
// copied as to be multiplied, of many rows and in several waves (Kimi-K3's gate at 4,096 rows: 82 us, 77 in pairs), and
// costs up to 2 us else.
template <class Tile>
bool copies_in_pairs(const CallView& call, std::int32_t num_slices) {
  constexpr std::int64_t kManyRows = 2048, kMultiprocessors = 132;
  return Tile::kMayPair && call.num_tokens > kManyRows && num_slices % 2 == 0 &&
         ceil_div(call.num_tokens, Tile::kRows) * num_slices > kMultiprocessors;
}

// Row tiles of which as many slices run at the same time: of a wide weight about the root of the multiprocessors.
std::int32_t group_rows(std::int32_t num_slices) {
  constexpr std::int32_t kRoot = 11;
  return num_slices > kRoot + 1 ? kRoot : 1;
}

template <class Tile>
cudaError_t launch(const RouterView& router, const CallView& call, const OutputPieces& outputs, cudaStream_t stream) {
  CUtensorMap rows;
  const auto num_slices = static_cast<std::int32_t>(ceil_div(router.padded_gate_rows, Tile::kExperts));
  const auto row_tiles = static_cast<std::int32_t>(ceil_div(call.num_tokens, Tile::kRows));
  const auto tile_rows = static_cast<std::int32_t>(std::min<std::int64_t>(call.num_tokens, Tile::kRows));
  const std::int32_t members = copies_in_pairs<Tile>(call, num_slices) ? 2 : 1;
  cudaError_t status = encode_rows(router, call, tile_rows / members, &rows);
  if (status != cudaSuccess) return status;
  status = cudaFuncSetAttribute(prefill_kernel<Tile>, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes);
  if (status != cudaSuccess) return status;
  const PrefillArguments arguments{router.weight_tiles,
                                   call.sums,
                                   call.num_tokens,
                                   call.num_valid_rows,
                                   router.padded_gate_rows,
                                   static_cast<std::int32_t>(ceil_div(router.padded_hidden_size, kTileColumns)),
                                   num_slices,
                                   tile_rows,
                                   members,
                                   group_rows(num_slices),
                                   outputs};
  const std::int64_t blocks = std::int64_t{row_tiles} * num_slices * Tile::kShares;
  return launch_pdl_clusters(prefill_kernel<Tile>, Tile::kShares * members, dim3(static_cast<unsigned>(blocks)),
                             dim3(Tile::kThreads), Tile::kSharedBytes, stream, rows, arguments);
}

// How long a block of 64 columns takes to be copied where that may bind: of a weight too large for L2 by up to 100
// KB/us a multiprocessor (110 where two warpgroups share it), and of all of them 11,300, 9,300 where only one tile of
// rows reads the weight, and 7,000 where several tiles of 64 rows do. Of a weight of half an L2 (Kimi-K3's gate) all of
// them copy 15,500 KB/us up to 256 rows and 12,500 up to 512; of smaller ones 12,000 where two blocks share the chunks,
// as neighbours then read other columns.
template <class Tile>
double time_of_copies(const RouterView& router, const CallView& call, double at_once) {
  constexpr std::int64_t kLargeWeight = std::int64_t{2048} * 28 * kChunkWidth, kMiddleWeight = kLargeWeight / 4;
  const std::int64_t weight = std::int64_t{router.padded_gate_rows} * router.padded_hidden_size;  // values
  const double kilobytes =
      static_cast<double>(std::min<std::int64_t>(call.num_tokens, Tile::kRows) + Tile::kExperts) * kLineBytes / 1000;
  if (Tile::kParts > 1) return 0;
  if (weight > kLargeWeight) {
    const double most = Tile::kWarpgroups == 2 ? 110 : 100;
    const double of_all = Tile::kWarpgroups == 2 ? 11300 : call.num_tokens <= Tile::kRows ? 9300 : 7000;
    return kilobytes / std::min(most, of_all / at_once);
  }
  if (Tile::kShares > 1) return kilobytes * at_once / 12000;
  if (weight <= kMiddleWeight || call.num_tokens > 512) return 0;
  return kilobytes * at_once / (call.num_tokens <= 256 ? 15500 : 12500);
}

// How long a tile shape takes, in microseconds, by rates measured on an H200. A block of 64 columns takes as long as
// shared memory needs for what is copied into it and for what the wgmmas of each warpgroup read of it (250 KB/us, 290
// of narrow tiles, 200 where two blocks share the chunks), or as its products (770 TFLOP/s), and no less than 0.07;
// launch and ends are 2.6 us, and 1 more where two blocks share the chunks.
template <class Tile>
double predicted_time(const RouterView& router, const CallView& call) {
  static const int kClusters = [] {
    int clusters = 0;
    cudaLaunchConfig_t config{};
    cudaLaunchAttribute cluster{};
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim.x = Tile::kShares;
    cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
    config.gridDim = dim3(Tile::kShares);
    config.blockDim = dim3(Tile::kThreads);
    config.dynamicSmemBytes = Tile::kSharedBytes;
    config.attrs = &cluster;
    config.numAttrs = 1;
    if (cudaFuncSetAttribute(prefill_kernel<Tile>, cudaFuncAttributeMaxDynamicSharedMemorySize, Tile::kSharedBytes) !=
            cudaSuccess ||
        cudaOccupancyMaxActiveClusters(&clusters, prefill_kernel<Tile>, &config) != cudaSuccess)
      return 0;
    return clusters;
  }();
  if (kClusters == 0) return 1e30;
  const std::int64_t clusters =
      ceil_div(call.num_tokens, Tile::kRows) * ceil_div(router.padded_gate_rows, Tile::kExperts);
  const std::int64_t waves = ceil_div(clusters, kClusters);
  const double at_once = static_cast<double>(waves == 1 ? clusters : kClusters) * Tile::kShares;
  const double kilobytes =
      (Tile::kBlockBytes + Tile::kWarpgroups * Tile::kParts * (kWarpgroupRows * kLineBytes + Tile::kExpertBytes)) /
      1000.0;
  const double megaflop = 2e-6 * Tile::kRows * Tile::kExperts * Tile::kParts * kTileColumns;
  const bool is_narrow = Tile::kWarpgroups == 1 && Tile::kParts == 1 && Tile::kExperts <= 72;
  const double rate = Tile::kShares > 1 ? 200 : is_narrow ? 290 : 250;
  const double block =
      std::max({0.07, kilobytes / rate, megaflop * at_once / 770, time_of_copies<Tile>(router, call, at_once)});
  // Of two blocks that share the chunks, the one that has more.
  const std::int64_t chunks =
      Tile::kShares == 1 ? router.num_chunks
                         : std::max<std::int64_t>(ceil_div(router.num_chunks, 2), router.num_chunks - Tile::kMostKept);
  const double ends = Tile::kShares == 1 ? 2.6 : 3.6;
  return static_cast<double>(waves) * (static_cast<double>(chunks * (kChunkWidth / kTileColumns)) * block + ends);
}

struct TileShape {
  double (*predicted_time)(const RouterView&, const CallView&);
  cudaError_t (*launch)(const RouterView&, const CallView&, const OutputPieces&, cudaStream_t);
};
template <class... Tiles>
const std::vector<TileShape>& shapes_of() {
  static const std::vector<TileShape> kShapes = {{predicted_time<Tiles>, launch<Tiles>}...};
  return kShapes;
}
const std::vector<TileShape>& tile_shapes(const RouterView& router) {
  // Rows of a tile / 64, experts, parts, blocks that share the chunks.
  return router.num_parts > 1 ? shapes_of<Tile<1, 32, 3, 1>, Tile<1, 40, 3, 1>, Tile<1, 48, 3, 1>, Tile<1, 64, 3, 1>,
                                          Tile<1, 32, 3, 2>, Tile<2, 64, 3, 1>>()
                              : shapes_of<Tile<1, 16, 1, 1>, Tile<1, 24, 1, 1>, Tile<1, 32, 1, 1>, Tile<1, 40, 1, 1>,
                                          Tile<1, 48, 1, 1>, Tile<1, 64, 1, 1>, Tile<1, 72, 1, 1>, Tile<1, 96, 1, 1>,
                                          Tile<1, 112, 1, 1>, Tile<1, 128, 1, 1>, Tile<1, 144, 1, 1>, Tile<1, 16, 1, 2>,
                                          Tile<1, 24, 1, 2>, Tile<2, 64, 1, 1>, Tile<2, 96, 1, 1>, Tile<2, 112, 1, 1>,
                                          Tile<2, 128, 1, 1>, Tile<2, 144, 1, 1>, Tile<2, 192, 1, 1>>();
}

cudaError_t check_device() {
  int device = 0, major = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status == cudaSuccess) status = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  return status != cudaSuccess ? status : major == 9 ? cudaSuccess : cudaErrorNotSupported;
}

}  // namespace

int num_prefill_tiles(const RouterView& router) {
  return static_cast<int>(tile_shapes(router).size());
}

cudaError_t launch_prefill_tile_outputs(int tile, const RouterView& router, const CallView& call,
                                        const OutputPieces& outputs, cudaStream_t stream) {
  const cudaError_t status = check_device();
  if (status != cudaSuccess || call.num_tokens == 0) return status;
  return tile_shapes(router).at(static_cast<std::size_t>(tile)).launch(router, call, outputs, stream);
}

cudaError_t launch_logits_prefill(const RouterView& router, const CallView& call, cudaStream_t stream) {
  return launch_prefill_outputs(router, call, {}, stream);
}

cudaError_t launch_prefill_outputs(const RouterView& router, const CallView& call, const OutputPieces& outputs,
                                   cudaStream_t stream) {
  const cudaError_t status = check_device();
  if (status != cudaSuccess || call.num_tokens == 0) return status;
  const TileShape* fastest = nullptr;
  double least = 0;
  for (const TileShape& shape : tile_shapes(router)) {
    const double time = shape.predicted_time(router, call);
    if (fastest == nullptr || time < least) fastest = &shape, least = time;
  }
  return fastest->launch(router, call, outputs, stream);
}

}  // namespace samebits::cuda
