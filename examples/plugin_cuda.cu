// A router in device memory against the C ABI itself, in plain fp32: sigmoid scores, a selection bias, no groups.
//
// Two kernels, readable rather than fast: one thread a logit, then one thread a row. Nothing depends on the number of
// rows, so a row has the same bits in every batch. Build (or take the target samebits_example_plugin_cuda):
//   nvcc -std=c++17 -O2 -shared -Xcompiler -fPIC -I kernels/include examples/plugin_cuda.cu -o plugin_cuda.so
#include <cuda_runtime.h>
#include <samebits/samebits.h>

#include <cstdio>
#include <cstring>
#include <new>

struct samebits_router {
  samebits_router_spec spec;
  void* gate_weight;  // [E, H], device; null: only given logits will be routed
  int32_t gate_weight_dtype;
  float* bias;  // [E], device, or null
};

namespace {

constexpr int kThreads = 128;
thread_local char error_text[256] = "";

samebits_status fail(samebits_status status, const char* text) {
  std::snprintf(error_text, sizeof(error_text), "%s", text);
  return status;
}

samebits_status check(cudaError_t error, const char* call) {
  if (error == cudaSuccess) return SAMEBITS_OK;
  std::snprintf(error_text, sizeof(error_text), "%s: %s", call, cudaGetErrorString(error));
  return error == cudaErrorMemoryAllocation ? SAMEBITS_OUT_OF_MEMORY : SAMEBITS_DEVICE_ERROR;
}

__device__ float widen(uint16_t bf16) {
  return __uint_as_float(static_cast<uint32_t>(bf16) << 16);
}

__device__ bool is_padding(const int32_t* num_valid_rows, int64_t row) {
  return num_valid_rows != nullptr && row >= *num_valid_rows;
}

// logits [T, E] = hidden_states [T, H] x gate_weight [E, H]^T; h ascending in one fp32 chain.
__global__ void logits_kernel(const uint16_t* hidden_states, int64_t row_stride, int64_t num_tokens, int hidden_size,
                              const void* gate_weight, bool gate_weight_is_bf16, int num_experts,
                              const int32_t* num_valid_rows, float* logits) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const int64_t row = i / num_experts;
  if (row >= num_tokens || is_padding(num_valid_rows, row)) return;
  const int64_t first = (i % num_experts) * hidden_size;
  const uint16_t* x = hidden_states + row * row_stride;
  float sum = 0;
  for (int h = 0; h < hidden_size; ++h) {
    const float w = gate_weight_is_bf16 ? widen(static_cast<const uint16_t*>(gate_weight)[first + h])
                                        : static_cast<const float*>(gate_weight)[first + h];
    sum = __fmaf_rn(widen(x[h]), w, sum);
  }
  logits[i] = sum;
}

// k times the best of the rest (larger key, then lower id; NaN only when nothing else is left), then the weights.
// scores [T, E] is scratch.
__global__ void route_kernel(samebits_router_spec spec, const float* logits, int64_t logits_stride, const float* bias,
                             int64_t num_tokens, const int32_t* num_valid_rows, float* scores, int32_t* ids,
                             int64_t ids_stride, float* weights, int64_t weights_stride) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= num_tokens) return;
  logits += row * logits_stride;
  scores += row * spec.num_experts;
  ids += row * ids_stride;
  weights += row * weights_stride;
  if (is_padding(num_valid_rows, row)) {
    for (int c = 0; c < spec.top_k; ++c) {
      ids[c] = -1;
      weights[c] = 0;
    }
    return;
  }
  for (int e = 0; e < spec.num_experts; ++e) {
    scores[e] = static_cast<float>(1 / (1 + exp(-static_cast<double>(logits[e]))));
  }
  float sum = 0;
  for (int c = 0; c < spec.top_k; ++c) {
    int best = -1;
    float best_key = 0;
    for (int e = 0; e < spec.num_experts; ++e) {
      bool taken = false;
      for (int earlier = 0; earlier < c; ++earlier) taken = taken || ids[earlier] == e;
      if (taken) continue;
      const float key = bias == nullptr ? scores[e] : __fadd_rn(scores[e], bias[e]);
      if (best < 0 || key > best_key || (isnan(best_key) && !isnan(key))) {
        best = e;
        best_key = key;
      }
    }
    ids[c] = best;
    weights[c] = isnan(scores[best]) ? 0 : scores[best];
    sum = __fadd_rn(sum, weights[c]);
  }
  sum = spec.eps_mode == SAMEBITS_EPS_CLAMP_MIN ? fmaxf(sum, spec.eps) : __fadd_rn(sum, spec.eps);
  for (int c = 0; c < spec.top_k; ++c) {
    weights[c] = sum > 0 ? __fmul_rn(__fdiv_rn(weights[c], sum), spec.routed_scaling_factor) : 0;
  }
}

// A copy of a tensor of this call, rows packed; null when the tensor is absent.
samebits_status copy_tensor(const samebits_tensor& tensor, int64_t rows, void** copy) {
  *copy = nullptr;
  if (tensor.data == nullptr) return SAMEBITS_OK;
  const size_t element = tensor.dtype == SAMEBITS_BF16 ? 2 : 4;
  const size_t width = static_cast<size_t>(tensor.cols) * element;
  samebits_status status = check(cudaMalloc(copy, width * static_cast<size_t>(rows)), "cudaMalloc");
  if (status != SAMEBITS_OK) return status;
  return check(cudaMemcpy2D(*copy, width, tensor.data, static_cast<size_t>(tensor.row_stride) * element, width,
                            static_cast<size_t>(rows), cudaMemcpyDeviceToDevice),
               "cudaMemcpy2D of a constant");
}

bool fits(const samebits_tensor& tensor, int64_t rows, int64_t cols, int32_t dtype) {
  return tensor.rows == rows && tensor.cols == cols && tensor.dtype == dtype && (rows == 0 || tensor.data != nullptr);
}

samebits_status route(const samebits_router& router, const samebits_inputs& inputs, samebits_outputs& outputs,
                      void* workspace, void* stream, bool from_logits) {
  const samebits_router_spec& spec = router.spec;
  const int64_t tokens = inputs.num_tokens;
  if (outputs.topk_ids.dtype != SAMEBITS_INT32 || outputs.topk_weights.dtype != SAMEBITS_FP32) {
    return fail(SAMEBITS_UNSUPPORTED, "topk_ids must be INT32, topk_weights FP32");
  }
  if (!from_logits && router.gate_weight == nullptr) return fail(SAMEBITS_INVALID_ARGUMENT, "there is no gate weight");
  const bool input_fits = from_logits ? fits(inputs.router_logits, tokens, spec.num_experts, SAMEBITS_FP32)
                                      : fits(inputs.hidden_states, tokens, spec.hidden_size, SAMEBITS_BF16);
  if (tokens < 0 || !input_fits || !fits(outputs.topk_ids, tokens, spec.top_k, SAMEBITS_INT32) ||
      !fits(outputs.topk_weights, tokens, spec.top_k, SAMEBITS_FP32)) {
    return fail(SAMEBITS_INVALID_ARGUMENT,
                "num_tokens, or shape, dtype or absence of the input, topk_ids or topk_weights");
  }
  std::snprintf(outputs.kernel_name, sizeof(outputs.kernel_name), "one thread a logit");
  if (tokens == 0) return SAMEBITS_OK;
  const cudaStream_t cuda_stream = static_cast<cudaStream_t>(stream);
  float* scores = static_cast<float*>(workspace);
  const float* logits = static_cast<const float*>(inputs.router_logits.data);
  int64_t logits_stride = inputs.router_logits.row_stride;
  if (!from_logits) {
    float* computed = scores + tokens * spec.num_experts;
    const int64_t blocks = (tokens * spec.num_experts + kThreads - 1) / kThreads;
    logits_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, cuda_stream>>>(
        static_cast<const uint16_t*>(inputs.hidden_states.data), inputs.hidden_states.row_stride, tokens,
        spec.hidden_size, router.gate_weight, router.gate_weight_dtype == SAMEBITS_BF16, spec.num_experts,
        inputs.num_valid_rows, computed);
    const samebits_status status = check(cudaGetLastError(), "launch of the logits");
    if (status != SAMEBITS_OK) return status;
    logits = computed;
    logits_stride = spec.num_experts;
  }
  const int64_t blocks = (tokens + kThreads - 1) / kThreads;
  route_kernel<<<static_cast<unsigned>(blocks), kThreads, 0, cuda_stream>>>(
      spec, logits, logits_stride, router.bias, tokens, inputs.num_valid_rows, scores,
      static_cast<int32_t*>(outputs.topk_ids.data), outputs.topk_ids.row_stride,
      static_cast<float*>(outputs.topk_weights.data), outputs.topk_weights.row_stride);
  return check(cudaGetLastError(), "launch of the selection");
}

}  // namespace

extern "C" {

uint32_t samebits_abi_version(void) {
  return SAMEBITS_ABI_VERSION;
}

samebits_status samebits_describe(samebits_info* info) {
  const uint32_t size = info->struct_size;
  if (size < sizeof(samebits_info)) return SAMEBITS_INVALID_ARGUMENT;
  *info = samebits_info{};
  info->struct_size = sizeof(samebits_info);
  info->abi_version = SAMEBITS_ABI_VERSION;
  std::strcpy(info->name, "sigmoid example (CUDA)");
  std::strcpy(info->version, "1");
  info->memory_kinds = SAMEBITS_MEMORY_DEVICE;
  std::strcpy(info->arithmetic, "fp32-any-order");
  info->determinism = SAMEBITS_BATCH_INVARIANT;
  info->tie_break = SAMEBITS_TIES_LOWEST_INDEX;
  info->output_order = SAMEBITS_ORDER_KEY_DESC_THEN_INDEX;
  return SAMEBITS_OK;
}

samebits_status samebits_supports(const samebits_router_spec* spec, char* reason, size_t reason_size) {
  const struct {
    const char* field;
    double found, allowed;
  } rules[] = {{"score_func", double(spec->score_func), SAMEBITS_SCORE_SIGMOID},
               {"score_stage", double(spec->score_stage), SAMEBITS_SCORE_BEFORE_TOPK},
               {"selection_method", double(spec->selection_method), SAMEBITS_SELECT_TOPK},
               {"rank_by", double(spec->rank_by), SAMEBITS_RANK_BY_SCORE},
               {"n_group", double(spec->n_group), 1},
               {"num_bias_variants", double(spec->num_bias_variants), 1},
               {"selection_bias_dtype is bf16", double(spec->selection_bias_dtype == SAMEBITS_BF16), 0},
               {"linear_bias_dtype", double(spec->linear_bias_dtype), SAMEBITS_DTYPE_NONE},
               {"input_norm", double(spec->input_norm), SAMEBITS_INPUT_NORM_NONE},
               {"input_scale_vector", double(spec->input_scale_vector), 0},
               {"input_scale_rsqrt_hidden_size", double(spec->input_scale_rsqrt_hidden_size), 0},
               {"input_scale", spec->input_scale, 1},
               {"temperature", spec->temperature, 1},
               {"softcap", spec->softcap, 0},
               {"logits_dtype", double(spec->logits_dtype), SAMEBITS_FP32},
               {"score_dtype", double(spec->score_dtype), SAMEBITS_FP32},
               {"weights_dtype", double(spec->weights_dtype), SAMEBITS_FP32},
               {"topk_scope", double(spec->topk_scope), SAMEBITS_TOPK_GLOBAL},
               {"sort", double(spec->sort), SAMEBITS_SORT_BY_KEY_DESC},
               {"weight_source", double(spec->weight_source), SAMEBITS_WEIGHT_UNBIASED_SCORE},
               {"renormalize", double(spec->renormalize), SAMEBITS_RENORM_L1},
               {"scale_stage", double(spec->scale_stage), SAMEBITS_SCALE_AFTER_RENORM},
               {"per_expert_scale", double(spec->per_expert_scale), 0},
               {"global_scale", double(spec->global_scale), 0},
               {"shared_mode", double(spec->shared_mode), SAMEBITS_SHARED_OUTSIDE_ROUTER},
               {"zero_experts", double(spec->zero_experts), 0}};
  for (const auto& rule : rules) {
    if (rule.found == rule.allowed) continue;
    std::snprintf(reason, reason_size, "%s: found %g, this router has %g", rule.field, rule.found, rule.allowed);
    return SAMEBITS_UNSUPPORTED;
  }
  return SAMEBITS_OK;
}

int32_t samebits_topk_columns(const samebits_router_spec* spec) {
  return spec->top_k;
}

samebits_status samebits_create(const samebits_router_spec* spec, const samebits_constants* constants,
                                samebits_router** router) {
  *router = nullptr;
  if (samebits_supports(spec, error_text, sizeof(error_text)) != SAMEBITS_OK) return SAMEBITS_UNSUPPORTED;
  if (constants->memory != SAMEBITS_MEMORY_DEVICE) {
    return fail(SAMEBITS_UNSUPPORTED, "constants must be in device memory");
  }
  const samebits_tensor &gate = constants->gate_weight, &bias_given = constants->selection_bias;
  const bool wants_bias = spec->selection_bias_dtype != SAMEBITS_DTYPE_NONE;
  if (spec->top_k < 1 || spec->top_k > spec->num_experts ||
      (gate.data != nullptr && !fits(gate, spec->num_experts, spec->hidden_size, gate.dtype)) ||
      (wants_bias && !fits(bias_given, 1, spec->num_experts, SAMEBITS_FP32))) {
    return fail(SAMEBITS_INVALID_ARGUMENT, "top_k, or the shape of gate_weight or selection_bias");
  }
  auto* created = new (std::nothrow) samebits_router{*spec, nullptr, constants->gate_weight.dtype, nullptr};
  if (created == nullptr) return fail(SAMEBITS_OUT_OF_MEMORY, "out of host memory");
  void* bias = nullptr;
  samebits_status status = copy_tensor(constants->gate_weight, spec->num_experts, &created->gate_weight);
  if (status == SAMEBITS_OK) status = copy_tensor(constants->selection_bias, 1, &bias);
  created->bias = static_cast<float*>(bias);
  if (status != SAMEBITS_OK) {
    samebits_destroy(created);
    return status;
  }
  *router = created;
  return SAMEBITS_OK;
}

// Scores and logits, [T, E] each.
size_t samebits_workspace_bytes(const samebits_router* router, int64_t max_tokens) {
  return 2 * sizeof(float) * static_cast<size_t>(max_tokens) * static_cast<size_t>(router->spec.num_experts);
}

samebits_status samebits_workspace_init(const samebits_router*, void*, size_t, void*) {
  return SAMEBITS_OK;
}

samebits_status samebits_route(const samebits_router* router, const samebits_inputs* inputs, samebits_outputs* outputs,
                               void* workspace, void* stream) {
  return route(*router, *inputs, *outputs, workspace, stream, false);
}

samebits_status samebits_route_from_logits(const samebits_router* router, const samebits_inputs* inputs,
                                           samebits_outputs* outputs, void* workspace, void* stream) {
  return route(*router, *inputs, *outputs, workspace, stream, true);
}

const char* samebits_last_error(const samebits_router*) {
  return error_text;
}

void samebits_destroy(samebits_router* router) {
  if (router == nullptr) return;
  cudaFree(router->gate_weight);
  cudaFree(router->bias);
  delete router;
}

}  // extern "C"
