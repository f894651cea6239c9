#include "kernels/select/wide_select.h"

#include "kernels/cuda/pdl.h"
#include "kernels/select/choice_select.h"
#include "kernels/select/lean.cuh"
#include "kernels/select/rows_call.cuh"
#include "kernels/select/wide_choice.cuh"

namespace samebits::cuda {
namespace {

constexpr int kMostSums = 32, kCommonSums = 28;  // of H up to 8192, and 7168

// The sums of experts, left to right, all loaded at once: those behind the last as that one, as a load that depends on
// their number would wait for others, and no addition before all are on their way.
template <int kSums>
__device__ __forceinline__ void fold(const float* sums, int num_sums, int stride, const int (&experts)[kWideKeys],
                                     float (&logits)[kWideKeys]) {
  float some[kWideKeys][kSums];
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    const int offset = (kSums == kMostSums ? min(i, num_sums - 1) : i) * stride;
#pragma unroll
    for (int j = 0; j < kWideKeys; ++j) some[j][i] = __ldcg(sums + (offset + experts[j]));
  }
  __syncwarp();
#pragma unroll
  for (int j = 0; j < kWideKeys; ++j) {
    logits[j] = canonical(some[j][0]);
#pragma unroll
    for (int i = 1; i < kSums; ++i) {
      if (kSums < kMostSums || i < num_sums) logits[j] = fadd(logits[j], some[j][i]);
    }
  }
}

// The logits are this thread's.
template <Lean kLean>
__device__ __noinline__ void select_lean(const RouterView& router, const CallView& call, std::int64_t row, float first,
                                         float second, bool has_answer, const float* bias, unsigned char* shared) {
  const Block block;
  const LeanMemory memory = lean_memory(router.gate_rows, shared);
  const int other = block.rank() + kWideThreads;
  if (block.rank() < router.gate_rows) take_logit<kLean>(memory, bias, block.rank(), first);
  if (other < router.gate_rows) take_logit<kLean>(memory, bias, other, second);
  block.sync();
  if (has_answer) {
    lean_select<kLean>(block, router, call, row, bias, memory);
  } else if (block.warp() == 0) {
    write_no_experts(router, call, row);
  }
}

// A block a row.
template <Lean kLean, int kSums>
__global__ void __launch_bounds__(kWideThreads, 1)
    wide_select_kernel(const __grid_constant__ RowsCall call, const __grid_constant__ RouterView router,
                       const __grid_constant__ CallView full_call) {
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ WideChoice choice;
  let_next_kernel_start();
  const int row = static_cast<int>(blockIdx.x);
  const ChoiceThread thread = choice_thread({call.experts, call.k, 0, 0});
  const int rank = thread.rank;
  const bool one_bias = call.bias_variants <= 1 || call.row_class == nullptr;
  int experts[kWideKeys];  // threads behind the last do as that one does
  float biases[kWideKeys] = {};
#pragma unroll
  for (int i = 0; i < kWideKeys; ++i) {
    experts[i] = min(rank + i * kWideThreads, call.experts - 1);
    if (call.bias != nullptr && one_bias) biases[i] = __ldg(call.bias + experts[i]);  // written at creation
  }
  clear_choice(thread, choice);
  __syncthreads();
  wait_for_previous_kernel();
  int num_rows = call.num_tokens;
  if (call.num_valid_rows != nullptr) num_rows = min(max(*call.num_valid_rows, 0), num_rows);
  if (row < num_rows) {
    float logits[kWideKeys];
    fold<kSums>(row_of(call.logits, row, call.logits_stride), call.num_sums, call.sum_stride, experts, logits);
    bool has_answer = true;
    const float* bias_row = call.bias;
    if (call.bias_variants > 0 && call.row_class != nullptr) {
      const std::int32_t row_class = call.row_class[row];
      has_answer = row_class >= 0 && row_class < call.bias_variants;
      if (has_answer) bias_row += row_class * call.experts;
    }
#pragma unroll
    for (int i = 0; i < kWideKeys; ++i) {
      if (call.round_logits) logits[i] = round_to_bf16(logits[i]);
      if (!one_bias) biases[i] = __ldg(bias_row + experts[i]);
    }
    const bool chosen = choose_wide<kLean>(thread, logits, biases, has_answer, choice);
    if (call.router_logits != nullptr) {
      float* const out = row_of(call.router_logits, row, call.router_logits_stride);
#pragma unroll
      for (int i = 0; i < kWideKeys; ++i) out[experts[i]] = logits[i];
    }
    if (!chosen) {
      select_lean<kLean>(router, full_call, row, logits[0], logits[1], has_answer, bias_row, shared);
    } else if (rank < call.k) {
      write_chosen(rank, column_of(call, row, rank), call.rule, choice);
    }
  } else {
    if (rank < call.k) write_rare_column(call.rule.rare, column_of(call, row, rank), -1, 0.0f);
  }
}

template <Lean kLean>
auto kernel_of(int num_sums) {
  return num_sums == kCommonSums ? wide_select_kernel<kLean, kCommonSums> : wide_select_kernel<kLean, kMostSums>;
}

}  // namespace

bool can_wide_select(const RouterView& router) {
  const Lean lean = lean_of(router);
  return (lean == Lean::kSigmoid || lean == Lean::kSqrtSoftplus) && can_choose_wide(router.gate_rows, router.top_k);
}

bool can_wide_select(const RouterView& router, const CallView& call) {
  return can_wide_select(router) && fits_rows_call(call) &&
         (call.given_logits != nullptr || call.num_sums <= kMostSums);
}

cudaError_t launch_wide_select(const RouterView& router, const CallView& call, std::size_t shared_bytes,
                               cudaStream_t stream) {
  const int num_sums = call.given_logits != nullptr ? 1 : call.num_sums;
  const auto kernel = lean_of(router) == Lean::kSigmoid ? kernel_of<Lean::kSigmoid>(num_sums)
                                                        : kernel_of<Lean::kSqrtSoftplus>(num_sums);
  // The same for all calls, which may be on several threads.
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMostSelectBytes));
  if (status != cudaSuccess) return status;
  return launch_pdl(kernel, dim3(static_cast<unsigned>(call.num_tokens)), dim3(kWideThreads), shared_bytes, stream,
                    rows_call(router, call), router, call);
}

}  // namespace samebits::cuda
