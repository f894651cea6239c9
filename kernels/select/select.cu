// From logits to ids and weights: one block a row.
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pdl.h"
#include "kernels/select/choose.cuh"
#include "kernels/select/fold_finish.cuh"
#include "kernels/select/score.cuh"
#include "kernels/select/sparsemixer.cuh"
#include "kernels/select/weigh.cuh"
#include "kernels/select/write.cuh"

namespace samebits::cuda {
namespace {

constexpr std::int64_t kMaxBlocks = std::int64_t{1} << 20;        // a block takes every kMaxBlocks-th row
constexpr std::size_t kPlainSharedBytes = std::size_t{48} << 10;  // what a kernel may have without asking

// The class and the token id of a row: rows of the selection bias and the hash table, null where the spec has none.
struct RowConstants {
  bool has_answer;
  const float* bias;
  const std::int32_t* table_row;
};

__device__ RowConstants row_constants(const RouterView& router, const CallView& call, std::int64_t row) {
  const samebits_router_spec& spec = router.spec;
  RowConstants constants{true, nullptr, nullptr};
  if (spec.selection_bias_dtype != SAMEBITS_DTYPE_NONE) {
    const std::int64_t row_class = call.row_class == nullptr ? 0 : call.row_class[row];
    if (row_class < 0 || row_class >= spec.num_bias_variants) return {false, nullptr, nullptr};
    constants.bias = router.selection_bias + row_class * router.ranked_experts;
  }
  if (spec.selection_method == SAMEBITS_SELECT_HASH_TABLE) {
    const std::int64_t token_id = call.token_ids_int64 ? static_cast<const std::int64_t*>(call.token_ids)[row]
                                                       : static_cast<const std::int32_t*>(call.token_ids)[row];
    if (token_id < 0 || token_id >= spec.hash_vocab_size) return {false, nullptr, nullptr};
    constants.table_row = router.hash_table + token_id * router.top_k;
  }
  return constants;
}

__device__ void select_row(const RouterView& router, const CallView& call, std::int64_t row, const RowMemory& memory) {
  const samebits_router_spec& spec = router.spec;
  const Block block;
  load_logits(block, router, call, row, memory.logits);
  const RowConstants constants = row_constants(router, call, row);
  if (!constants.has_answer) {
    if (block.warp() == 0) write_no_experts(router, call, row);
    return;
  }
#ifndef SAMEBITS_MUTANT_MISSING_BARRIER
  block.sync();
#endif
  const bool sparsemixer = spec.selection_method == SAMEBITS_SELECT_SPARSEMIXER;
  if (spec.score_stage == SAMEBITS_SCORE_BEFORE_TOPK && !sparsemixer) {
    apply_score_func(block, spec, memory.logits, router.gate_rows, memory.scores);
  }
  block.sync();
  choose_experts(block, router, constants.bias, constants.table_row, memory);
  if (sparsemixer) sparsemixer_scores(block, router, memory);
  if (block.warp() != 0) return;
  value_experts(router, constants.bias, memory);
  weigh_experts(router, memory);
  write_experts(router, call, row, memory);
}

__global__ void __launch_bounds__(kSelectThreads)
    select_kernel(const __grid_constant__ RouterView router, const __grid_constant__ CallView call) {
  extern __shared__ __align__(8) unsigned char shared[];
  const RowMemory memory = row_memory(router, shared);
  wait_for_previous_kernel();
  const std::int64_t num_valid_rows =
      call.num_valid_rows == nullptr ? call.num_tokens : clamp_rows(*call.num_valid_rows, call.num_tokens);
  for (std::int64_t row = blockIdx.x; row < call.num_tokens; row += gridDim.x) {
    if (row < num_valid_rows) {
      select_row(router, call, row, memory);
    } else if (Block().warp() == 0) {
      write_no_experts(router, call, row);
    }
    __syncthreads();  // before the next row takes the memory
  }
}

// All that the device has, so that calls on several threads ask for the same.
cudaError_t allow_most_shared_memory() {
  int device = 0, bytes = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  status = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (status != cudaSuccess) return status;
  return cudaFuncSetAttribute(select_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
}

}  // namespace

cudaError_t launch_select(const RouterView& router, const CallView& call, cudaStream_t stream) {
  if (call.num_tokens == 0) return cudaSuccess;
  const std::size_t shared_bytes = row_layout(router).bytes;
  if (shared_bytes > kPlainSharedBytes) {
    const cudaError_t status = allow_most_shared_memory();
    if (status != cudaSuccess) return status;
  }
  const auto blocks = static_cast<unsigned>(call.num_tokens < kMaxBlocks ? call.num_tokens : kMaxBlocks);
  return launch_pdl(select_kernel, blocks, kSelectThreads, shared_bytes, stream, router, call);
}

}  // namespace samebits::cuda
