// From the finished logits of a row to its columns. By one block.
#pragma once

#include "kernels/select/choose.cuh"
#include "kernels/select/copy_bias.cuh"
#include "kernels/select/score.cuh"
#include "kernels/select/sparsemixer.cuh"
#include "kernels/select/weigh.cuh"
#include "kernels/select/write.cuh"

namespace samebits::cuda {

// The class and the token id of a row: rows of the selection bias and the hash table, in device memory; null where the
// spec has none.
struct RowConstants {
  bool has_answer;
  const float* bias;
  const std::int32_t* table_row;
};

__device__ inline RowConstants row_constants(const RouterView& router, const CallView& call, std::int64_t row) {
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

// Constants are memory that is written at creation: this may come before wait_for_previous_kernel.
__device__ inline void fetch_constants(Block block, const RouterView& router, const RowMemory& memory) {
  if (has_one_bias(router)) copy_bias(block, router, router.selection_bias, memory.bias);
  for (const float* values : {router.linear_bias, router.per_expert_scale}) {
    if (values != nullptr && block.rank() < router.gate_rows)
      asm volatile("prefetch.global.L2 [%0];" ::"l"(values + block.rank()));
  }
}

// From memory.logits, of which a thread has written those of the experts that it keeps, every block.size-th. After
// fetch_constants for the first row of a block. The block may use the memory again after a barrier.
__device__ inline void select_row(Block block, const RouterView& router, const CallView& call, std::int64_t row,
                                  const RowConstants& constants, const RowMemory& memory) {
  const samebits_router_spec& spec = router.spec;
  if (!constants.has_answer) {
    if (block.warp() == 0) write_no_experts(router, call, row);
    return;
  }
  if (constants.bias != nullptr && !has_one_bias(router)) copy_bias(block, router, constants.bias, memory.bias);
  const float* bias = constants.bias == nullptr ? nullptr : memory.bias;
  const bool sparsemixer = spec.selection_method == SAMEBITS_SELECT_SPARSEMIXER;
  if (spec.score_stage == SAMEBITS_SCORE_BEFORE_TOPK && !sparsemixer) {
    if (spec.score_func == SAMEBITS_SCORE_SOFTMAX) block.sync();
    apply_score_func(block, spec, memory.logits, router.gate_rows, memory.scores);
  }
  wait_for_copies();
  choose_experts(block, router, bias, constants.table_row, memory);
  if (sparsemixer) {
    block.sync();
    sparsemixer_scores(block, router, memory);
  }
  if (block.warp() != 0) return;
  value_experts(router, bias, memory);
  weigh_experts(router, memory);
  write_experts(router, call, row, memory);
}

}  // namespace samebits::cuda
