// The row that the gate reads: normalised and scaled where the spec asks for it, padded and aligned.
#include "kernels/cuda/elementwise.cuh"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/pdl.h"
#include "kernels/select/threads.cuh"

namespace samebits::cuda {
namespace {

constexpr int kPrepareThreads = 256;
constexpr std::int64_t kMaxBlocks = std::int64_t{1} << 20;  // a block takes every kMaxBlocks-th row

// 1 / sqrt(mean of squares + eps), the squares added in the order of sum32. By one warp.
__device__ float inverse_rms(const RouterView& router, const std::uint16_t* row) {
  const int lane = Warp().rank(), hidden_size = router.hidden_size;
  float sum = 0.0f;  // a square is never -0, so +0 may come first
#pragma unroll 8
  for (std::int64_t i = lane; i < hidden_size; i += kWarpSize) {
    const float x = bf16_to_float(row[i]);
    sum = fadd(sum, fmul(x, x));
  }
  const float mean = fdiv(add_lanes(sum), __int2float_rn(hidden_size));
  return rsqrt_of(fadd(mean, router.spec.input_norm_eps));
}

// A factor of 1 changes no bit of a number, so one expression serves every spec.
__device__ void prepare_row(const RouterView& router, const std::uint16_t* row, float inverse,
                            std::uint16_t* prepared) {
  for (std::int64_t i = threadIdx.x; i < router.padded_hidden_size; i += kPrepareThreads) {
    std::uint16_t out = 0;
    if (i < router.hidden_size) {
      float x = fmul(bf16_to_float(row[i]), inverse);
      if (router.input_scale_vector != nullptr) x = fmul(x, router.input_scale_vector[i]);
      out = float_to_bf16(fmul(x, router.input_scale));
    }
    prepared[i] = out;
  }
}

// Padding rows become +0, so that nothing depends on what they held.
__global__ void __launch_bounds__(kPrepareThreads)
    prepare_kernel(const __grid_constant__ RouterView router, const __grid_constant__ CallView call,
                   const std::uint16_t* hidden_states, std::int64_t hidden_stride, std::uint16_t* prepared) {
  __shared__ float shared_inverse;
  wait_for_previous_kernel();
  const std::int64_t num_valid_rows =
      call.num_valid_rows == nullptr ? call.num_tokens : clamp_rows(*call.num_valid_rows, call.num_tokens);
  for (std::int64_t row = blockIdx.x; row < call.num_tokens; row += gridDim.x) {
    const std::uint16_t* from = hidden_states + row * hidden_stride;
    std::uint16_t* to = prepared + row * router.padded_hidden_size;
    if (row >= num_valid_rows) {
      for (std::int64_t i = threadIdx.x; i < router.padded_hidden_size; i += kPrepareThreads) to[i] = 0;
      continue;
    }
    float inverse = 1.0f;
    if (router.spec.input_norm != SAMEBITS_INPUT_NORM_NONE) {
      if (threadIdx.x < kWarpSize) {
        inverse = inverse_rms(router, from);
        if (threadIdx.x == 0) shared_inverse = inverse;
      }
      __syncthreads();
      inverse = shared_inverse;
      __syncthreads();  // before the next row writes it
    }
    prepare_row(router, from, inverse, to);
  }
}

}  // namespace

cudaError_t launch_prepare(const RouterView& router, const CallView& call, const std::uint16_t* hidden_states,
                           std::int64_t hidden_stride, std::uint16_t* prepared, cudaStream_t stream) {
  if (call.num_tokens == 0) return cudaSuccess;
  const auto blocks = static_cast<unsigned>(call.num_tokens < kMaxBlocks ? call.num_tokens : kMaxBlocks);
  return launch_pdl(prepare_kernel, blocks, kPrepareThreads, 0, stream, router, call, hidden_states, hidden_stride,
                    prepared);
}

}  // namespace samebits::cuda
