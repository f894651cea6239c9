// The logits, one thread each: the readable definition of their order, for any GPU.
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pdl.h"
#include "kernels/logits/rows.cuh"
#include "kernels/logits/step.cuh"

namespace samebits::cuda {
namespace {

constexpr int kThreads = 128;

// The products of columns [0, width) of a row and one part of a gate row: steps of 16 from +0.
__device__ float chain(const std::uint16_t* row, const std::uint16_t* weights, int width) {
  std::uint32_t c = 0;
  for (int k = 0; k < width; k += kStepWidth) c = step(c, load_step_operand(row + k), load_step_operand(weights + k));
  return __uint_as_float(c);
}

// Columns of one chunk: a chain a part, added left to right.
__device__ float sum_chunk(const RouterView& router, const std::uint16_t* row, std::int64_t g, int chunk) {
  const int column = chunk * kChunkWidth, width = min(kChunkWidth, router.padded_hidden_size - column);
  const std::int64_t part_size = std::int64_t{router.padded_gate_rows} * router.padded_hidden_size;
  const std::uint16_t* weights = router.weight_rows + g * router.padded_hidden_size + column;
  float sum = chain(row + column, weights, width);
  for (int part = 1; part < router.num_parts; ++part)
    sum = __fadd_rn(sum, chain(row + column, weights + part * part_size, width));
  return sum;
}

__global__ void __launch_bounds__(kThreads)
    logits_plain_kernel(const __grid_constant__ RouterView router, const __grid_constant__ CallView call) {
  wait_for_previous_kernel();
  const std::int64_t index = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const std::int64_t t = index / router.gate_rows, g = index % router.gate_rows;
  if (t >= valid_rows(call)) return;
  const std::uint16_t* row = call.input + t * call.input_stride;
  float sum = sum_chunk(router, row, g, 0);
  for (int chunk = 1; chunk < router.num_chunks; ++chunk) sum = __fadd_rn(sum, sum_chunk(router, row, g, chunk));
  call.sums[t * router.padded_gate_rows + g] = sum;
}

}  // namespace

cudaError_t launch_logits_plain(const RouterView& router, const CallView& call, cudaStream_t stream) {
  if (call.num_tokens == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>(ceil_div(call.num_tokens * router.gate_rows, kThreads));
  return launch_pdl(logits_plain_kernel, dim3(blocks), dim3(kThreads), 0, stream, router, call);
}

}  // namespace samebits::cuda
