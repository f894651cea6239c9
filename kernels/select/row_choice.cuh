// The best k experts of a row by one warp, which has its logits in its registers.
//
// Estimates of all keys (row_estimates.cuh), or the keys themselves of softmax, give a bound that k of them reach; the
// few experts above it, less what estimates may be off by, are candidates. A lane takes one or two of them, forms their
// exact scores and keys, and counts the candidates before them. Where the estimates of two groups are too near to tell
// which is kept, the same is done first with those experts that can be among the first two of such a group. Left to
// row_keys.cuh are rows with too many candidates, and rows with values for which this does not hold.
#pragma once

#include "kernels/logits/async_copy.cuh"
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
  static constexpr unsigned kCandidates = kOfLane * kWarpSize;
  static constexpr bool kWhole = kWhole_;
};

// What a warp has in shared memory, by the address of it there: of a pointer the compiler forms the address again where
// it uses it.
template <class Shape>
struct WarpMemory {
  static constexpr int kRoom = Shape::kCandidates + (Shape::kKeys + 7) / 8 * 8;  // a lane more than are used
  static constexpr int kScores = 4 * kRoom, kIds = kScores + 4 * Shape::kChosen, kCount = kIds + 2 * kRoom;
  static constexpr int kBytes = kCount + 16;
  static_assert(kBytes % 16 == 0 && kScores % 16 == 0);
  std::uint32_t address;

  // Of candidates.
  __device__ __forceinline__ void set_key(unsigned i, float key) const { set(address + 4 * i, key); }
  __device__ __forceinline__ float key(unsigned i) const {
    float key;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(key) : "r"(address + 4 * i));
    return key;
  }
  __device__ __forceinline__ float4 four_keys(unsigned i) const { return four(address + 4 * i); }
  __device__ __forceinline__ void set_id(unsigned i, unsigned id) const {
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(address + kIds + 2 * i), "h"(static_cast<std::uint16_t>(id))
                 : "memory");
  }
  __device__ __forceinline__ unsigned id(unsigned i) const {
    std::uint16_t id;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(id) : "r"(address + kIds + 2 * i));
    return id;
  }
  __device__ __forceinline__ void clear_count() const {
    asm volatile("st.shared.u32 [%0], 0;" ::"r"(address + kCount) : "memory");
  }
  __device__ __forceinline__ unsigned count() const {
    unsigned count;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(count) : "r"(address + kCount));
    return count;
  }
  // The count before these were added.
  __device__ __forceinline__ unsigned add_to_count(unsigned more) const {
    unsigned before;
    asm volatile("atom.shared.add.u32 %0, [%1], %2;" : "=r"(before) : "r"(address + kCount), "r"(more) : "memory");
    return before;
  }
  // Of the chosen, in order; +0 behind the last.
  __device__ __forceinline__ void set_score(unsigned i, float score) const { set(address + kScores + 4 * i, score); }
  __device__ __forceinline__ float4 four_scores(unsigned i) const { return four(address + kScores + 4 * i); }

 private:
  static __device__ __forceinline__ void set(std::uint32_t address, float x) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(x) : "memory");
  }
  static __device__ __forceinline__ float4 four(std::uint32_t address) {
    float4 x;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
                 : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                 : "r"(address));
    return x;
  }
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
    if constexpr (kLean == Lean::kSigmoidGroups) return kKeys * lane + i;
    if constexpr (kQuads > 0) {
      if (kKeys % 4 == 0 || i < 4u * kQuads) return of_quad(i / 4, lane) + i % 4;
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

// Two values at a time; a NaN becomes another one.
template <int kKeys>
__device__ __forceinline__ void round_all_to_bf16(float (&x)[kKeys]) {
#pragma unroll
  for (int i = 0; i < kKeys; i += 2) {
    std::uint32_t both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(i + 1 < kKeys ? x[i + 1] : 0.0f), "f"(x[i]));
    x[i] = from_bits(both << 16);
    if (i + 1 < kKeys) x[i + 1] = from_bits(both & 0xffff0000u);
  }
}

// exp_of for x <= 0, and +0 for NaN. 2^n is a sum of exponents, 64 too large so that the product is normal, and then
// one factor, which rounds it.
__device__ __forceinline__ float exp_below_one(float x) {
  constexpr float kToInteger = 12582912.0f + 64.0f;  // 1.5 * 2^23 + 64; its low 9 bits are those of 64
  x = fmaxf(x, -105.0f);
  const float t = ffma(x, detail::kLog2E, kToInteger);
  const float n = fsub(t, kToInteger);
  const float high = detail::exp_sum(x, n).high;
  return fmul(from_bits(to_bits(high) + (to_bits(t) << 23)), 0x1p-64f);
}

// The reciprocal of d as normal_quotient has it, and n / d by it.
__device__ __forceinline__ float near_reciprocal(float d) {
  const float r = detail::approximate_reciprocal(d);
  return ffma(r, ffma(-d, r, 1.0f), r);
}
__device__ __forceinline__ float quotient_by(float reciprocal, float n, float d) {
  const float q = fmul(n, reciprocal);
  return ffma(reciprocal, ffma(-d, q, n), q);
}

// What a row's softmax needs: the largest logit and the sum.
struct Softmax {
  float largest, sum;
};
// Makes scores of logits: those of 2^-99 or more are exact, others below that. False: some are infinite, or all NaN.
template <int kKeys>
__device__ __forceinline__ bool take_softmax(float (&x)[kKeys], Softmax& softmax) {
  float largest = x[0];
#pragma unroll
  for (int i = 1; i < kKeys; ++i) largest = fmaxf(largest, x[i]);
  largest = float_of(__reduce_max_sync(kAllLanes, is_nan(largest) ? kExcluded : order_of(largest)));
  float lane_sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    x[i] = exp_below_one(fsub(x[i], largest));
    lane_sum = fadd(lane_sum, x[i]);  // no term is -0
  }
  softmax = {largest, add_lanes(lane_sum)};
  const float reciprocal = near_reciprocal(softmax.sum);
#pragma unroll
  for (int i = 0; i < kKeys; ++i) x[i] = quotient_by(reciprocal, x[i], softmax.sum);
  return is_finite(largest);
}

// NaN if one of them is.
__device__ __forceinline__ float min_or_nan(float a, float b) {
  float smaller;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(smaller) : "f"(a), "f"(b));
  return smaller;
}

// Of the group of a lane's experts, by estimates.
struct GroupOfLane {
  float score;
  float last_member;  // the last key that counts in it: the second, or the first
  // Surely kept, or perhaps: by less than estimates may be off.
  bool is_kept, is_near;
};
// False, the same for all: nothing is told, as some values are not finite.
template <int kKeys>
__device__ __forceinline__ bool estimate_groups(const GroupSizes& sizes, const float (&keys)[kKeys],
                                                float& largest_of_lane, GroupOfLane& group) {
  const int lanes = sizes.lanes_of_group;
  float first = -infinity(), second = -infinity();
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    second = fmaxf(second, min_or_nan(first, keys[i]));  // a NaN changes neither
    first = fmaxf(first, keys[i]);
  }
  largest_of_lane = first;
#pragma unroll 1
  for (int distance = 1; distance < lanes; distance *= 2) {
    const float other_first = __shfl_xor_sync(kAllLanes, first, distance);
    const float other_second = __shfl_xor_sync(kAllLanes, second, distance);
    second = fmaxf(fminf(first, other_first), fmaxf(second, other_second));
    first = fmaxf(first, other_first);
  }
  group.score = sizes.two_of_group ? fadd(first, second) : first;
  group.last_member = sizes.two_of_group ? second : first;
  const OrderedKey ordered = order_of(group.score);
  OrderedKey rest = ordered, last = kExcluded;
#pragma unroll 2
  for (int g = 0; g < sizes.kept; ++g) {
    last = __reduce_max_sync(kAllLanes, rest);
    rest = rest == last ? kExcluded : rest;
  }
  OrderedKey next = __reduce_max_sync(kAllLanes, rest);
  const int kept_lanes = sizes.kept * lanes;
  if (__popc(__ballot_sync(kAllLanes, ordered >= last)) != kept_lanes) {  // some are equal
    rest = ordered;
    int counted = 0;
#pragma unroll 1
    while (counted < kept_lanes) {
      last = __reduce_max_sync(kAllLanes, rest);
      counted += __popc(__ballot_sync(kAllLanes, rest == last));
      rest = rest == last ? kExcluded : rest;
    }
    next = counted > kept_lanes ? last : __reduce_max_sync(kAllLanes, rest);
  }
  const bool is_kept = ordered >= last;
  // NaN, as float_of(kExcluded), where all groups are kept.
  const float last_kept = float_of(last), first_masked = float_of(next);
  // The largest of all groups' first two keys; of no finite one the bits are no less than those of Inf.
  const float largest = from_bits(__reduce_max_sync(kAllLanes, to_bits(fmaxf(magnitude(first), magnitude(second)))));
  const float margin = group_margin(largest);
  group.is_near = is_kept ? fsub(group.score, first_masked) <= margin : fsub(last_kept, group.score) <= margin;
  group.is_kept = is_kept && !group.is_near;
  return is_finite(largest);
}

// The k-th largest of what the lanes have, each its largest key, or -inf; NaN where they have fewer. For kUsual in a
// row, which is faster than a loop.
template <int kUsual>
__device__ __forceinline__ float bound_of_best(float largest_of_lane, bool is_masked, int k) {
  OrderedKey rest = is_masked ? kExcluded : order_of(largest_of_lane), last = kExcluded;
  const auto next = [&] {
    last = __reduce_max_sync(kAllLanes, rest);
    rest = rest == last ? kExcluded : rest;
  };
  if (k == kUsual) {
#pragma unroll
    for (int c = 0; c < kUsual; ++c) next();
  } else {
#pragma unroll 1
    for (int c = 0; c < k; ++c) next();
  }
  return float_of(last);
}

// Writes the experts of the keys that are not below their lane's threshold, in no order, those of NaN keys, and of
// softmax the keys, visible to the warp. Returns how many there are; if that is more than Shape::kCandidates, not all
// are written.
template <Lean kLean, class Shape>
__device__ __forceinline__ unsigned list_candidates(const float (&keys)[Shape::kKeys], float threshold, unsigned lane,
                                                    const WarpMemory<Shape>& memory) {
  constexpr int kKeys = Shape::kKeys;
  unsigned wanted = 0;  // bit i: key i, by the signs of differences, of which that of a NaN is no minus
#pragma unroll
  for (int i = kKeys - 1; i >= 0; --i) wanted = __funnelshift_l(to_bits(fsub(keys[i], threshold)), wanted, 1);
  wanted ^= ~0u >> (32 - kKeys);
  if (wanted != 0) {
    unsigned at = memory.add_to_count(__popc(wanted));
    if (at < Shape::kCandidates) {
      if constexpr (kLean == Lean::kSoftmax) {
#pragma unroll
        for (int i = 0; i < kKeys; ++i) {
          if ((wanted >> i & 1u) == 0) continue;
          memory.set_key(at, keys[i]);
          memory.set_id(at++, KeyOrder<kLean, kKeys>::expert(i, lane));
        }
      } else {
#pragma unroll 1
        do {
          const unsigned i = static_cast<unsigned>(__ffs(static_cast<int>(wanted))) - 1u;
          memory.set_id(at++, KeyOrder<kLean, kKeys>::expert(i, lane));
          wanted &= wanted - 1u;
        } while (wanted != 0);
      }
    }
  }
  __syncwarp();
  return memory.count();
}

// The exact score of a candidate of this logit.
template <Lean kLean>
__device__ __forceinline__ float candidate_score(float logit, const Softmax& softmax) {
  if constexpr (kLean == Lean::kSoftmax) return fdiv(exp_of(fsub(logit, softmax.largest)), softmax.sum);
  if constexpr (kLean == Lean::kSqrtSoftplus) return near_sqrt_softplus_of(logit);
  return near_sigmoid_of(logit);
}

// Which of the groups that are near are kept, by the exact keys of those experts that can be among their first two: of
// a lane's candidate, one of lane `lane_of_key`, or kNoCandidate. Makes group.is_kept exact.
__device__ __forceinline__ void choose_near_groups(const GroupSizes& sizes, float key, unsigned lane_of_key,
                                                   unsigned lane, GroupOfLane& group) {
  const auto lanes = static_cast<unsigned>(sizes.lanes_of_group);
  const auto first_lane = [&](unsigned of) { return of & (0u - lanes); };  // of a group: its name here
  const auto lowest = [](unsigned mask) { return static_cast<unsigned>(__ffs(static_cast<int>(mask))) - 1u; };
  unsigned left = static_cast<unsigned>(sizes.kept) * lanes - __popc(__ballot_sync(kAllLanes, group.is_kept));
  OrderedKey score = kExcluded;  // of this lane's group
#pragma unroll 1
  for (unsigned near = __ballot_sync(kAllLanes, group.is_near); near != 0;) {
    const unsigned its = lowest(near);
    near &= ~0u << its << (lanes - 1u) << 1;
    OrderedKey mine = key > kNoCandidate && first_lane(lane_of_key) == its ? order_of(key) : kExcluded;
    const OrderedKey first = __reduce_max_sync(kAllLanes, mine);
    if (lane == lowest(__ballot_sync(kAllLanes, mine == first))) mine = kExcluded;
    const float second = float_of(__reduce_max_sync(kAllLanes, mine));
    const float sum = sizes.two_of_group ? fadd(float_of(first), second) : float_of(first);
    if (first_lane(lane) == its) score = order_of(sum);
  }
#pragma unroll 1
  for (; left != 0; left -= lanes) {
    const OrderedKey best = __reduce_max_sync(kAllLanes, score);
    // Of equal ones the lower group.
    if (first_lane(lane) == first_lane(lowest(__ballot_sync(kAllLanes, score == best))))
      group.is_kept = true, score = kExcluded;
  }
}

}  // namespace samebits::cuda
