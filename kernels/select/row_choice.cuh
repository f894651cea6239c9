// The best k experts of a row by one warp, which has its logits in its registers.
//
// Estimates of all keys (row_estimates.cuh) give a bound that k of them reach; the few experts above it, less what
// estimates may be off by, are candidates. A lane takes one or two of them, forms their exact scores and keys, and
// counts the candidates before them. Left to row_keys.cuh are rows with too many candidates, and rows with values for
// which this does not hold.
#pragma once

#include "kernels/select/block_choice.cuh"
#include "kernels/select/row_estimates.cuh"
#include "kernels/select/row_keys.cuh"
#include "kernels/select/rows_call.cuh"

namespace samebits::cuda {

// Sizes of a kernel: keys of a lane, and the most that are chosen. kWhole: each key is an expert's, and rows of logits
// and biases are 16-byte aligned.
template <int kKeys_, int kChosen_, bool kWhole_>
struct RowShape {
  static constexpr int kKeys = kKeys_, kChosen = kChosen_, kOfLane = kChosen <= 8 ? 1 : 2;  // candidates
  static constexpr int kCandidates = kOfLane * kWarpSize;
  static constexpr bool kWhole = kWhole_;
};

// Of a warp, in shared memory.
template <class Shape>
struct alignas(16) RowChoice {
  float keys[Shape::kCandidates];
  float scores[Shape::kChosen];  // of the chosen, in order; +0 behind the last
  std::uint16_t ids[Shape::kCandidates];
};

// Which expert a lane's key i is of: where lanes are the lanes of a sum of the contract, every 32nd; else four are
// neighbours as far as that goes, which one load brings; of groups all are neighbours. Few experts are spread over all
// lanes, as each lane gives one key for the bound.
template <Lean kLean, int kKeys>
struct KeyOrder {
  static constexpr int kQuads = kLean == Lean::kSoftmax || kKeys <= 4 ? 0 : kKeys / 4;
  static __device__ __forceinline__ unsigned of_quad(unsigned quad, unsigned lane) {
    return kLean == Lean::kSigmoidGroups ? kKeys * lane + 4 * quad : (quad * kWarpSize + lane) * 4;
  }
  static __device__ __forceinline__ unsigned expert(unsigned i, unsigned lane) {
    if constexpr (kQuads > 0) {
      if (i < 4u * kQuads) return of_quad(i / 4, lane) + i % 4;
    }
    return i * kWarpSize + lane;
  }
  static_assert(kLean != Lean::kSigmoidGroups || kKeys % 4 == 0);
};

// A lane's values of `from`, `behind` where there is no expert.
template <Lean kLean, bool kWhole, int kKeys>
__device__ __forceinline__ void load_keys(const float* from, unsigned lane, unsigned experts, float behind,
                                          float (&to)[kKeys]) {
  using Order = KeyOrder<kLean, kKeys>;
  constexpr int kInQuads = kWhole ? 4 * Order::kQuads : 0;
#pragma unroll
  for (int i = 0; i < kInQuads; i += 4) {
    const float4 some = *reinterpret_cast<const float4*>(from + Order::expert(i, lane));
    to[i] = some.x, to[i + 1] = some.y, to[i + 2] = some.z, to[i + 3] = some.w;
  }
#pragma unroll
  for (int i = kInQuads; i < kKeys; ++i) {
    const unsigned expert = Order::expert(i, lane);
    to[i] = kWhole || expert < experts ? from[expert] : behind;
  }
}

// ordered_key for what is no NaN, with -0 before +0.
__device__ __forceinline__ OrderedKey order_of(float key) {
  const std::uint32_t bits = to_bits(key);
  return bits ^ (static_cast<std::uint32_t>(static_cast<std::int32_t>(bits) >> 31) | kSignBit);
}
__device__ __forceinline__ float float_of(OrderedKey ordered) {
  return from_bits((ordered & kSignBit) != 0 ? ordered & ~kSignBit : ~ordered);
}

// What a row's softmax needs: the largest logit and the sum. Makes exponentials of the logits. False: some are
// infinite, or all are NaN.
struct Softmax {
  float largest, sum;
};
template <int kKeys>
__device__ __forceinline__ bool take_exponentials(float (&x)[kKeys], Softmax& softmax) {
  float largest = x[0];
#pragma unroll
  for (int i = 1; i < kKeys; ++i) largest = fmaxf(largest, x[i]);
  largest = float_of(__reduce_max_sync(kAllLanes, is_nan(largest) ? kExcluded : order_of(largest)));
  float lane_sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    x[i] = exp_of(fsub(x[i], largest));
    lane_sum = fadd(lane_sum, is_nan(x[i]) ? 0.0f : x[i]);  // no term is -0
  }
  softmax = {largest, add_lanes(lane_sum)};
  return is_finite(largest);
}

// NaN if one of them is.
__device__ __forceinline__ float min_or_nan(float a, float b) {
  float smaller;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(a), "f"(b));
  return smaller;
}

// Whether this lane's experts are of a group that is not kept, by estimates. False, the same for all: these do not
// tell.
template <int kKeys>
__device__ __forceinline__ bool mask_by_estimates(const GroupSizes& sizes, const float (&keys)[kKeys],
                                                  bool& is_masked) {
  const int lanes = kWarpSize / sizes.groups;
  float first = -infinity(), second = -infinity();
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    second = fmaxf(second, min_or_nan(first, keys[i]));  // a NaN changes neither
    first = fmaxf(first, keys[i]);
  }
  for (int distance = 1; distance < lanes; distance *= 2) {
    const float other_first = __shfl_xor_sync(kAllLanes, first, distance);
    const float other_second = __shfl_xor_sync(kAllLanes, second, distance);
    second = fmaxf(fminf(first, other_first), fmaxf(second, other_second));
    first = fmaxf(first, other_first);
  }
  const float score = sizes.two_of_group ? fadd(first, second) : first;
  const OrderedKey ordered = order_of(score);
  OrderedKey rest = ordered, last = kExcluded;
  for (int g = 0; g < sizes.kept; ++g) {
    last = __reduce_max_sync(kAllLanes, rest);
    rest = rest == last ? kExcluded : rest;
  }
  is_masked = ordered < last;
  const float last_kept = float_of(last), first_masked = float_of(__reduce_max_sync(kAllLanes, rest));
  // The largest of all groups' first two keys; of no finite one the bits are no less than those of Inf.
  const float largest = from_bits(__reduce_max_sync(kAllLanes, to_bits(fmaxf(magnitude(first), magnitude(second)))));
  // Where all groups are kept none is first among the masked: NaN, as float_of(kExcluded).
  return is_finite(largest) && __popc(__ballot_sync(kAllLanes, !is_masked)) == sizes.kept * lanes &&
         !(fsub(last_kept, first_masked) <= group_margin(largest));
}

// Names the candidates of a row in memory.ids, in no order, and returns how many there are: k at the least, or else 0
// where there are too many, or estimates do not tell. keys: estimates, NaN or -inf of what is no candidate.
template <Lean kLean, class Shape>
__device__ __forceinline__ int name_row_candidates(const float (&keys)[Shape::kKeys], bool is_masked, int lane, int k,
                                                   bool has_bias, bool zero_mask, RowChoice<Shape>& memory) {
  constexpr int kKeys = Shape::kKeys;
  float largest = -infinity();
#pragma unroll
  for (int i = 0; i < kKeys; ++i) largest = fmaxf(largest, keys[i]);
  OrderedKey rest = is_masked ? kExcluded : order_of(largest), last = kExcluded;
#pragma unroll 4
  for (int c = 0; c < k; ++c) {
    last = __reduce_max_sync(kAllLanes, rest);
    rest = rest == last ? kExcluded : rest;
  }
  const float bound = float_of(last), threshold = fsub(bound, key_margin<kLean>(bound, has_bias));
  // A key of +0 of what is masked must be below those of the k best.
  if (!is_finite(bound) || (zero_mask && !(threshold > 0.0f))) return 0;
  unsigned wanted = 0;
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    if (keys[i] >= threshold) wanted |= 1u << i;
  }
  if (is_masked) wanted = 0;
  int count = 0;
  for (unsigned lanes; (lanes = __ballot_sync(kAllLanes, wanted != 0)) != 0;) {
    const int place = count + __popc(lanes & ((1u << lane) - 1u));
    if (wanted != 0 && place < Shape::kCandidates) {
      const auto key = static_cast<unsigned>(__ffs(static_cast<int>(wanted))) - 1;
      memory.ids[place] = static_cast<std::uint16_t>(KeyOrder<kLean, kKeys>::expert(key, lane));
    }
    wanted &= wanted - 1;
    count += __popc(lanes);
  }
  return count >= k && count <= Shape::kCandidates ? count : 0;
}

template <Lean kLean>
__device__ __forceinline__ float candidate_score(float logit, const Softmax& softmax) {
  if constexpr (kLean == Lean::kSoftmax) return fdiv(exp_of(fsub(logit, softmax.largest)), softmax.sum);
  if constexpr (kLean == Lean::kSqrtSoftplus) return near_sqrt_softplus_of(logit);
  return near_sigmoid_of(logit);
}

}  // namespace samebits::cuda
