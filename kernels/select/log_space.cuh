// Weights that are renormalised as log-sigmoids.
#pragma once

#include "kernels/cuda/elementwise.cuh"
#include "kernels/select/row.cuh"

namespace samebits::cuda {

// log sigmoid(z) = min(z, 0) - log1p(exp(-|z|)).
__device__ inline float log_sigmoid(float z) {
  return fsub(z < 0.0f ? z : 0.0f, log1p_of(exp_of(-magnitude(z))));
}

// weights[0 .. n) of chosen_logits: exp(l - log(sum of exp(l))) * scale with l the log-sigmoids below their maximum; +0
// for a NaN logit. values is scratch. False: no logit is above -inf, and all weights are +0. By one warp.
__device__ inline bool log_space_weights(int n, float scale, const RowMemory& memory) {
  const int lane = Warp().rank();
  float* const logs = memory.weights;
  for (int c = lane; c < n; c += kWarpSize) logs[c] = log_sigmoid(memory.chosen_logits[c]);
  __syncwarp();
  const float largest = largest_of(logs, n);
  __syncwarp();
  const bool any = largest != -infinity();
  for (int c = lane; c < n; c += kWarpSize) {
    logs[c] = any ? fsub(logs[c], largest) : 0.0f;
    memory.values[c] = is_nan(logs[c]) ? 0.0f : exp_of(logs[c]);
  }
  __syncwarp();
  if (!any) return false;
  const float log_sum = log_of(sum32(memory.values, n));
  for (int c = lane; c < n; c += kWarpSize) {
    memory.weights[c] = is_nan(logs[c]) ? 0.0f : fmul(exp_of(fsub(logs[c], log_sum)), scale);
  }
  return true;
}

}  // namespace samebits::cuda
