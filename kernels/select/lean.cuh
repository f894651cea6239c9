// The selection of a router without rare features, from the logits of a row to its columns: the operations of
// select_row.cuh, of which it leaves out those that such a router does not have.
#pragma once

#include "kernels/cuda/elementwise.cuh"
#include "kernels/select/few_best.cuh"
#include "kernels/select/groups.cuh"
#include "kernels/select/lean.h"
#include "kernels/select/score.cuh"
#include "kernels/select/write.cuh"

namespace samebits::cuda {

// What a team holds of its row in shared memory.
struct LeanMemory {
  Rank* survivors;    // [kSurvivorRoom]
  Rank* first;        // [kFewBest]
  Rank* group_ranks;  // [kLeanGroups]
  OrderedKey* keys;   // [E]
  float* scores;      // [E]
  float* bias;        // [E]
};
SAMEBITS_HOST_DEVICE constexpr int lean_bytes(int num_experts) {
  constexpr int kRanks = kSurvivorRoom + kFewBest + kLeanGroups;
  return kRanks * static_cast<int>(sizeof(Rank)) + 3 * static_cast<int>(round_up(num_experts, 4) * sizeof(float));
}
// base: 16-byte aligned.
__device__ inline LeanMemory lean_memory(int num_experts, unsigned char* base) {
  Rank* survivors = reinterpret_cast<Rank*>(base);
  auto* keys = reinterpret_cast<OrderedKey*>(survivors + kSurvivorRoom + kFewBest + kLeanGroups);
  float* scores = reinterpret_cast<float*>(keys + (num_experts + 3) / 4 * 4);
  return {survivors, survivors + kSurvivorRoom,         survivors + kSurvivorRoom + kFewBest, keys,
          scores,    scores + (num_experts + 3) / 4 * 4};
}

// The row of the bias of a row's class, null without a bias; has_answer: the class exists.
struct LeanBias {
  bool has_answer;
  const float* values;
};
__device__ inline LeanBias lean_bias(const RouterView& router, const CallView& call, std::int64_t row) {
  if (router.selection_bias == nullptr) return {true, nullptr};
  const std::int32_t row_class = call.row_class == nullptr ? 0 : call.row_class[row];
  if (row_class < 0 || row_class >= router.spec.num_bias_variants) return {false, nullptr};
  return {true, router.selection_bias + row_class * router.ranked_experts};
}

__device__ inline float lean_logit(const RouterView& router, float sum) {
  return router.spec.logits_dtype == SAMEBITS_BF16 ? round_to_bf16(sum) : sum;
}
__device__ inline void lean_key(const LeanMemory& memory, const float* bias, int expert, float score) {
  memory.scores[expert] = score;
  memory.keys[expert] = ordered_key(bias == nullptr ? score : fadd(score, bias[expert]));
}
__device__ inline float* lean_logits(const LeanMemory& memory) {
  return reinterpret_cast<float*>(memory.keys);
}

// One expert's logit into memory: as it is for softmax, else as score and key.
template <Lean kLean>
__device__ __forceinline__ void take_logit(const LeanMemory& memory, const float* bias, int expert, float logit) {
  if (kLean == Lean::kSoftmax) {
    lean_logits(memory)[expert] = logit;
  } else {
    lean_key(memory, bias, expert, kLean == Lean::kSqrtSoftplus ? sqrt_softplus_of(logit) : sigmoid_of(logit));
  }
}

// The k values of one a lane, added in the order of lanes.
__device__ inline float fold_lanes(float value, int k) {
  float sum = __shfl_sync(kAllLanes, value, 0);
  for (int first = 0; first < k; first += 8) {
    float some[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) some[i] = __shfl_sync(kAllLanes, value, first + i);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (first + i > 0 && first + i < k) sum = fadd(sum, some[i]);
    }
  }
  return sum;
}

// The columns of a row, a lane each: expert and score of the first k lanes. By one warp.
__device__ inline void lean_write(const RouterView& router, const CallView& call, std::int64_t row, int id,
                                  float score) {
  const samebits_router_spec& spec = router.spec;
  const int lane = Warp().rank(), k = router.top_k;
  float value = lane < k && !is_nan(score) ? score : 0.0f;
  if (__any_sync(kAllLanes, value == infinity())) value = value == infinity() ? 1.0f : 0.0f;
  const float sum = fold_lanes(value, k);
  float divisor = sum;
  if (spec.eps_mode == SAMEBITS_EPS_ADD) divisor = fadd(sum, spec.eps);
  if (spec.eps_mode == SAMEBITS_EPS_CLAMP_MIN) divisor = sum > spec.eps ? sum : spec.eps;
  const float scale = spec.scale_stage == SAMEBITS_SCALE_ON_EXPERT_OUTPUT ? 1.0f : spec.routed_scaling_factor;
  float weight = divisor == 0.0f ? 0.0f : fmul(fdiv(value, divisor), scale);
  if (spec.weights_dtype == SAMEBITS_BF16) weight = round_to_bf16(weight);
  if (lane < k) write_column(router, call, row, lane, id, is_finite(weight) ? weight : 0.0f);
}

// The best k, a lane each, and their weights. By one warp.
__device__ inline void lean_columns(const RouterView& router, const CallView& call, std::int64_t row,
                                    const LeanMemory& memory) {
  const int lane = Warp().rank(), k = router.top_k;
  take_few_best(memory.keys, router.ranked_experts, k, memory.survivors, memory.first);
  const int id = lane < k ? id_of(memory.first[lane]) : 0;
  lean_write(router, call, row, id, lane < k ? memory.scores[id] : 0.0f);
}

// After take_logit for all experts and a sync of the team.
template <Lean kLean, class Team>
__device__ __forceinline__ void lean_select(Team team, const RouterView& router, const CallView& call, std::int64_t row,
                                            const float* bias, const LeanMemory& memory) {
  if (kLean == Lean::kSoftmax) {
    softmax(team, lean_logits(memory), router.ranked_experts, memory.scores);
    for (int e = team.rank(); e < router.ranked_experts; e += team.size) lean_key(memory, bias, e, memory.scores[e]);
    team.sync();
  }
  if (kLean == Lean::kSigmoidGroups) mask_groups(team, router.spec, memory.keys, memory.group_ranks);
  if (team.warp() == 0) lean_columns(router, call, row, memory);
}

}  // namespace samebits::cuda
