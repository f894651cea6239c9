#include <algorithm>
// The selection of routers without rare features: one block a row where rows are few and their sums many, else one warp
// a row.
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pdl.h"
#include "kernels/logits/rows.cuh"
#include "kernels/select/choice_select.h"
#include "kernels/select/copy_bias.cuh"
#include "kernels/select/fold_finish.cuh"
#include "kernels/select/lean.cuh"
#include "kernels/select/row_keys.cuh"

namespace samebits::cuda {
namespace {

constexpr int kRowsOfBlock = 4;               // where a warp has a row
constexpr std::int64_t kMostBlockRows = 256;  // rows of a call of which each gets a block
constexpr std::int64_t kMaxBlocks = std::int64_t{1} << 20;

// The scores and keys of a row, or the logits that they need first; each thread those of every team.size-th expert.
template <Lean kLean, class Team>
__device__ __forceinline__ void take_row(Team team, const RouterView& router, const CallView& call, std::int64_t row,
                                         const float* bias, const LeanMemory& memory) {
  const float* sums = call.sums + static_cast<SumOffset>(row * call.num_sums * router.padded_gate_rows);
  const float* given = call.given_logits + row * call.given_logits_stride;
  for (int e = team.rank(); e < router.gate_rows; e += team.size) {
    const float logit = call.given_logits != nullptr
                            ? canonical(given[e])
                            : lean_logit(router, fold_sums(sums + e, call.num_sums, router.padded_gate_rows));
    if (call.router_logits != nullptr) call.router_logits[row * call.router_logits_stride + e] = logit;
    take_logit<kLean>(memory, bias, e, logit);
  }
  team.sync();
}

// A block a row.
template <Lean kLean>
__global__ void __launch_bounds__(kMaxSelectThreads)
    lean_select_kernel(const __grid_constant__ RouterView router, const __grid_constant__ CallView call) {
  extern __shared__ __align__(16) unsigned char shared[];
  const Block block;
  const LeanMemory memory = lean_memory(router.gate_rows, shared);
  let_next_kernel_start();
  if (has_one_bias(router)) copy_bias(block, router, router.selection_bias, memory.bias);
  wait_for_previous_kernel();
  const std::int64_t row = blockIdx.x;
  const bool is_padding = row >= valid_rows(call);
  const LeanBias bias = lean_bias(router, call, row);
  if (!is_padding) {
    if (bias.values != nullptr && !has_one_bias(router)) copy_bias(block, router, bias.values, memory.bias);
    wait_for_copies();
    take_row<kLean>(block, router, call, row, bias.values == nullptr ? nullptr : memory.bias, memory);
  }
  if (is_padding || !bias.has_answer) {
    wait_for_copies();
    if (block.warp() == 0) write_no_experts(router, call, row);
    return;
  }
  lean_select<kLean>(block, router, call, row, bias.values == nullptr ? nullptr : memory.bias, memory);
}

// The logits of a row, written where wanted, and its biases; from whole sums or as given.
template <Lean kLean, int kKeys>
__device__ __forceinline__ void load_row(const RouterView& router, const CallView& call, std::int64_t row,
                                         const float* bias, RowKeys<kKeys>& keys) {
  const int n = router.gate_rows;
  const bool is_given = call.given_logits != nullptr;
  const float* logits = is_given ? call.given_logits + row * call.given_logits_stride
                                 : call.sums + static_cast<SumOffset>(row * router.padded_gate_rows);
  const int first = expert_of_key<kLean, kKeys>(0), step = expert_of_key<kLean, kKeys>(1) - first;
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    keys.logits[i] = first + i * step < n ? (logits + first)[i * step] : 0.0f;
    keys.biases[i] = bias != nullptr && first + i * step < n ? (bias + first)[i * step] : 0.0f;
  }
  const bool rounds = !is_given && router.spec.logits_dtype == SAMEBITS_BF16;
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    keys.logits[i] = canonical(keys.logits[i]);
    if (rounds) keys.logits[i] = round_to_bf16(keys.logits[i]);
  }
  if (call.router_logits == nullptr) return;
  float* out = call.router_logits + row * call.router_logits_stride + first;
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    if (first + i * step < n) out[i * step] = keys.logits[i];
  }
}

// softmax of score.cuh, of a row in registers.
template <int kKeys>
__device__ __forceinline__ void softmax_of_row(const float (&x)[kKeys], int n, float (&y)[kKeys]) {
  const int lane = Warp().rank();
  float largest = -infinity();
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    if (i * kWarpSize + lane < n && x[i] > largest) largest = x[i];
  }
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, largest, distance);
    largest = other > largest ? other : largest;
  }
  float lane_sum = 0.0f;
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    const bool counts = i * kWarpSize + lane < n && !is_nan(x[i]) && largest != -infinity();
    const float term = largest == infinity() ? (x[i] == infinity() ? 1.0f : 0.0f) : exp_of(fsub(x[i], largest));
    y[i] = counts ? term : 0.0f;
    lane_sum = fadd(lane_sum, y[i]);  // no term is -0, so one that does not count changes nothing
  }
  const float sum = add_lanes(lane_sum);
#pragma unroll
  for (int i = 0; i < kKeys; ++i) {
    if (is_nan(x[i])) {
      y[i] = from_bits(kNaNBits);
    } else if (largest != -infinity()) {
      y[i] = fdiv(y[i], sum);
    }
  }
}

template <Lean kLean, int kKeys>
__device__ __forceinline__ void select_row_of_warp(const RouterView& router, const CallView& call, std::int64_t row,
                                                   const LeanBias& bias, RowKeysMemory& memory) {
  const int lane = Warp().rank(), n = router.gate_rows, k = router.top_k;
  RowKeys<kKeys> keys;
  load_row<kLean>(router, call, row, bias.values, keys);
  if (!bias.has_answer) return write_no_experts(router, call, row);
  bool chosen = false;
  if constexpr (kLean == Lean::kSigmoid || kLean == Lean::kSigmoidGroups)
    chosen = choose_by_estimates<kLean>(router.spec, keys, n, k, memory);
  if (!chosen) {
    float scores[kKeys];
    OrderedKey ordered[kKeys];
    if constexpr (kLean == Lean::kSoftmax) softmax_of_row(keys.logits, n, scores);
#pragma unroll
    for (int i = 0; i < kKeys; ++i) {
      if constexpr (kLean != Lean::kSoftmax)
        scores[i] = kLean == Lean::kSqrtSoftplus ? sqrt_softplus_of(keys.logits[i]) : sigmoid_of(keys.logits[i]);
      const bool is_expert = expert_of_key<kLean, kKeys>(i) < n;
      ordered[i] = is_expert ? ordered_key(fadd(scores[i], keys.biases[i])) : kExcluded;
    }
    if constexpr (kLean == Lean::kSigmoidGroups) mask_groups_of_lanes(router.spec, ordered);
    take_best<kLean>(ordered, scores, k, memory);
  }
  lean_write(router, call, row, lane < k ? id_of(memory.first[lane]) : 0, lane < k ? memory.first_scores[lane] : 0.0f);
}

// A warp a row, with the keys of the row in its registers.
template <Lean kLean, int kKeys>
__global__ void __launch_bounds__(kRowsOfBlock* kWarpSize)
    lean_select_rows_kernel(const __grid_constant__ RouterView router, const __grid_constant__ CallView call) {
  __shared__ __align__(16) RowKeysMemory memory[kRowsOfBlock];
  const int index = static_cast<int>(threadIdx.x) / kWarpSize;
  let_next_kernel_start();
  wait_for_previous_kernel();
  const std::int64_t num_valid_rows = valid_rows(call);
  for (std::int64_t row = std::int64_t{blockIdx.x} * kRowsOfBlock + index; row < call.num_tokens;
       row += std::int64_t{gridDim.x} * kRowsOfBlock) {
    if (row < num_valid_rows) {
      select_row_of_warp<kLean, kKeys>(router, call, row, lean_bias(router, call, row), memory[index]);
    } else {
      write_no_experts(router, call, row);
    }
    __syncwarp();  // before the next row takes the memory
  }
}

// Blocks that start before the product has ended all go to the multiprocessors that are free first, unless none takes
// more than its share of them: so each block has more than a fraction of the shared memory.
constexpr std::int64_t kMultiprocessors = 132, kMostSpread = 4;
constexpr std::size_t spread_bytes(std::int64_t num_blocks) {
  const std::int64_t share = ceil_div(num_blocks, kMultiprocessors);
  return share > kMostSpread ? 0 : (std::size_t{228} << 10) / (share + 1) + (std::size_t{2} << 10);
}

// static_bytes: what the kernel has without asking; bytes: what it needs besides.
template <class Kernel>
cudaError_t launch_spread(Kernel kernel, std::int64_t num_blocks, unsigned threads, std::size_t static_bytes,
                          std::size_t bytes, const RouterView& router, const CallView& call, cudaStream_t stream) {
  // The same for all calls, which may be on several threads.
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(spread_bytes(1)));
  if (status != cudaSuccess) return status;
  const std::size_t spread = std::max(spread_bytes(num_blocks), static_bytes) - static_bytes;
  return launch_pdl(kernel, dim3(static_cast<unsigned>(num_blocks)), dim3(threads), std::max(spread, bytes), stream,
                    router, call);
}

template <Lean kLean>
cudaError_t launch_block_rows(const RouterView& router, const CallView& call, cudaStream_t stream) {
  const auto bytes = static_cast<std::size_t>(lean_bytes(router.gate_rows));
  if (can_choice_select(router, call))
    return launch_choice_select(router, call, std::max(spread_bytes(call.num_tokens), bytes), stream);
  return launch_spread(lean_select_kernel<kLean>, call.num_tokens,
                       static_cast<unsigned>(select_threads(router.gate_rows)), 0, bytes, router, call, stream);
}

template <Lean kLean, int kKeys>
cudaError_t launch_warp_rows(const RouterView& router, const CallView& call, cudaStream_t stream) {
  return launch_spread(lean_select_rows_kernel<kLean, kKeys>,
                       std::min(ceil_div(call.num_tokens, kRowsOfBlock), kMaxBlocks), kRowsOfBlock * kWarpSize,
                       sizeof(RowKeysMemory) * kRowsOfBlock, 0, router, call, stream);
}

template <Lean kLean>
cudaError_t launch(const RouterView& router, const CallView& call, cudaStream_t stream) {
  if (call.num_tokens <= kMostBlockRows || call.num_sums > 1) return launch_block_rows<kLean>(router, call, stream);
  const int keys = static_cast<int>(ceil_div(router.gate_rows, kWarpSize));
  if constexpr (kLean == Lean::kSigmoidGroups) {
    constexpr int kKeysOfGroups = 8;
    return has_groups_of_lanes(router.spec, kKeysOfGroups)
               ? launch_warp_rows<kLean, kKeysOfGroups>(router, call, stream)
               : launch_block_rows<kLean>(router, call, stream);
  }
  if (keys <= 4) return launch_warp_rows<kLean, 4>(router, call, stream);
  if (keys <= 8) return launch_warp_rows<kLean, 8>(router, call, stream);
  if (keys <= 9) return launch_warp_rows<kLean, 9>(router, call, stream);
  if (keys <= 12) return launch_warp_rows<kLean, 12>(router, call, stream);
  if (keys <= 16) return launch_warp_rows<kLean, 16>(router, call, stream);
  return launch_warp_rows<kLean, kLeanExperts / kWarpSize>(router, call, stream);
}

}  // namespace

cudaError_t launch_lean_select(const RouterView& router, const CallView& call, cudaStream_t stream) {
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
