// What kernels of lean routers read of router and call: as few parameters in as few lines as rows need.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/select/choice_columns.cuh"

namespace samebits::cuda {

struct GroupSizes {
  std::int32_t groups, kept, lanes_of_group;  // of a warp that has all experts
  bool two_of_group, zero_mask;
};

// In the order of their use. Strides in bytes.
struct RowsCall {
  const float* bias;  // null: none
  const std::int32_t* row_class;
  std::int32_t bias_variants, experts, k;
  bool round_logits;
  bool is_rare;  // some rows may have no answer, or another bias, or logits are wanted, or rounded, but for softmax
  const std::int32_t* num_valid_rows;
  const float* logits;  // sums, or given
  float* router_logits;
  std::int32_t num_tokens, logits_stride, router_logits_stride;
  std::int32_t num_sums, sum_stride;  // of a logit, and in values between two of them
  GroupSizes groups;
  std::int32_t ids_stride, weights_stride;
  void *ids, *weights;
  std::int32_t* slot_ids;
  ColumnRule rule;
};

template <class T>
__device__ __forceinline__ T* row_of(T* rows, int row, int stride) {
  using Byte = std::conditional_t<std::is_const_v<T>, const unsigned char, unsigned char>;
  return reinterpret_cast<T*>(reinterpret_cast<Byte*>(rows) +
                              std::uint64_t{static_cast<unsigned>(row)} * static_cast<unsigned>(stride));
}

__device__ __forceinline__ Column column_of(const RowsCall& call, int row, int column) {
  const unsigned rare = call.rule.rare;
  auto* ids = row_of(static_cast<unsigned char*>(call.ids), row, call.ids_stride);
  auto* weights = row_of(static_cast<unsigned char*>(call.weights), row, call.weights_stride);
  return {ids + column * ((rare & kWideIds) != 0 ? 8 : 4), weights + column * ((rare & kNarrowWeights) != 0 ? 2 : 4),
          call.slot_ids + (std::int64_t{row} * call.k + column)};
}

// The weight of an expert of this score, in a row whose chosen scores have this sum.
__device__ __forceinline__ float weight_of(float score, float sum, const ColumnRule& rule) {
  float divisor = fadd(sum, rule.eps);
  divisor = divisor > rule.least_divisor ? divisor : rule.least_divisor;
  return divisor == 0.0f ? 0.0f : fmul(fdiv(score, divisor), rule.scale);
}

// Sum of scores[0 .. kCount), left to right; +0 behind those that count.
template <int kCount>
__device__ __forceinline__ float sum_in_order(const float* scores) {
  float sum = 0.0f;  // changes no bit, as no score is -0
#pragma unroll
  for (int i = 0; i < kCount; i += 4) {
    const float4 some = *reinterpret_cast<const float4*>(scores + i);
    sum = fadd(fadd(fadd(fadd(sum, some.x), some.y), some.z), some.w);
  }
  return sum;
}

// The column of an expert of this score.
__device__ __forceinline__ void write_scored(const RowsCall& call, int row, int column, std::int32_t id, float score,
                                             float sum) {
  float weight = weight_of(score, sum, call.rule);
  if ((call.rule.rare & kRoundWeights) != 0) weight = round_to_bf16(weight);
  if ((call.rule.rare & ~kRoundWeights) == 0) {
    row_of(static_cast<std::int32_t*>(call.ids), row, call.ids_stride)[column] = id;
    row_of(static_cast<float*>(call.weights), row, call.weights_stride)[column] = is_finite(weight) ? weight : 0.0f;
  } else {
    write_rare_column(call.rule.rare, column_of(call, row, column), id, weight);
  }
}

inline constexpr std::int64_t kMostStride = std::int64_t{1} << 26;  // whose bytes are an int32

inline bool fits_bytes(std::int64_t stride) {
  return stride >= 0 && stride < kMostStride;
}
// Whether the strides of a call are such.
inline bool fits_rows_call(const CallView& call) {
  return fits_bytes(call.given_logits_stride) && fits_bytes(call.router_logits_stride) && fits_bytes(call.ids_stride) &&
         fits_bytes(call.weights_stride);
}
inline std::int32_t bytes_of(std::int64_t stride, std::size_t size) {
  return static_cast<std::int32_t>(stride * static_cast<std::int64_t>(size));
}
inline RowsCall rows_call(const RouterView& router, const CallView& call) {
  const samebits_router_spec& spec = router.spec;
  const bool given = call.given_logits != nullptr;
  RowsCall rows{};
  rows.bias = router.selection_bias;
  rows.row_class = call.row_class;
  rows.bias_variants = router.selection_bias == nullptr ? 0 : spec.num_bias_variants;
  rows.experts = router.gate_rows;
  rows.k = router.top_k;
  rows.num_valid_rows = call.num_valid_rows;
  rows.num_tokens = static_cast<std::int32_t>(call.num_tokens);
  rows.logits = given ? call.given_logits : call.sums;
  const std::int64_t row_sums = std::int64_t{call.num_sums} * router.padded_gate_rows;
  rows.logits_stride = bytes_of(given ? call.given_logits_stride : row_sums, sizeof(float));
  rows.num_sums = given ? 1 : call.num_sums;
  rows.sum_stride = router.padded_gate_rows;
  rows.round_logits = !given && spec.logits_dtype == SAMEBITS_BF16;
  rows.is_rare = call.num_valid_rows != nullptr || call.router_logits != nullptr ||
                 (call.row_class != nullptr && rows.bias_variants > 0) ||
                 (rows.round_logits && spec.score_func != SAMEBITS_SCORE_SOFTMAX);
  rows.router_logits = call.router_logits;
  rows.router_logits_stride = bytes_of(call.router_logits_stride, sizeof(float));
  rows.groups = {spec.n_group, spec.topk_group, kWarpSize / std::max(spec.n_group, 1),
                 spec.group_score == SAMEBITS_GROUP_SCORE_TOP2_SUM, spec.group_mask == SAMEBITS_GROUP_MASK_ZERO};
  rows.ids = call.topk_ids;
  rows.weights = call.topk_weights;
  rows.ids_stride = bytes_of(call.ids_stride, call.ids_int64 ? 8 : 4);
  rows.weights_stride = bytes_of(call.weights_stride, call.weights_bf16 ? 2 : 4);
  rows.slot_ids = call.slot_ids;
  rows.rule = column_rule(router, call);
  return rows;
}

}  // namespace samebits::cuda
