// The columns of a row as the caller wants them. By one warp.
#pragma once

#include "kernels/cuda/view.h"
#include "kernels/select/row.cuh"

namespace samebits::cuda {

__device__ inline void write_column(const RouterView& router, const CallView& call, std::int64_t row, int column,
                                    std::int32_t id, float weight) {
  const std::int64_t id_at = row * call.ids_stride + column, weight_at = row * call.weights_stride + column;
  if (call.ids_int64) {
    static_cast<std::int64_t*>(call.topk_ids)[id_at] = id;
  } else {
    static_cast<std::int32_t*>(call.topk_ids)[id_at] = id;
  }
  if (call.weights_bf16) {
    const float rounded = round_to_bf16(weight);  // may be Inf
    static_cast<std::uint16_t*>(call.topk_weights)[weight_at] = float_to_bf16(is_finite(rounded) ? rounded : 0.0f);
  } else {
    static_cast<float*>(call.topk_weights)[weight_at] = weight;
  }
  if (call.slot_ids != nullptr) call.slot_ids[row * router.columns + column] = id;
}

// A row without experts: padding, or a token id or class out of range.
__device__ inline void write_no_experts(const RouterView& router, const CallView& call, std::int64_t row) {
  for (int c = Warp().rank(); c < router.columns; c += kWarpSize) write_column(router, call, row, c, -1, 0.0f);
}

// Sorted by id if the spec says so; then zero experts that are not to be named become id 0 with weight 0: the engine
// adds what they stand for itself.
__device__ inline void write_experts(const RouterView& router, const CallView& call, std::int64_t row,
                                     const RowMemory& memory) {
  const samebits_router_spec& spec = router.spec;
  const bool remap = spec.zero_type == SAMEBITS_ZERO_EXPERTS_IDENTITY_REMAPPED_TO_ID0_WEIGHT0;
  for (int c = Warp().rank(); c < router.columns; c += kWarpSize) {
    const std::int32_t id = memory.ids[c];
    int column = c;
    if (spec.sort == SAMEBITS_SORT_BY_INDEX) {
      column = 0;
      for (int other = 0; other < router.columns; ++other) column += memory.ids[other] < id;
    }
    const bool unnamed = remap && id >= spec.num_experts && id < router.ranked_experts;
    write_column(router, call, row, column, unnamed ? 0 : id, unnamed ? 0.0f : memory.weights[c]);
  }
}

}  // namespace samebits::cuda
