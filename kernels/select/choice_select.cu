// The selection of a row by all warps of a block (block_choice.cuh), for few rows of the routers that it serves: as
// little code, and as few parameters in as few lines, as such a row needs. A row with odd keys goes the way of
// lean.cuh.
#include <algorithm>

#include "kernels/cuda/pdl.h"
#include "kernels/select/choice_columns.cuh"
#include "kernels/select/choice_select.h"
#include "kernels/select/copy_bias.cuh"
#include "kernels/select/fold_finish.cuh"
#include "kernels/select/lean.cuh"

namespace samebits::cuda {
namespace {

constexpr int kMostSums = 32;  // of H up to 8192; the commonest numbers have kernels of their own
constexpr int kMinWarps = 4;   // that clear_choice needs

// What the kernel reads of router and call, in the order of its use.
struct ChoiceCall {
  const float* bias;  // null: none
  ChoiceSizes sizes;
  bool is_rare;       // some rows may have no answer, or there are several biases, or logits are wanted or rounded
  const float* sums;  // or given logits
  std::int64_t row_sums;
  std::int32_t num_sums, sum_stride;
  const std::int32_t* num_valid_rows;
  std::int32_t num_tokens, bias_variants;
  const std::int32_t* row_class;
  float* logits;
  std::int64_t logits_stride;
  bool round_logits;
  void *ids, *weights;
  std::int64_t ids_stride, weights_stride;
  std::int32_t* slot_ids;
  ColumnRule rule;
};

__device__ __forceinline__ Column column_of(const ChoiceCall& call, std::int64_t row, int column) {
  const unsigned rare = call.rule.rare;
  return {static_cast<unsigned char*>(call.ids) + (row * call.ids_stride + column) * ((rare & kWideIds) != 0 ? 8 : 4),
          static_cast<unsigned char*>(call.weights) +
              (row * call.weights_stride + column) * ((rare & kNarrowWeights) != 0 ? 2 : 4),
          call.slot_ids + (row * call.sizes.k + column)};
}

// The sums of an expert, left to right. All are loaded at once, and no addition comes before all are on their way.
// kStride: where it is known, as is their number then, an address takes no instruction. Else those behind the last are
// loaded as that one, as a load that depends on their number would wait for others. A given logit is one, and keeps the
// sign of a zero.
template <int kSums, int kStride>
__device__ __forceinline__ float fold(const float* sums, int num_sums, int stride) {
  if (kStride == 0 && num_sums == 1) {
    const float sum = __ldcg(sums);
    let_next_kernel_start();
    return canonical(sum);
  }
  float some[kSums];
#pragma unroll
  for (int i = 0; i < kSums; ++i) some[i] = __ldcg(sums + (kStride > 0 ? i * kStride : min(i, num_sums - 1) * stride));
  __syncwarp();
  let_next_kernel_start();  // all blocks of this one have started, so it takes no place from them
  float sum = canonical(some[0]);
#pragma unroll
  for (int i = 1; i < kSums; ++i) {
    if (kStride > 0 || i < num_sums) sum = fadd(sum, some[i]);
  }
  return sum;
}

// The logit is this thread's.
template <Lean kLean>
__device__ __noinline__ void select_lean(const RouterView& router, const CallView& call, std::int64_t row, float logit,
                                         bool has_answer, const float* bias, unsigned char* shared) {
  const Block block;
  const LeanMemory memory = lean_memory(router.gate_rows, shared);
  if (block.rank() < router.gate_rows) take_logit<kLean>(memory, bias, block.rank(), logit);
  block.sync();
  if (has_answer) {
    lean_select<kLean>(block, router, call, row, bias, memory);
  } else if (block.warp() == 0) {
    write_no_experts(router, call, row);
  }
}

// A block a row.
template <Lean kLean, int kSums, int kWarps, int kStride>
__global__ void __launch_bounds__(kWarps* kWarpSize)
    choice_select_kernel(const __grid_constant__ ChoiceCall call, const __grid_constant__ RouterView router,
                         const __grid_constant__ CallView full_call) {
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ BlockChoice choice;
  // What the row needs later: the compiler would fetch it only there, from memory that is far.
  __shared__ ColumnRule rule;
  __shared__ Column columns[kMostChosen];
  __shared__ float biases[kWarps * kWarpSize];
  const std::int64_t row = blockIdx.x;
  const ChoiceThread thread = choice_thread(call.sizes);
  const int expert = min(thread.rank, thread.experts - 1);  // threads behind the last do as that one does
  if (call.bias != nullptr) {
    __pipeline_memcpy_async(biases + thread.rank, call.bias + expert, sizeof(float));  // written at creation
  } else {
    biases[thread.rank] = 0.0f;
  }
  clear_choice(thread, choice);
  if (thread.rank == 0) rule = call.rule;
  if (thread.rank < thread.k) columns[thread.rank] = column_of(call, row, thread.rank);
  const float* sums = formed_here(call.sums + row * call.row_sums + expert);
  const bool is_rare = call.is_rare;
  __syncthreads();
  wait_for_previous_kernel();
  bool has_answer = true;
  const float* bias_row = call.bias;
  if (__builtin_expect(is_rare, 0)) {
    if (call.num_valid_rows != nullptr && row >= clamp_rows(*call.num_valid_rows, call.num_tokens)) {
      wait_for_copies();
      if (thread.rank < thread.k) write_rare_column(rule.rare, columns[thread.rank], -1, 0.0f);
      return;
    }
    if (call.bias != nullptr && call.row_class != nullptr) {
      const std::int32_t row_class = call.row_class[row];
      has_answer = row_class >= 0 && row_class < call.bias_variants;
      if (has_answer) bias_row += row_class * thread.experts;
    }
  }
  float logit = fold<kSums, kStride>(sums, call.num_sums, call.sum_stride);
  wait_for_copies();
  float bias = biases[thread.rank];
  if (__builtin_expect(is_rare, 0)) {
    if (call.bias_variants > 1) bias = __ldg(bias_row + expert);
    if (call.round_logits) logit = round_to_bf16(logit);
    if (call.logits != nullptr) call.logits[row * call.logits_stride + expert] = logit;
  }
  if (!choose_by_block<kLean, kWarps>(thread, call.sizes, logit, bias, has_answer, choice)) {
    select_lean<kLean>(router, full_call, row, logit, has_answer, bias_row, shared);
  } else if (thread.rank < thread.k) {
    write_chosen(thread.rank, columns[thread.rank], rule, choice);
  }
}

using Kernel = void (*)(ChoiceCall, RouterView, CallView);
// Those of common routers are for as many sums and warps, and some for the stride of sums; one serves all others.
template <Lean kLean>
Kernel kernel_of(int num_sums, int warps, int stride) {
  const auto is_of = [&](int sums, int known_stride) { return num_sums == sums && stride == known_stride; };
  if constexpr (kLean == Lean::kSigmoid) {
    if (is_of(16, 288)) return choice_select_kernel<kLean, 16, 9, 288>;
  } else if constexpr (kLean == Lean::kSigmoidGroups) {
    if (is_of(28, 256)) return choice_select_kernel<kLean, 28, 8, 256>;
  } else if constexpr (kLean == Lean::kSqrtSoftplus) {
    if (is_of(20, 384)) return choice_select_kernel<kLean, 20, 12, 384>;
  } else if constexpr (kLean == Lean::kSoftmax) {
    if (is_of(8, 128)) return choice_select_kernel<kLean, 8, 4, 128>;
  }
  if (warps <= 8) {
    if (num_sums <= 16) return choice_select_kernel<kLean, 16, 8, 0>;
    if (num_sums <= 28) return choice_select_kernel<kLean, 28, 8, 0>;
  }
  if constexpr (kLean != Lean::kSigmoidGroups) {
    if (warps > 8 && warps <= 12) {
      if (num_sums <= 16) return choice_select_kernel<kLean, 16, 12, 0>;
      if (num_sums <= 28) return choice_select_kernel<kLean, 28, 12, 0>;
    }
  }
  return choice_select_kernel<kLean, kMostSums, kMostChoiceWarps, 0>;
}
Kernel kernel_of(Lean lean, int num_sums, int warps, int stride) {
  switch (lean) {
    case Lean::kSigmoid:
      return kernel_of<Lean::kSigmoid>(num_sums, warps, stride);
    case Lean::kSigmoidGroups:
      return kernel_of<Lean::kSigmoidGroups>(num_sums, warps, stride);
    case Lean::kSqrtSoftplus:
      return kernel_of<Lean::kSqrtSoftplus>(num_sums, warps, stride);
    case Lean::kSoftmax:
      return kernel_of<Lean::kSoftmax>(num_sums, warps, stride);
    case Lean::kNo:
      break;
  }
  return nullptr;
}

ChoiceCall choice_call(const RouterView& router, const CallView& call) {
  const samebits_router_spec& spec = router.spec;
  const bool given = call.given_logits != nullptr;
  ChoiceCall choice{};
  choice.bias = router.selection_bias;
  choice.sizes = {router.gate_rows, router.top_k, spec.n_group, spec.topk_group};
  choice.sums = given ? call.given_logits : call.sums;
  choice.row_sums = given ? call.given_logits_stride : std::int64_t{call.num_sums} * router.padded_gate_rows;
  choice.num_sums = given ? 1 : call.num_sums;
  choice.sum_stride = router.padded_gate_rows;
  choice.num_valid_rows = call.num_valid_rows;
  choice.num_tokens = static_cast<std::int32_t>(call.num_tokens);
  choice.bias_variants = router.selection_bias == nullptr ? 0 : spec.num_bias_variants;
  choice.row_class = call.row_class;
  choice.logits = call.router_logits;
  choice.logits_stride = call.router_logits_stride;
  choice.round_logits = !given && spec.logits_dtype == SAMEBITS_BF16;
  choice.ids = call.topk_ids;
  choice.weights = call.topk_weights;
  choice.ids_stride = call.ids_stride;
  choice.weights_stride = call.weights_stride;
  choice.slot_ids = call.slot_ids;
  choice.rule = column_rule(router, call);
  choice.is_rare = call.num_valid_rows != nullptr || call.router_logits != nullptr || choice.bias_variants > 1 ||
                   (call.row_class != nullptr && choice.bias_variants > 0) || choice.round_logits;
  return choice;
}

}  // namespace

bool can_choice_select(const RouterView& router, const CallView& call) {
  return can_choose_by_block(router) && (call.given_logits != nullptr || call.num_sums <= kMostSums);
}

cudaError_t launch_choice_select(const RouterView& router, const CallView& call, std::size_t shared_bytes,
                                 cudaStream_t stream) {
  const int warps = std::max(static_cast<int>(ceil_div(router.gate_rows, kWarpSize)), kMinWarps);
  const Kernel kernel =
      kernel_of(lean_of(router), call.given_logits != nullptr ? 1 : call.num_sums, warps, router.padded_gate_rows);
  // The same for all calls, which may be on several threads.
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kMostSelectBytes));
  if (status != cudaSuccess) return status;
  return launch_pdl(kernel, dim3(static_cast<unsigned>(call.num_tokens)),
                    dim3(static_cast<unsigned>(warps * kWarpSize)), shared_bytes, stream, choice_call(router, call),
                    router, call);
}

}  // namespace samebits::cuda
