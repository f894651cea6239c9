#include "kernels/select/wide_select.h"

#include "kernels/cuda/pdl.h"
#include "kernels/select/choice_select.h"
#include "kernels/select/lean.cuh"
#include "kernels/select/rows_call.cuh"
#include "kernels/select/wide_choice.cuh"

namespace samebits::cuda {
namespace {

constexpr int kMostSums = 32;  // of H up to 8192

// The sums of experts, left to right. All are loaded at once, and no addition comes before all are on their way.
// kStride: where it is known, as is their number then, those of both experts are one load. Else those behind the last
// are loaded as that one, as a load that depends on their number would wait for others.
template <int kSums, int kStride>
__device__ __forceinline__ void fold(const float* sums, int num_sums, int stride, const int (&experts)[kWideKeys],
                                     float (&logits)[kWideKeys]) {
  if (kStride == 0 && num_sums == 1) {
    float some[kWideKeys];
#pragma unroll
    for (int j = 0; j < kWideKeys; ++j) some[j] = __ldcg(sums + experts[j]);
    let_next_kernel_start();
#pragma unroll
    for (int j = 0; j < kWideKeys; ++j) logits[j] = canonical(some[j]);
    return;
  }
  float some[kWideKeys][kSums];
#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    if constexpr (kStride > 0) {
      const float2 both = __ldcg(reinterpret_cast<const float2*>(sums + experts[0]) + i * (kStride / kWideKeys));
      some[0][i] = both.x, some[1][i] = both.y;
    } else {
      const int offset = min(i, num_sums - 1) * stride;
#pragma unroll
      for (int j = 0; j < kWideKeys; ++j) some[j][i] = __ldcg(sums + (offset + experts[j]));
    }
  }
  __syncwarp();
  let_next_kernel_start();  // all blocks of this one have started, so it takes no place from them
#pragma unroll
  for (int j = 0; j < kWideKeys; ++j) {
    logits[j] = canonical(some[j][0]);
#pragma unroll
    for (int i = 1; i < kSums; ++i) {
      if (kStride > 0 || i < num_sums) logits[j] = fadd(logits[j], some[j][i]);
    }
  }
}

// The logits are this thread's.
template <Lean kLean>
__device__ __noinline__ void select_lean(const RouterView& router, const CallView& call, std::int64_t row, float first,
                                         float second, bool has_answer, const float* bias, unsigned char* shared) {
  const Block block;
  const LeanMemory memory = lean_memory(router.gate_rows, shared);
  const int expert = kWideKeys * block.rank();
  if (expert < router.gate_rows) take_logit<kLean>(memory, bias, expert, first);
  if (expert + 1 < router.gate_rows) take_logit<kLean>(memory, bias, expert + 1, second);
  block.sync();
  if (has_answer) {
    lean_select<kLean>(block, router, call, row, bias, memory);
  } else if (block.warp() == 0) {
    write_no_experts(router, call, row);
  }
}

// A block a row.
template <Lean kLean, int kSums, int kStride>
__global__ void __launch_bounds__(kWideThreads, 1)
    wide_select_kernel(const __grid_constant__ RowsCall call, const __grid_constant__ RouterView router,
                       const __grid_constant__ CallView full_call) {
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ WideChoice choice;
  const int row = static_cast<int>(blockIdx.x);
  const ChoiceThread thread = choice_thread({call.experts, call.k, 0, 0});
  const int rank = thread.rank;
  int experts[kWideKeys];  // threads behind the last do as that one does
  float biases[kWideKeys] = {};
#pragma unroll
  for (int i = 0; i < kWideKeys; ++i) {
    experts[i] = kStride > 0 ? min(kWideKeys * rank, thread.experts - kWideKeys) + i
                             : min(kWideKeys * rank + i, thread.experts - 1);
    if (call.bias != nullptr) biases[i] = __ldg(call.bias + experts[i]);  // written at creation
  }
  clear_choice(thread, choice);
  const float* sums = formed_here(row_of(call.logits, row, call.logits_stride));
  const bool is_rare = call.is_rare;
  __syncthreads();
  wait_for_previous_kernel();
  bool has_answer = true;
  const float* bias_row = call.bias;
  if (__builtin_expect(is_rare, 0)) {
    if (call.num_valid_rows != nullptr && row >= *call.num_valid_rows) {
      if (rank < call.k) write_rare_column(call.rule.rare, column_of(call, row, rank), -1, 0.0f);
      return;
    }
    if (call.bias_variants > 0 && call.row_class != nullptr) {
      const std::int32_t row_class = call.row_class[row];
      has_answer = row_class >= 0 && row_class < call.bias_variants;
      if (has_answer) bias_row += row_class * thread.experts;
    }
  }
  float logits[kWideKeys];
  fold<kSums, kStride>(sums, call.num_sums, call.sum_stride, experts, logits);
  if (__builtin_expect(is_rare, 0)) {
#pragma unroll
    for (int i = 0; i < kWideKeys; ++i) {
      if (call.row_class != nullptr && call.bias_variants > 1) biases[i] = __ldg(bias_row + experts[i]);
      if (call.round_logits) logits[i] = round_to_bf16(logits[i]);
      if (call.router_logits != nullptr)
        row_of(call.router_logits, row, call.router_logits_stride)[experts[i]] = logits[i];
    }
  }
  if (!choose_wide<kLean>(thread, logits, biases, has_answer, choice)) {
    select_lean<kLean>(router, full_call, row, logits[0], logits[1], has_answer, bias_row, shared);
  } else if (rank < call.k) {
    write_chosen(rank, column_of(call, row, rank), call.rule, choice);
  }
}

// That of a published router is for its sums and their stride; one serves all others.
template <Lean kLean>
auto kernel_of(int num_sums, int stride, int experts) {
  const bool is_known = num_sums == 28 && stride == 896 && experts % kWideKeys == 0;
  return is_known ? wide_select_kernel<kLean, 28, 896> : wide_select_kernel<kLean, kMostSums, 0>;
}

}  // namespace

bool can_wide_select(const RouterView& router, const CallView& call) {
  const Lean lean = lean_of(router);
  return (lean == Lean::kSigmoid || lean == Lean::kSqrtSoftplus) && can_choose_wide(router.gate_rows, router.top_k) &&
         fits_rows_call(call) && (call.given_logits != nullptr || call.num_sums <= kMostSums);
}

cudaError_t launch_wide_select(const RouterView& router, const CallView& call, std::size_t shared_bytes,
                               cudaStream_t stream) {
  const int num_sums = call.given_logits != nullptr ? 1 : call.num_sums;
  const auto kernel = lean_of(router) == Lean::kSigmoid
                          ? kernel_of<Lean::kSigmoid>(num_sums, router.padded_gate_rows, router.gate_rows)
                          : kernel_of<Lean::kSqrtSoftplus>(num_sums, router.padded_gate_rows, router.gate_rows);
  // The same for all calls, which may be on several threads.
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMostSelectBytes));
  if (status != cudaSuccess) return status;
  return launch_pdl(kernel, dim3(static_cast<unsigned>(call.num_tokens)), dim3(kWideThreads), shared_bytes, stream,
                    rows_call(router, call), router, call);
}

}  // namespace samebits::cuda
