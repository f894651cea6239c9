// The best few of a row by all warps of a block, which have an expert a thread: what few_best.cuh does by one warp.
//
// Each warp ranks its 32 keys; those of its first few are candidates, in order. Each candidate then counts the
// candidates of all warps before it. A comparison is the saturated difference of two keys, times 2^120: 0 or 1 for the
// keys of is_plain, by the floating-point pipe, which is twice as fast as integers. Rows with other keys are left to
// lean.cuh.
#pragma once

#include "kernels/cuda/elementwise.cuh"
#include "kernels/select/lean.h"
#include "kernels/select/order.cuh"
#include "kernels/select/threads.cuh"

namespace samebits::cuda {

inline constexpr int kMostChosen = 8;
inline constexpr int kMostChoiceWarps = 16;  // so experts up to 512

// Sizes of the choice; of a router without groups kept_groups is not read. With groups, each is a warp's 32 experts.
struct ChoiceSizes {
  std::int32_t experts, k, groups, kept_groups;
};

// In shared memory.
struct alignas(16) BlockChoice {
  float keys[kMostChoiceWarps][kWarpSize];
  float candidates[kMostChoiceWarps][kMostChosen];  // keys, in order; kNoCandidate where a warp has fewer
  float candidate_scores[kMostChoiceWarps][kMostChosen];
  std::int32_t candidate_ids[kMostChoiceWarps]
                            [kMostChosen];  // id, and in the high half how many equal keys came before
  float scores[kMostChosen];                // of the chosen, in order; 0 from k on
  std::int32_t ids[kMostChosen];
  float of_warps[kMostChoiceWarps];  // softmax
  unsigned is_left;                  // to lean.cuh, if not 0
};

inline constexpr float kNoCandidate = -250.0f;   // below every plain key
inline constexpr float kMaxPlainKey = 200.0f;    // times 2^120 it is finite
inline constexpr float kMinPlainKey = 0x1p-93f;  // two keys that differ do so by 2^-117 or more
inline constexpr float kKeyFactor = 0x1p120f;
inline constexpr float kIntegerBase = 8388608.0f;  // 2^23: its sum with a small integer has that in its low bits

__device__ __forceinline__ bool is_plain(float key) {
  return magnitude(key) < kMaxPlainKey && magnitude(key) >= kMinPlainKey;
}
// 1 if key is before the one of which `negative` is -kKeyFactor times, else 0.
__device__ __forceinline__ float is_before(float key, float negative) {
  return __saturatef(ffma(key, kKeyFactor, negative));
}
__device__ __forceinline__ int small_integer(float x) {
  return static_cast<int>(to_bits(fadd(x, kIntegerBase)) & 0xffffu);
}
// The next key down, of a plain key.
__device__ __forceinline__ float next_below(float key) {
  return from_bits(key > 0.0f ? to_bits(key) - 1 : to_bits(key) + 1);
}

// This thread, and what it reads of the sizes.
struct ChoiceThread {
  std::int32_t rank, experts, k;
  __device__ int lane() const { return rank & (kWarpSize - 1); }
  __device__ int warp() const { return rank / kWarpSize; }
  __device__ bool is_expert() const { return rank < experts; }
};
// By whole warps. The compiler fetches parameters and special registers again where they are used, with all the time
// that this takes there; it keeps what comes from a shuffle.
__device__ __forceinline__ ChoiceThread choice_thread(const ChoiceSizes& sizes) {
  static_assert(kMostChosen < 16 && kMostChoiceWarps * kWarpSize < 1024);
  const unsigned packed =
      __shfl_sync(kAllLanes, static_cast<unsigned>(sizes.experts) << 16 | sizes.k << 10 | threadIdx.x,
                  static_cast<int>(threadIdx.x % kWarpSize));
  return {static_cast<std::int32_t>(packed & 1023u), static_cast<std::int32_t>(packed >> 16),
          static_cast<std::int32_t>(packed >> 10 & 63u)};
}

// Once, before the choice and a barrier.
__device__ __forceinline__ void clear_choice(const ChoiceThread& thread, BlockChoice& memory) {
  if (thread.rank < kMostChoiceWarps * kMostChosen) {
    (&memory.candidates[0][0])[thread.rank] = kNoCandidate;
    (&memory.candidate_ids[0][0])[thread.rank] = 0;
  }
  if (thread.rank < kMostChosen) memory.scores[thread.rank] = 0.0f;
  if (thread.rank == 0) memory.is_left = 0;
}

// The softmax score of this thread's logit, of a row without NaN and infinities.
__device__ __forceinline__ float softmax_by_block(const ChoiceThread& thread, float logit, BlockChoice& memory) {
  const int lane = thread.lane(), warp = thread.warp(), warps = (thread.experts + kWarpSize - 1) / kWarpSize;
  const bool is_expert = thread.is_expert();
  float largest = key_of(__reduce_max_sync(kAllLanes, ordered_key(is_expert ? logit : -infinity())));
  if (lane == 0 && warp < warps) memory.of_warps[warp] = largest;
  __syncthreads();
  largest = memory.of_warps[0];
#pragma unroll 4
  for (int w = 1; w < warps; ++w) largest = memory.of_warps[w] > largest ? memory.of_warps[w] : largest;
  const float power = is_expert ? exp_of(fsub(logit, largest)) : 0.0f;
  if (warp < warps) memory.keys[warp][lane] = power;
  __syncthreads();
  float sum = memory.keys[0][lane];  // sum32 of the contract
#pragma unroll 4
  for (int w = 1; w < warps; ++w) sum = fadd(sum, memory.keys[w][lane]);
  __syncthreads();  // before the keys are written
  return fdiv(power, add_lanes(sum));
}

// This thread's key among those of its warp: writes the candidates, but where the row is left, as places may be equal
// there.
__device__ __forceinline__ void name_candidates(const ChoiceThread& thread, float score, float key, bool is_left,
                                                BlockChoice& memory) {
  const int lane = thread.lane(), warp = thread.warp();
  if (__any_sync(kAllLanes, is_left)) {
    if (lane == 0) atomicOr(&memory.is_left, 1u);
    return;
  }
  memory.keys[warp][lane] = key;
  __syncwarp();
  const float negative = fmul(key, -kKeyFactor);
  float before[4];
#pragma unroll
  for (int i = 0; i < kWarpSize / 4; ++i) {
    const float4 others = reinterpret_cast<const float4*>(memory.keys[warp])[i];
    before[0] = i == 0 ? is_before(others.x, negative) : fadd(before[0], is_before(others.x, negative));
    before[1] = i == 0 ? is_before(others.y, negative) : fadd(before[1], is_before(others.y, negative));
    before[2] = i == 0 ? is_before(others.z, negative) : fadd(before[2], is_before(others.z, negative));
    before[3] = i == 0 ? is_before(others.w, negative) : fadd(before[3], is_before(others.w, negative));
  }
  const int larger = small_integer(fadd(fadd(before[0], before[1]), fadd(before[2], before[3])));
  int place = larger;
  bool in = place < thread.k && thread.is_expert();
  // The high half counts them, the low half adds 2^place. So many powers of two have the sum of those of the places
  // 0 .. k - 1 only if no two are equal.
  const unsigned sum = __reduce_add_sync(kAllLanes, in ? 1u << place | 1u << 16 : 0u);
  if (sum != ((1u << thread.k) - 1u | static_cast<unsigned>(thread.k) << 16)) {  // equal keys: the lower id first
    place += __popc(__match_any_sync(kAllLanes, larger) & ((1u << lane) - 1u));
    in = in && place < thread.k;
  }
  if (in) {
    memory.candidates[warp][place] = key;
    memory.candidate_scores[warp][place] = score;
    memory.candidate_ids[warp][place] = thread.rank | (place - larger) << 16;
  }
}

// Whose candidates may be chosen: the groups of the largest sums of two keys. Bit g: group g. The same for all lanes.
__device__ __forceinline__ unsigned kept_groups(const ChoiceThread& thread, const ChoiceSizes& sizes,
                                                const BlockChoice& memory) {
  const int lane = thread.lane();
  float sum = -infinity();
  if (lane < sizes.groups) sum = fadd(memory.candidates[lane][0], memory.candidates[lane][1]);
  int before = 0;
  for (int first = 0; first < sizes.groups; first += 8) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float other = __shfl_sync(kAllLanes, sum, first + i);
      before += other > sum || (other == sum && first + i < lane) ? 1 : 0;
    }
  }
  return __ballot_sync(kAllLanes, lane < sizes.groups && before < sizes.kept_groups);
}

// Four threads a candidate, in the candidate's warp: writes the chosen.
template <bool kGroups, int kWarps>
__device__ __forceinline__ void choose_candidates(const ChoiceThread& thread, const ChoiceSizes& sizes,
                                                  BlockChoice& memory) {
  constexpr int kThreads = kWarpSize / kMostChosen, kOfThread = kMostChosen / kThreads;
  static_assert(kOfThread == 2);
  const int warp = thread.warp(), slot = thread.lane() / kThreads, part = thread.lane() % kThreads;
  const unsigned is_left = memory.is_left;
  const float key = memory.candidates[warp][slot];
  const std::int32_t id = memory.candidate_ids[warp][slot];
  const unsigned kept_mask = kGroups ? kept_groups(thread, sizes, memory) : ~0u;
  // Candidates of lower ids come first where they are equal.
  const float negative = fmul(key, -kKeyFactor), negative_below = fmul(next_below(key), -kKeyFactor);
  float before[kOfThread] = {};
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    const float2 others = *reinterpret_cast<const float2*>(&memory.candidates[w][kOfThread * part]);
    float bound = w < warp ? negative_below : negative;
    if (kGroups && (kept_mask >> w & 1u) == 0) bound = -from_bits(kMaxFloatBits);
    before[0] = fadd(before[0], is_before(others.x, bound));
    before[1] = fadd(before[1], is_before(others.y, bound));
  }
  float all = fadd(before[0], before[1]);
  all = fadd(all, __shfl_xor_sync(kAllLanes, all, 1));
  all = fadd(all, __shfl_xor_sync(kAllLanes, all, 2));
  const int place = small_integer(all) + (id >> 16);
  if (part == 0 && place < thread.k && is_left == 0 && (!kGroups || (kept_mask >> warp & 1u) != 0)) {
    memory.scores[place] = memory.candidate_scores[warp][slot];
    memory.ids[place] = id & 0xffff;
  }
}

// The first k experts of a row and their scores into memory.scores and memory.ids, visible to the block. Each thread
// has the logit of the expert of its rank and the selection bias of it, 0 without one. False, and nothing is chosen: a
// key is not plain, or `ready` is false for a thread of the block; the caller then takes the way of lean.cuh. kWarps:
// no fewer than have experts.
template <Lean kLean, int kWarps>
__device__ __forceinline__ bool choose_by_block(const ChoiceThread& thread, const ChoiceSizes& sizes, float logit,
                                                float bias, bool ready, BlockChoice& memory) {
  float score;
  if constexpr (kLean == Lean::kSoftmax) {
    score = softmax_by_block(thread, logit, memory);
  } else {
    score = kLean == Lean::kSqrtSoftplus ? near_sqrt_softplus_of(logit) : near_sigmoid_of(logit);
    ready = ready && is_near(logit);
  }
  const float key = thread.is_expert() ? fadd(score, bias) : kNoCandidate;
  name_candidates(thread, score, key, !ready || (thread.is_expert() && !is_plain(key)), memory);
  __syncthreads();
  if (thread.warp() * kWarpSize < thread.experts)
    choose_candidates<kLean == Lean::kSigmoidGroups, kWarps>(thread, sizes, memory);
  __syncthreads();
  return memory.is_left == 0;
}

}  // namespace samebits::cuda
