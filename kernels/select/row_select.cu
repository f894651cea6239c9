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

// Of this lane, kNoCandidate where it has fewer.
template <class Shape>
struct Candidates {
  float scores[Shape::kOfLane], keys[Shape::kOfLane];
  unsigned ids[Shape::kOfLane];
};

// Exact scores and keys of the first `count` places, 1 or more. False, the same for all: some are not plain.
template <Lean kLean, class Shape>
__device__ __forceinline__ bool score_candidates(const RowsCall& call, const float* bias, unsigned lane,
                                                 const float* logits, unsigned count, const Softmax& softmax,
                                                 const WarpMemory<Shape>& memory, Candidates<Shape>& candidates) {
  bool is_odd = false;
#pragma unroll
  for (int i = 0; i < Shape::kOfLane; ++i) {
    const unsigned index = lane + i * kWarpSize;
    const bool in = index < count;
    candidates.keys[i] = kNoCandidate, candidates.scores[i] = 0.0f, candidates.ids[i] = 0;
    if (i == 0 || count > kWarpSize) {
      const unsigned id = memory.id(in ? index : 0);
      float score, key;
      if (kLean == Lean::kSoftmax && bias == nullptr) {
        score = key = memory.key(index);
      } else {
        float logit = logits[id];
        const float addend = bias == nullptr ? 0.0f : bias[id];
        if (call.round_logits) logit = round_to_bf16(logit);
        score = candidate_score<kLean>(logit, softmax);
        key = fadd(score, addend);  // of no bias the same but for a zero's sign, and no zero is plain
        is_odd = is_odd || (kLean != Lean::kSoftmax && !is_near(logit));
      }
      is_odd = is_odd || (in && !is_plain(key));
      candidates.ids[i] = id, candidates.scores[i] = score;
      if (in) candidates.keys[i] = key;
    }
  }
  if (__any_sync(kAllLanes, is_odd)) return false;
#pragma unroll
  for (int i = 0; i < Shape::kOfLane; ++i) {
    if (i == 0 || count > kWarpSize) memory.set_key(lane + i * kWarpSize, candidates.keys[i]);
  }
  __syncwarp();
  return true;
}

// How many of the first `count` keys, 1 or more, which kNoCandidate follows up to a multiple of 16, are before this
// one. All of them are before kNoCandidate.
template <class Shape>
__device__ __forceinline__ int count_before(float key, unsigned count, const WarpMemory<Shape>& memory) {
  const float negative = fmul(key, -kKeyFactor);
  float before[4] = {};
  unsigned first = 0;
#pragma unroll 1
  do {
#pragma unroll
    for (int i = 0; i < 16; i += 4) {
      const float4 some = memory.four_keys(first + i);
      before[0] = fadd(before[0], is_before(some.x, negative));
      before[1] = fadd(before[1], is_before(some.y, negative));
      before[2] = fadd(before[2], is_before(some.z, negative));
      before[3] = fadd(before[3], is_before(some.w, negative));
    }
    first += 16;
  } while (first < count);
  return small_integer(fadd(fadd(before[0], before[1]), fadd(before[2], before[3])));
}

// The order of the candidates, and the columns.
template <class Shape>
__device__ __forceinline__ void write_best(const RowsCall& call, unsigned lane, int row, unsigned count,
                                           const Candidates<Shape>& candidates, const WarpMemory<Shape>& memory) {
  constexpr int kOfLane = Shape::kOfLane;
  const int k = call.k;
  int places[kOfLane];
  unsigned taken = 0, chosen = 0;
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    places[i] = kNoPlace;
    if (i > 0 && count <= kWarpSize) continue;
    places[i] = count_before(candidates.keys[i], count, memory);
    if (places[i] < k) taken |= 1u << places[i], ++chosen;
  }
  // Of k lanes that have places below k, so many powers of two have the sum 2^k - 1 only if no two are equal. Else some
  // keys are equal, of which those of lower ids come first.
  bool is_told;
  if constexpr (kOfLane == 1) {
    is_told = __reduce_add_sync(kAllLanes, taken | chosen << 16) == ((1u << k) - 1u | static_cast<unsigned>(k) << 16);
  } else {
    is_told = __popc(__reduce_or_sync(kAllLanes, taken)) == k &&
              __reduce_add_sync(kAllLanes, chosen) == static_cast<unsigned>(k);
  }
  if (!is_told) {
    if (count <= kWarpSize) {
      unsigned equal = __match_any_sync(kAllLanes, to_bits(candidates.keys[0])) & ~(1u << lane);
#pragma unroll 1
      for (; equal != 0 && places[0] < k; equal &= equal - 1u) {
        if (memory.id(__ffs(static_cast<int>(equal)) - 1) < candidates.ids[0]) ++places[0];
      }
    } else {
#pragma unroll
      for (int i = 0; i < kOfLane; ++i) {
#pragma unroll 1
        for (unsigned other = 0; other < count && places[i] < k; ++other) {
          if (memory.key(other) == candidates.keys[i] && memory.id(other) < candidates.ids[i]) ++places[i];
        }
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    if (places[i] < k) memory.set_score(places[i], candidates.scores[i]);
  }
  __syncwarp();

  float sum = 0.0f;  // changes no bit, as no score is -0
#pragma unroll
  for (int i = 0; i < Shape::kChosen; i += 4) {
    const float4 some = memory.four_scores(i);
    sum = fadd(fadd(fadd(fadd(sum, some.x), some.y), some.z), some.w);
  }
#pragma unroll
  for (int i = 0; i < kOfLane; ++i) {
    if (places[i] < k)
      write_scored(call, row, places[i], static_cast<std::int32_t>(candidates.ids[i]), candidates.scores[i], sum);
  }
}

// The columns of a row by its logits, and the biases of its experts, +0 without one, -inf behind the last. False: the
// row is left.
template <Lean kLean, class Shape>
__device__ __forceinline__ bool select_by_estimates(const RowsCall& call, const float* bias, unsigned lane, int row,
                                                    const float* logits, const float (&addends)[Shape::kKeys],
                                                    float (&keys)[Shape::kKeys], const WarpMemory<Shape>& memory) {
  constexpr int kKeys = Shape::kKeys;
  Softmax softmax{};
  bool is_told = true;
  if constexpr (kLean == Lean::kSoftmax) {
    is_told = take_softmax(keys, softmax);
    if (bias != nullptr) {
#pragma unroll
      for (int i = 0; i < kKeys; ++i) keys[i] = fadd(keys[i], addends[i]);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kKeys; ++i) keys[i] = estimate_key<kLean>(keys[i], addends[i]);
  }
  float largest;
  GroupOfLane group{0.0f, 0.0f, true, false};
  bool is_known = true;  // which groups are kept
  if constexpr (kLean == Lean::kSigmoidGroups) {
    is_told = estimate_groups(call.groups, keys, largest, group);
    is_known = !__any_sync(kAllLanes, group.is_near);
  } else {
    largest = -infinity();
#pragma unroll
    for (int i = 0; i < kKeys; ++i) largest = fmaxf(largest, keys[i]);
  }
  if (!is_told) return false;
  Candidates<Shape> candidates;
  unsigned count;
#pragma unroll 1
  for (;; is_known = true) {
    float threshold;
    if (is_known) {
      const float bound = bound_of_best < Shape::kChosen <= 8 ? 8 : 16 > (largest, !group.is_kept, call.k);
      threshold = fsub(bound, key_margin<kLean>(bound));
      if (!(magnitude(bound) < kMaxPlainKey)) return false;
      if constexpr (kLean == Lean::kSigmoidGroups) {
        // A key of +0 of what is masked must be below those of the k best.
        if (call.groups.zero_mask && !(threshold > 0.0f)) return false;
        if (!group.is_kept) threshold = infinity();
      }
    } else {
      threshold = group.is_near ? fsub(group.last_member, key_margin<kLean>(group.last_member)) : infinity();
    }
    count = list_candidates<kLean>(keys, threshold, lane, memory);
    if (count > (is_known ? Shape::kCandidates : kWarpSize)) return false;
    if (!score_candidates<kLean>(call, bias, lane, logits, count, softmax, memory, candidates)) return false;
    if (is_known) break;
    if constexpr (kLean == Lean::kSigmoidGroups) {
      choose_near_groups(call.groups, candidates.keys[0], candidates.ids[0] / kKeys, lane, group);
      if (lane == 0) memory.clear_count();
      __syncwarp();
    }
  }
  write_best(call, lane, row, count, candidates, memory);
  return true;
}

// Blocks of a multiprocessor: as many as may be there, unless that leaves a lane too few registers for its keys.
template <Lean kLean, class Shape>
inline constexpr int kBlocksAtOnce = Shape::kKeys <= 9                         ? 16
                                     : Shape::kKeys <= 12                      ? 12
                                     : Shape::kKeys <= 16                      ? 10
                                     : Shape::kWhole&& kLean != Lean::kSoftmax ? 6
                                                                               : 4;

template <Lean kLean, class Shape>
__global__ void __launch_bounds__(kWarps* kWarpSize, kBlocksAtOnce<kLean, Shape>)
    row_select_kernel(const __grid_constant__ RowsCall call, const __grid_constant__ RouterView router,
                      const __grid_constant__ CallView full_call) {
  constexpr int kKeys = Shape::kKeys;
  using Order = KeyOrder<kLean, kKeys>;
  __shared__ alignas(16) unsigned char memories[kWarps * WarpMemory<Shape>::kBytes];
  // By shuffles: the compiler asks for the thread again where it uses it, which takes time there, and does not know a
  // warp's number to be the same for all lanes.
  const unsigned warp = __shfl_sync(kAllLanes, threadIdx.x / kWarpSize, 0);
  const unsigned lane = __shfl_sync(kAllLanes, threadIdx.x % kWarpSize, static_cast<int>(threadIdx.x % kWarpSize));
  WarpMemory<Shape> memory{shared_address(memories) + warp * WarpMemory<Shape>::kBytes};
  keep_in_register(memory.address);
  let_next_kernel_start();
  const int row = static_cast<int>(blockIdx.x * kWarps + warp);
  const float* bias = call.bias;
  const auto is_expert = [&](int i) {
    return Shape::kWhole || Order::expert(i, lane) < static_cast<unsigned>(call.experts);
  };
  float addends[kKeys];
  const auto load_addends = [&] {  // written at creation
    if (bias != nullptr) {
      load_keys<kLean, Shape::kWhole>(bias, lane, call.experts, -infinity(), addends);
    } else {
#pragma unroll
      for (int i = 0; i < kKeys; ++i) addends[i] = is_expert(i) ? 0.0f : -infinity();
    }
  };
  load_addends();
  if (lane < Shape::kChosen) memory.set_score(lane, 0.0f);
  if (lane == 0) memory.clear_count();
  __syncwarp();
  wait_for_previous_kernel();

  if (row >= call.num_tokens) return;
  bool has_answer = true;
  if (call.is_rare) {
    const bool is_padding = call.num_valid_rows != nullptr && row >= *call.num_valid_rows;
    has_answer = !is_padding;
    if (has_answer && call.row_class != nullptr && bias != nullptr) {
      const std::int32_t row_class = call.row_class[row];
      has_answer = row_class >= 0 && row_class < call.bias_variants;
      if (has_answer) bias += row_class * call.experts;
      load_addends();
    }
    if (!has_answer && lane < static_cast<unsigned>(call.k))
      write_rare_column(call.rule.rare, column_of(call, row, static_cast<int>(lane)), -1, 0.0f);
    if (is_padding) return;
  }
  const float* logits = row_of(call.logits, row, call.logits_stride);
  float keys[kKeys];
  load_keys<kLean, Shape::kWhole>(logits, lane, call.experts, kLean == Lean::kSoftmax ? -infinity() : 0.0f, keys);
  if (kLean == Lean::kSoftmax && call.round_logits) round_all_to_bf16(keys);
  if (call.is_rare) {
    if (kLean != Lean::kSoftmax && call.round_logits) round_all_to_bf16(keys);
    if (call.router_logits != nullptr) {
      float* out = row_of(call.router_logits, row, call.router_logits_stride);
#pragma unroll
      for (int i = 0; i < kKeys; ++i) {
        if (is_expert(i)) out[Order::expert(i, lane)] = canonical(keys[i]);
      }
    }
    if (!has_answer) return;
  }
  if (!select_by_estimates<kLean>(call, bias, lane, row, logits, addends, keys, memory))
    select_row_by_rounds<kLean, kKeys>(router, full_call, row, bias);
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
  constexpr std::size_t kStaticBytes = kWarps * WarpMemory<Shape>::kBytes;
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
    if (whole && router.top_k <= 8) {  // of more no published router has so few experts
      if (keys == 4) return launch_shape<kLean, RowShape<4, 8, true>>(router, call, stream);
      if (keys == 8) return launch_shape<kLean, RowShape<8, 8, true>>(router, call, stream);
      if (keys == 9) return launch_shape<kLean, RowShape<9, 8, true>>(router, call, stream);
      if (keys == 12) return launch_shape<kLean, RowShape<12, 8, true>>(router, call, stream);
    }
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
