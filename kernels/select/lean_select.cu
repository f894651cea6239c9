// The selection of routers without rare features: a block a row where rows are few or their sums many, else a warp a
// row (row_select.h).
#include <algorithm>

#include "kernels/cuda/launch.h"
#include "kernels/cuda/pdl.h"
#include "kernels/logits/rows.cuh"
#include "kernels/select/choice_select.h"
#include "kernels/select/copy_bias.cuh"
#include "kernels/select/fold_finish.cuh"
#include "kernels/select/lean.cuh"
#include "kernels/select/row_select.h"
#include "kernels/select/wide_select.h"

namespace samebits::cuda {
namespace {

constexpr std::int64_t kMostBlockRows = 256;  // rows of a call of which each gets a block

// The scores and keys of a row, or the logits that they need first; each thread those of every team.size-th expert.
template <Lean kLean, class Team>
__device__ __forceinline__ void take_row(Team team, const RouterView& router, const CallView& call, std::int64_t row,
                                         const float* bias, const LeanMemory& memory) {
  const float* sums = call.sums + row * call.num_sums * router.padded_gate_rows;
  int stride = router.padded_gate_rows;
#ifdef SAMEBITS_MUTANT_ROW_DEPENDENT_DISPATCH
  if (call.num_tokens <= 16) sums += (call.num_sums - 1) * stride, stride = -stride;
#endif
  const float* given = call.given_logits + row * call.given_logits_stride;
  for (int e = team.rank(); e < router.gate_rows; e += team.size) {
    const float logit = call.given_logits != nullptr ? canonical(given[e])
                                                     : lean_logit(router, fold_sums(sums + e, call.num_sums, stride));
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
  if (has_one_bias(router)) copy_bias(block, router, router.selection_bias, memory.bias);
  wait_for_previous_kernel();
  let_next_kernel_start();
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
  } else {
    lean_select<kLean>(block, router, call, row, bias.values == nullptr ? nullptr : memory.bias, memory);
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
template <class... Parameters, class... Arguments>
cudaError_t launch_spread(void (*kernel)(Parameters...), std::int64_t num_blocks, unsigned threads,
                          std::size_t static_bytes, std::size_t bytes, cudaStream_t stream,
                          const Arguments&... arguments) {
  // The same for all calls, which may be on several threads.
  const cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(spread_bytes(1)));
  if (status != cudaSuccess) return status;
  const std::size_t spread = std::max(spread_bytes(num_blocks), static_bytes) - static_bytes;
  return launch_pdl(kernel, dim3(static_cast<unsigned>(num_blocks)), dim3(threads), std::max(spread, bytes), stream,
                    arguments...);
}

template <Lean kLean>
cudaError_t launch_block_rows(const RouterView& router, const CallView& call, cudaStream_t stream) {
  const std::int64_t blocks = call.num_tokens;
  const auto bytes = static_cast<std::size_t>(lean_bytes(router.gate_rows));
  const std::size_t shared_bytes = std::max(spread_bytes(blocks), bytes);
  if (can_choice_select(router, call)) return launch_choice_select(router, call, shared_bytes, stream);
  if (can_wide_select(router, call)) return launch_wide_select(router, call, shared_bytes, stream);
  return launch_spread(lean_select_kernel<kLean>, blocks, static_cast<unsigned>(select_threads(router.gate_rows)), 0,
                       bytes, stream, router, call);
}

bool takes_warps(const RouterView& router, const CallView& call) {
  const bool many = call.num_tokens > kMostBlockRows || !can_choice_select(router, call);
  return many && can_row_select(router, call);
}

}  // namespace

cudaError_t launch_lean_select(const RouterView& router, const CallView& call, cudaStream_t stream) {
  if (takes_warps(router, call)) return launch_row_select(router, call, stream);
  switch (lean_of(router)) {
    case Lean::kSigmoid:
      return launch_block_rows<Lean::kSigmoid>(router, call, stream);
    case Lean::kSigmoidGroups:
      return launch_block_rows<Lean::kSigmoidGroups>(router, call, stream);
    case Lean::kSqrtSoftplus:
      return launch_block_rows<Lean::kSqrtSoftplus>(router, call, stream);
    case Lean::kSoftmax:
      return launch_block_rows<Lean::kSoftmax>(router, call, stream);
    case Lean::kNo:
      break;
  }
  return cudaErrorInvalidValue;
}

}  // namespace samebits::cuda
