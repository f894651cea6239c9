// The selection of routers without rare features: one block a row where rows are few and their sums many, else one warp
// a row.
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pdl.h"
#include "kernels/logits/rows.cuh"
#include "kernels/select/copy_bias.cuh"
#include "kernels/select/fold_finish.cuh"
#include "kernels/select/lean.cuh"

namespace samebits::cuda {
namespace {

constexpr int kRowsOfBlock = 4;  // where a warp has a row
static_assert(kRowsOfBlock * lean_bytes(kLeanExperts) <= 48 << 10, "more than a kernel may have without asking");
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

// A warp a row.
template <Lean kLean>
__global__ void __launch_bounds__(kRowsOfBlock* kWarpSize)
    lean_select_rows_kernel(const __grid_constant__ RouterView router, const __grid_constant__ CallView call) {
  extern __shared__ __align__(16) unsigned char shared[];
  const Warp warp;
  const int index = static_cast<int>(threadIdx.x) / kWarpSize;
  const LeanMemory memory = lean_memory(router.gate_rows, shared + index * lean_bytes(router.gate_rows));
  let_next_kernel_start();
  wait_for_previous_kernel();
  const std::int64_t num_valid_rows = valid_rows(call);
  for (std::int64_t row = std::int64_t{blockIdx.x} * kRowsOfBlock + index; row < call.num_tokens;
       row += std::int64_t{gridDim.x} * kRowsOfBlock) {
    const LeanBias bias = lean_bias(router, call, row);
    if (row < num_valid_rows) take_row<kLean>(warp, router, call, row, bias.values, memory);
    if (row < num_valid_rows && bias.has_answer) {
      lean_select<kLean>(warp, router, call, row, bias.values, memory);
    } else {
      write_no_experts(router, call, row);
    }
    warp.sync();  // before the next row takes the memory
  }
}

// Blocks of rows that start before the product has ended all go to the multiprocessors that are free first, unless no
// multiprocessor takes more than its share of them: each asks for as much shared memory as allows one or two.
constexpr std::size_t kOneOfMultiprocessor = std::size_t{116} << 10, kTwoOfMultiprocessor = std::size_t{78} << 10;
std::size_t spread_bytes(std::int64_t num_blocks, std::size_t bytes) {
  constexpr std::int64_t kMultiprocessors = 132;
  if (num_blocks > 2 * kMultiprocessors) return bytes;
  return num_blocks > kMultiprocessors ? kTwoOfMultiprocessor : kOneOfMultiprocessor;
}

template <Lean kLean>
cudaError_t launch(const RouterView& router, const CallView& call, cudaStream_t stream) {
  const auto bytes = static_cast<std::size_t>(lean_bytes(router.gate_rows));
  if (call.num_tokens <= kMostBlockRows) {
    const auto threads = static_cast<unsigned>(select_threads(router.gate_rows));
    // The same for all calls, which may be on several threads.
    const cudaError_t status = cudaFuncSetAttribute(
        lean_select_kernel<kLean>, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kOneOfMultiprocessor));
    if (status != cudaSuccess) return status;
    return launch_pdl(lean_select_kernel<kLean>, dim3(static_cast<unsigned>(call.num_tokens)), dim3(threads),
                      spread_bytes(call.num_tokens, bytes), stream, router, call);
  }
  const std::int64_t blocks = ceil_div(call.num_tokens, kRowsOfBlock);
  return launch_pdl(lean_select_rows_kernel<kLean>,
                    dim3(static_cast<unsigned>(blocks < kMaxBlocks ? blocks : kMaxBlocks)),
                    dim3(kRowsOfBlock * kWarpSize), kRowsOfBlock * bytes, stream, router, call);
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
