// The selection of many rows: a warp has one, its lanes a few experts each. As little code, and as few parameters in as
// few lines, as a row needs: rows that row_choice.cuh leaves go the way of row_keys.cuh.
#include "kernels/select/row_select.h"

#include "kernels/cuda/pdl.h"
#include "kernels/select/row_choice.cuh"
#include "kernels/select/rows_call.cuh"

namespace samebits::cuda {
namespace {

constexpr int kWarps = 4;      // of a block
constexpr int kNoPlace = 255;  // behind all that may be chosen

// Exact scores of the candidates, their order, and the columns. False: the row is left.
template <Lean kLean, class Shape>
__device__ __forceinline__ bool write_best(const RowsCall& call, const float* bias, int lane, int row, int count,
                                           const Softmax& softmax, RowChoice<Shape>& memory) {
  constexpr int kOfLane = Shape::kOfLane;
  const int k = call.k, used = count <= kWarpSize ? 1 : kOfLane;  // candidates of a lane
  const float* logits = row_of(call.logits, row, call.logits_stride);
  float scores[kOfLane], keys[kOfLane];
  int ids[kOfLane], places[kOfLane];
  bool is_odd = false;
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    scores[i] = 0.0f, keys[i] = kNoCandidate, ids[i] = 0, places[i] = kNoPlace;
    const int index = lane + i * kWarpSize;
    if (i >= used) continue;
    if (index < count) {
      ids[i] = memory.ids[index];
      float logit = logits[ids[i]];
      const float own_bias = bias == nullptr ? 0.0f : bias[ids[i]];
      if (call.round_logits) logit = round_to_bf16(logit);
      scores[i] = candidate_score<kLean>(logit, softmax);
      keys[i] = fadd(scores[i], own_bias);  // of no bias the same but for a zero's sign, and no zero is plain
      is_odd = is_odd || !is_plain(keys[i]) || (kLean != Lean::kSoftmax && !is_near(logit));
    }
    memory.keys[index] = keys[i];
  }
  if (__any_sync(kAllLanes, is_odd)) return false;
  __syncwarp();

  unsigned taken = 0;
  int chosen = 0;
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    if (i >= used) continue;
    const float negative = fmul(keys[i], -kKeyFactor);
    float before[4] = {};
#pragma unroll 2
    for (int other = 0; other < count; other += 8) {  // kNoCandidate behind the last
      const float4 low = *reinterpret_cast<const float4*>(memory.keys + other);
      const float4 high = *reinterpret_cast<const float4*>(memory.keys + other + 4);
      before[0] = fadd(before[0], is_before(low.x, negative));
      before[1] = fadd(before[1], is_before(low.y, negative));
      before[2] = fadd(before[2], is_before(low.z, negative));
      before[3] = fadd(before[3], is_before(low.w, negative));
      before[0] = fadd(before[0], is_before(high.x, negative));
      before[1] = fadd(before[1], is_before(high.y, negative));
      before[2] = fadd(before[2], is_before(high.z, negative));
      before[3] = fadd(before[3], is_before(high.w, negative));
    }
    if (lane + i * kWarpSize < count)
      places[i] = small_integer(fadd(fadd(before[0], before[1]), fadd(before[2], before[3])));
    const bool in = places[i] < k;
    if (in) taken |= 1u << places[i];
    chosen += __popc(__ballot_sync(kAllLanes, in));
  }
  // k, and no place twice; else some keys are equal, of which those of lower ids come first.
  if (__popc(__reduce_or_sync(kAllLanes, taken)) != k || chosen != k) {
#pragma unroll
    for (int i = 0; i < kOfLane; ++i) {
#pragma unroll 1
      for (int other = 0; other < count && places[i] < k; ++other) {
        if (memory.keys[other] == keys[i] && memory.ids[other] < ids[i]) ++places[i];
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    if (places[i] < k) memory.scores[places[i]] = scores[i];
  }
  __syncwarp();

  const float sum = sum_in_order<Shape::kChosen>(memory.scores);
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    if (places[i] < k) write_scored(call, row, places[i], ids[i], scores[i], sum);
  }
  return true;
}

// The compiler asks for the thread again where it uses it, which takes time there; it keeps what it must not repeat.
__device__ __forceinline__ int this_thread() {
  int thread;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
  return thread;
}

template <Lean kLean, class Shape>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    row_select_kernel(const __grid_constant__ RowsCall call, const __grid_constant__ RouterView router,
                      const __grid_constant__ CallView full_call) {
  constexpr int kKeys = Shape::kKeys;
  using Order = KeyOrder<kLean, kKeys>;
  __shared__ RowChoice<Shape> memories[kWarps];
  const int thread = this_thread(), lane = thread % kWarpSize, warp = thread / kWarpSize;
  RowChoice<Shape>& memory = memories[warp];
  let_next_kernel_start();
  const int row = static_cast<int>(blockIdx.x) * kWarps + warp;
  const bool has_bias = call.bias != nullptr, one_bias = call.bias_variants <= 1 || call.row_class == nullptr;
  const auto is_expert = [&](int i) {
    return Shape::kWhole || Order::expert(i, lane) < static_cast<unsigned>(call.experts);
  };
  float addends[kKeys];
  if (has_bias && one_bias) {  // written at creation
    load_keys<kLean, Shape::kWhole>(call.bias, lane, call.experts, -infinity(), addends);
  } else {
#pragma unroll
    for (int i = 0; i < kKeys; ++i) addends[i] = is_expert(i) ? 0.0f : -infinity();
  }
  if (lane < Shape::kChosen) memory.scores[lane] = 0.0f;
  wait_for_previous_kernel();

  if (row >= call.num_tokens) return;
  int num_rows = call.num_tokens;
  if (call.num_valid_rows != nullptr) num_rows = min(max(*call.num_valid_rows, 0), num_rows);
  bool has_answer = row < num_rows;
  if (has_answer) {
    float keys[kKeys];
    load_keys<kLean, Shape::kWhole>(row_of(call.logits, row, call.logits_stride), lane, call.experts,
                                    kLean == Lean::kSoftmax ? -infinity() : 0.0f, keys);
    const float* bias = call.bias;
    if (call.bias_variants > 0 && call.row_class != nullptr) {
      const std::int32_t row_class = call.row_class[row];
      has_answer = row_class >= 0 && row_class < call.bias_variants;
      if (has_answer) bias += row_class * call.experts;
    }
    if (!one_bias) load_keys<kLean, Shape::kWhole>(bias, lane, call.experts, -infinity(), addends);
    if (call.round_logits) {
#pragma unroll
      for (int i = 0; i < kKeys; ++i) keys[i] = round_to_bf16(keys[i]);
    }
    if (call.router_logits != nullptr) {
      float* out = row_of(call.router_logits, row, call.router_logits_stride);
#pragma unroll
      for (int i = 0; i < kKeys; ++i) {
        if (is_expert(i)) out[Order::expert(i, lane)] = canonical(keys[i]);
      }
    }
    if (has_answer) {
      bool is_masked = false, told = true;
      Softmax softmax{};
      if constexpr (kLean == Lean::kSoftmax) {
        told = take_exponentials(keys, softmax);
        const float inverse = detail::approximate_reciprocal(softmax.sum);
#pragma unroll
        for (int i = 0; i < kKeys; ++i) keys[i] = ffma(keys[i], inverse, addends[i]);
      } else {
        if constexpr (kLean == Lean::kSqrtSoftplus) {
          float largest = keys[0];
#pragma unroll
          for (int i = 1; i < kKeys; ++i) largest = fmaxf(largest, keys[i]);
          told = !__any_sync(kAllLanes, largest > kMostEstimated);
        }
#pragma unroll
        for (int i = 0; i < kKeys; ++i) keys[i] = estimate_key<kLean>(keys[i], addend_of_bias<kLean>(addends[i]));
      }
      if constexpr (kLean == Lean::kSigmoidGroups) {
        if (!mask_by_estimates(call.groups, keys, is_masked)) {
          is_masked = is_masked_exactly<kKeys>(router.spec, row_of(call.logits, row, call.logits_stride),
                                               call.round_logits, bias);
        }
      }
      const bool zero_mask = kLean == Lean::kSigmoidGroups && call.groups.zero_mask;
      const int count =
          told ? name_row_candidates<kLean>(keys, is_masked, lane, call.k, has_bias, zero_mask, memory) : 0;
      __syncwarp();
      if (count == 0 || !write_best<kLean>(call, bias, lane, row, count, softmax, memory))
        select_row_by_rounds<kLean, kKeys>(router, full_call, row, bias);
      return;
    }
  }
  if (lane < call.k) write_rare_column(call.rule.rare, column_of(call, row, lane), -1, 0.0f);
}

// Blocks that start before the product has ended all go to the multiprocessors that are free first, unless none takes
// more than its share of them: so each block has more than a fraction of the shared memory.
constexpr std::int64_t kMultiprocessors = 132, kMostSpread = 10;
constexpr std::size_t spread_bytes(std::int64_t num_blocks, std::size_t static_bytes) {
  const std::int64_t share = ceil_div(num_blocks, kMultiprocessors);
  return share > kMostSpread ? 0 : (std::size_t{227} << 10) / (share + 1) + (std::size_t{1} << 10) - static_bytes;
}

template <Lean kLean, class Shape>
cudaError_t launch_shape(const RouterView& router, const CallView& call, cudaStream_t stream) {
  const auto kernel = row_select_kernel<kLean, Shape>;
  const std::int64_t blocks = ceil_div(call.num_tokens, kWarps);
  constexpr std::size_t kStaticBytes = kWarps * sizeof(RowChoice<Shape>);
  // The same for all calls, which may be on several threads.
  const cudaError_t status = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                                  static_cast<int>(spread_bytes(1, kStaticBytes)));
  if (status != cudaSuccess) return status;
  return launch_pdl(kernel, dim3(static_cast<unsigned>(blocks)), dim3(kWarps * kWarpSize),
                    spread_bytes(blocks, kStaticBytes), stream, rows_call(router, call), router, call);
}

bool is_aligned(const float* values, std::int64_t stride) {
  return reinterpret_cast<std::uintptr_t>(values) % sizeof(float4) == 0 && stride % 4 == 0;
}
// See RowShape; of as many experts as fill the lanes.
bool has_whole_rows(const RouterView& router, const CallView& call) {
  return router.gate_rows % kWarpSize == 0 && is_aligned(router.selection_bias, router.gate_rows) &&
         (call.given_logits == nullptr ? is_aligned(call.sums, router.padded_gate_rows)
                                       : is_aligned(call.given_logits, call.given_logits_stride));
}

constexpr int kKeysOfGroups = 8;
template <Lean kLean, int kKeys, bool kWhole>
cudaError_t launch_keys(const RouterView& router, const CallView& call, cudaStream_t stream) {
  return router.top_k <= 8 ? launch_shape<kLean, RowShape<kKeys, 8, kWhole>>(router, call, stream)
                           : launch_shape<kLean, RowShape<kKeys, 32, kWhole>>(router, call, stream);
}
template <Lean kLean>
cudaError_t launch(const RouterView& router, const CallView& call, cudaStream_t stream) {
  const int keys = static_cast<int>(ceil_div(router.gate_rows, kWarpSize));
  const bool whole = has_whole_rows(router, call);
  if constexpr (kLean == Lean::kSigmoidGroups) {
    return whole ? launch_keys<kLean, kKeysOfGroups, true>(router, call, stream)
                 : launch_keys<kLean, kKeysOfGroups, false>(router, call, stream);
  } else {
    if (whole && keys == 4) return launch_keys<kLean, 4, true>(router, call, stream);
    if (whole && keys == 8) return launch_keys<kLean, 8, true>(router, call, stream);
    if (whole && keys == 9) return launch_keys<kLean, 9, true>(router, call, stream);
    if (whole && keys == 12) return launch_keys<kLean, 12, true>(router, call, stream);
    if (whole && keys == 16) return launch_keys<kLean, 16, true>(router, call, stream);
    if (whole && keys == 28) return launch_keys<kLean, 28, true>(router, call, stream);
    if (keys <= 4) return launch_keys<kLean, 4, false>(router, call, stream);
    if (keys <= 8) return launch_keys<kLean, 8, false>(router, call, stream);
    if (keys <= 16) return launch_keys<kLean, 16, false>(router, call, stream);
    return launch_keys<kLean, kLeanExperts / kWarpSize, false>(router, call, stream);
  }
}

}  // namespace

bool can_row_select(const RouterView& router, const CallView& call) {
  const Lean lean = lean_of(router);
  if (lean == Lean::kNo || (call.given_logits == nullptr && call.num_sums > 1)) return false;
  if (!fits_rows_call(call)) return false;
  return lean != Lean::kSigmoidGroups || has_groups_of_lanes(router.spec, kKeysOfGroups);
}

cudaError_t launch_row_select(const RouterView& router, const CallView& call, cudaStream_t stream) {
  switch (lean_of(router)) {
    case Lean::kSigmoid:
      return launch<Lean::kSigmoid>(router, call, stream);
    case Lean::kSigmoidGroups:
      return launch<Lean::kSigmoidGroups>(router, call, stream);
    case Lean::kSqrtSoftplus:
      return launch<Lean::kSqrtSoftplus>(router, call, stream);
    case Lean::kSoftmax:
      return launch<Lean::kSoftmax>(router, call, stream);
    case Lean::kNo:
      break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace samebits::cuda
