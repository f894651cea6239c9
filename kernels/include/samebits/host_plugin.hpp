// The C ABI for a router that works in host memory on one row at a time, so that a plug-in is one class:
//
//   struct MyRouter : samebits::HostRouter {
//     static void describe(samebits_info& info);         // name, version, arithmetic, claims; the rest is filled in
//     static std::vector<samebits::Rule> rules(const samebits_router_spec& spec);  // what a spec must be like
//     void logits(const float* x, float* logits) const;  // x [H] -> logits [G], one row; must not allocate
//     void route(float* logits, int32_t* ids, float* weights) const;  // logits [G], which it may overwrite -> [K], [K]
//   };
//   SAMEBITS_HOST_PLUGIN(MyRouter)
//
// G, R and K are those of samebits.h; all experts compete (G = R = E, K = k) under the rules of `ordinary`.
// Strides, dtypes (bf16 weights are rounded from those of `route`), padding rows, workspace and error texts are handled
// here. C++17, no dependencies but samebits.h.
// Other plug-ins (device memory, bookkeeping, returned logits, whole batches) export the functions of samebits.h
// themselves.
#ifndef SAMEBITS_HOST_PLUGIN_HPP_
#define SAMEBITS_HOST_PLUGIN_HPP_

#include <samebits/samebits.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <string>
#include <utility>
#include <vector>

namespace samebits {

// Constants as fp32; a bias that the spec wants in bf16 is rounded.
struct HostRouter {
  samebits_router_spec spec;
  std::vector<float> gate_weight;     // [G, H], or empty: only given logits will be routed
  std::vector<float> linear_bias;     // [G] or empty
  std::vector<float> selection_bias;  // [R] of row class 0, or empty
};

// A field of the spec that must have one value: "score_func: found softmax (1), this router has sigmoid (2)".
struct Rule {
  const char* field;
  double found;
  double allowed;
};

// Rules of a router without the rarer features: no input norm or scale, linear bias, temperature, softcap, hash table,
// sparsemixer, row classes, groups, biased weights, log-space sums, learned scales, experts in the gate or zero
// experts; everything in fp32; scored before the choice, ranked by score; slots by key. The score function, the other
// kinds of renormalisation and the place of the scale are for the rules of the router itself.
inline std::vector<Rule> ordinary(const samebits_router_spec& spec) {
  return {{"input_norm", double(spec.input_norm), SAMEBITS_INPUT_NORM_NONE},
          {"input_scale_vector", double(spec.input_scale_vector), 0},
          {"input_scale_rsqrt_hidden_size", double(spec.input_scale_rsqrt_hidden_size), 0},
          {"input_scale", spec.input_scale, 1},
          {"linear_bias_dtype", double(spec.linear_bias_dtype), SAMEBITS_DTYPE_NONE},
          {"logits_dtype", double(spec.logits_dtype), SAMEBITS_FP32},
          {"temperature", spec.temperature, 1},
          {"softcap", spec.softcap, 0},
          {"score_stage", double(spec.score_stage), SAMEBITS_SCORE_BEFORE_TOPK},
          {"score_dtype", double(spec.score_dtype), SAMEBITS_FP32},
          {"selection_method", double(spec.selection_method), SAMEBITS_SELECT_TOPK},
          {"rank_by", double(spec.rank_by), SAMEBITS_RANK_BY_SCORE},
          {"num_bias_variants", spec.selection_bias_dtype == SAMEBITS_DTYPE_NONE ? 1.0 : spec.num_bias_variants, 1},
          {"n_group", double(spec.n_group), 1},
          {"topk_scope", double(spec.topk_scope), SAMEBITS_TOPK_GLOBAL},
          {"sort", double(spec.sort), SAMEBITS_SORT_BY_KEY_DESC},
          {"weight_source", double(spec.weight_source), SAMEBITS_WEIGHT_UNBIASED_SCORE},
          {"renormalize", double(spec.renormalize),
           double(spec.renormalize == SAMEBITS_RENORM_LOG_SPACE_L1 ? SAMEBITS_RENORM_L1 : spec.renormalize)},
          {"per_expert_scale", double(spec.per_expert_scale), 0},
          {"global_scale", double(spec.global_scale), 0},
          {"weights_dtype", double(spec.weights_dtype), SAMEBITS_FP32},
          {"shared_mode", double(spec.shared_mode), SAMEBITS_SHARED_OUTSIDE_ROUTER},
          {"zero_experts", double(spec.zero_experts), 0}};
}

namespace detail {

// Names of the values of a field, from `first` on; fields without names are numbers.
struct ValueNames {
  const char* field;
  int first;
  const char* names[5];
};

inline std::string value_text(const char* field, double value) {
  static constexpr ValueNames kFields[] = {
      {"input_norm", 0, {"none", "rmsnorm_unweighted"}},
      {"input_scale_vector", 0, {"no", "yes"}},
      {"input_scale_rsqrt_hidden_size", 0, {"no", "rsqrt_hidden_size", "rsqrt_hidden_size_bf16"}},
      {"logits_dtype", 0, {"none", "fp32", "bf16"}},
      {"linear_bias_dtype", 0, {"none", "fp32", "bf16"}},
      {"score_func", 1, {"softmax", "sigmoid", "sqrt_softplus", "identity"}},
      {"score_stage", 1, {"before_topk", "after_topk"}},
      {"score_dtype", 0, {"none", "fp32", "bf16"}},
      {"selection_method", 1, {"topk", "hash_table", "sparsemixer"}},
      {"rank_by", 1, {"score", "logit"}},
      {"selection_bias_dtype", 0, {"none", "fp32", "bf16"}},
      {"group_score", 0, {"none", "max", "top2_sum"}},
      {"group_mask", 0, {"none", "neg_inf", "zero"}},
      {"topk_scope", 1, {"global", "per_group"}},
      {"sort", 1, {"by_key_desc", "by_index"}},
      {"weight_source", 1, {"unbiased_score", "biased_score"}},
      {"renormalize", 0, {"none", "l1", "log_space_l1"}},
      {"eps_mode", 0, {"none", "add", "clamp_min"}},
      {"scale_stage", 1, {"after_renorm", "before_divide", "on_expert_output"}},
      {"per_expert_scale", 0, {"no", "yes"}},
      {"global_scale", 0, {"no", "yes"}},
      {"weights_dtype", 0, {"none", "fp32", "bf16"}},
      {"shared_mode", 0, {"outside_router", "outside_router_sigmoid_gate", "fused_ids", "in_gate"}},
      {"zero_type", 0, {"none", "identity", "identity_remapped_to_id0_weight0"}},
  };
  char number[32];
  std::snprintf(number, sizeof(number), "%g", value);
  for (const ValueNames& known : kFields) {
    if (std::strcmp(known.field, field) != 0) continue;
    const double place = value - known.first;
    for (int i = 0; i < 5; ++i) {
      if (place == i && known.names[i] != nullptr) return std::string(known.names[i]) + " (" + number + ")";
    }
  }
  return number;
}

inline float widen(std::uint16_t bf16) {
  const std::uint32_t bits = static_cast<std::uint32_t>(bf16) << 16;
  float value = 0;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

// The upper half of the fp32 bits, to nearest, ties to even. Not for NaN.
inline std::uint16_t narrow(float value) {
  std::uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  bits += 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<std::uint16_t>(bits >> 16);
}

// NaN stays NaN.
inline float round_to_bf16(float value) {
  return value != value ? value : widen(narrow(value));
}

// bf16 bits of a weight: +0 where none is finite.
inline std::uint16_t weight_to_bf16(float weight) {
  const std::uint16_t bits = narrow(weight);
  return weight != weight || (bits & 0x7f80u) == 0x7f80u ? std::uint16_t{0} : bits;
}

// Row `row` of a BF16 or FP32 tensor, as fp32.
inline void read_row(const samebits_tensor& tensor, std::int64_t row, float* out) {
  const std::int64_t first = row * tensor.row_stride;
  for (std::int64_t i = 0; i < tensor.cols; ++i) {
    out[i] = tensor.dtype == SAMEBITS_BF16 ? widen(static_cast<const std::uint16_t*>(tensor.data)[first + i])
                                           : static_cast<const float*>(tensor.data)[first + i];
  }
}

inline std::vector<float> read(const samebits_tensor& tensor, std::int64_t rows, bool round) {
  std::vector<float> values;
  if (tensor.data == nullptr) return values;
  values.resize(static_cast<std::size_t>(rows * tensor.cols));
  for (std::int64_t row = 0; row < rows; ++row) read_row(tensor, row, values.data() + row * tensor.cols);
  for (float& value : values) value = round ? round_to_bf16(value) : value;
  return values;
}

inline std::string& last_error() {
  thread_local std::string text;
  return text;
}

inline samebits_status fail(samebits_status status, std::string text) {
  last_error() = std::move(text);
  return status;
}

template <class Router>
samebits_status describe(samebits_info* info) {
  if (info == nullptr || info->struct_size < sizeof(samebits_info)) return SAMEBITS_INVALID_ARGUMENT;
  *info = samebits_info{};
  info->struct_size = sizeof(samebits_info);
  info->abi_version = SAMEBITS_ABI_VERSION;
  info->memory_kinds = SAMEBITS_MEMORY_HOST;
  Router::describe(*info);
  return SAMEBITS_OK;
}

template <class Router>
samebits_status supports(const samebits_router_spec* spec, char* reason, std::size_t reason_size) {
  if (spec == nullptr) return SAMEBITS_INVALID_ARGUMENT;
  for (const Rule& rule : Router::rules(*spec)) {
    if (rule.found == rule.allowed) continue;
    std::snprintf(reason, reason_size, "%s: found %s, this router has %s", rule.field,
                  value_text(rule.field, rule.found).c_str(), value_text(rule.field, rule.allowed).c_str());
    return SAMEBITS_UNSUPPORTED;
  }
  return SAMEBITS_OK;
}

// Empty, or what is wrong with a tensor of a call: a wrong call is refused before anything is read or written.
inline std::string problem_of(const char* name, const samebits_tensor& tensor, std::int64_t rows, std::int64_t cols,
                              std::int32_t dtype) {
  if (rows > 0 && cols > 0 && tensor.data == nullptr) return std::string(name) + " is absent";
  if (tensor.rows != rows || tensor.cols != cols) {
    return std::string(name) + ": found shape [" + std::to_string(tensor.rows) + ", " + std::to_string(tensor.cols) +
           "], allowed [" + std::to_string(rows) + ", " + std::to_string(cols) + "]";
  }
  if (tensor.dtype != dtype) {
    return std::string(name) + ": found dtype " + std::to_string(tensor.dtype) + ", allowed " + std::to_string(dtype);
  }
  return "";
}

inline std::int32_t topk_columns(const samebits_router_spec* spec) {
  if (spec == nullptr) return 0;
  return spec->top_k + (spec->shared_mode == SAMEBITS_SHARED_IN_GATE ? spec->shared_experts : 0);
}

inline std::int32_t gate_rows(const samebits_router_spec& spec) {
  return spec.num_experts + spec.zero_experts + topk_columns(&spec) - spec.top_k;
}

inline std::string problem_of(const samebits_router_spec& spec, const samebits_constants& constants) {
  const std::int64_t ranked = std::int64_t{spec.num_experts} + spec.zero_experts;
  if (spec.top_k < 1 || spec.top_k > ranked) {
    return "top_k: found " + std::to_string(spec.top_k) + ", allowed 1 to " + std::to_string(ranked);
  }
  if (constants.gate_weight.data != nullptr) {
    const std::int32_t dtype = constants.gate_weight.dtype == SAMEBITS_FP32 ? SAMEBITS_FP32 : SAMEBITS_BF16;
    const std::string problem =
        problem_of("gate_weight", constants.gate_weight, gate_rows(spec), spec.hidden_size, dtype);
    if (!problem.empty()) return problem;
  }
  if (spec.selection_bias_dtype == SAMEBITS_DTYPE_NONE) return "";
  return problem_of("selection_bias", constants.selection_bias, spec.num_bias_variants, ranked, SAMEBITS_FP32);
}

template <class Router>
samebits_status create(const samebits_router_spec* spec, const samebits_constants* constants, Router** router) {
  if (spec == nullptr || constants == nullptr || router == nullptr) {
    return fail(SAMEBITS_INVALID_ARGUMENT, "samebits_create: a null argument");
  }
  *router = nullptr;
  if (constants->memory != SAMEBITS_MEMORY_HOST) return fail(SAMEBITS_UNSUPPORTED, "constants must be in host memory");
  char reason[256] = "";
  if (supports<Router>(spec, reason, sizeof(reason)) != SAMEBITS_OK) return fail(SAMEBITS_UNSUPPORTED, reason);
  const std::string problem = problem_of(*spec, *constants);
  if (!problem.empty()) return fail(SAMEBITS_INVALID_ARGUMENT, problem);
  try {
    *router = new Router{{*spec, read(constants->gate_weight, constants->gate_weight.rows, false),
                          read(constants->linear_bias, 1, spec->linear_bias_dtype == SAMEBITS_BF16),
                          read(constants->selection_bias, 1, spec->selection_bias_dtype == SAMEBITS_BF16)}};
  } catch (const std::exception& error) {
    return fail(SAMEBITS_OUT_OF_MEMORY, error.what());
  }
  return SAMEBITS_OK;
}

// One row of everything: hidden state [H], logits [G], ids [K], weights [K].
inline std::size_t workspace_bytes(const samebits_router_spec& spec) {
  return sizeof(float) * static_cast<std::size_t>(spec.hidden_size + gate_rows(spec) + 2 * topk_columns(&spec));
}

template <class Router>
samebits_status route(const Router& router, const samebits_inputs& inputs, samebits_outputs& outputs, void* workspace,
                      bool from_logits) {
  const samebits_router_spec& spec = router.spec;
  const samebits_tensor& start = from_logits ? inputs.router_logits : inputs.hidden_states;
  const std::int32_t id_dtype = outputs.topk_ids.dtype, weight_dtype = outputs.topk_weights.dtype;
  if ((id_dtype != SAMEBITS_INT32 && id_dtype != SAMEBITS_INT64) ||
      (weight_dtype != SAMEBITS_FP32 && weight_dtype != SAMEBITS_BF16)) {
    return fail(SAMEBITS_INVALID_ARGUMENT,
                "found dtype " + std::to_string(id_dtype) + " of topk_ids and " + std::to_string(weight_dtype) +
                    " of topk_weights, allowed INT32 (3) or INT64 (4), and FP32 (1) or BF16 (2)");
  }
  const std::int64_t tokens = inputs.num_tokens;
  if (tokens < 0) return fail(SAMEBITS_INVALID_ARGUMENT, "num_tokens is negative");
  const std::int64_t width = from_logits ? gate_rows(spec) : spec.hidden_size;
  for (const std::string& problem :
       {problem_of("the input", start, tokens, width, from_logits ? SAMEBITS_FP32 : SAMEBITS_BF16),
        problem_of("topk_ids", outputs.topk_ids, tokens, topk_columns(&spec), id_dtype),
        problem_of("topk_weights", outputs.topk_weights, tokens, topk_columns(&spec), weight_dtype)}) {
    if (!problem.empty()) return fail(SAMEBITS_INVALID_ARGUMENT, problem);
  }
  if (!from_logits && router.gate_weight.empty()) return fail(SAMEBITS_INVALID_ARGUMENT, "there is no gate weight");
  float* const x = static_cast<float*>(workspace);
  float* const logits = x + spec.hidden_size;
  float* const weights = logits + gate_rows(spec);
  const std::int32_t columns = topk_columns(&spec);
  std::int32_t* const ids = reinterpret_cast<std::int32_t*>(weights + columns);
  for (std::int64_t row = 0; row < inputs.num_tokens; ++row) {
    const bool padding = inputs.num_valid_rows != nullptr && row >= *inputs.num_valid_rows;
    if (!padding) {
      read_row(start, row, from_logits ? logits : x);
      if (!from_logits) router.logits(x, logits);
      router.route(logits, ids, weights);
    }
    for (std::int32_t column = 0; column < columns; ++column) {
      const std::int32_t id = padding ? -1 : ids[column];
      const float weight = padding ? 0.0f : weights[column];
      const std::int64_t id_at = row * outputs.topk_ids.row_stride + column;
      const std::int64_t weight_at = row * outputs.topk_weights.row_stride + column;
      if (id_dtype == SAMEBITS_INT64) {
        static_cast<std::int64_t*>(outputs.topk_ids.data)[id_at] = id;
      } else {
        static_cast<std::int32_t*>(outputs.topk_ids.data)[id_at] = id;
      }
      if (weight_dtype == SAMEBITS_BF16) {
        static_cast<std::uint16_t*>(outputs.topk_weights.data)[weight_at] = weight_to_bf16(weight);
      } else {
        static_cast<float*>(outputs.topk_weights.data)[weight_at] = weight;
      }
    }
  }
  std::snprintf(outputs.kernel_name, sizeof(outputs.kernel_name), "one row at a time");
  return SAMEBITS_OK;
}

}  // namespace detail
}  // namespace samebits

#define SAMEBITS_HOST_PLUGIN(Router)                                                                       \
  struct samebits_router : Router {};                                                                      \
  extern "C" {                                                                                             \
  uint32_t samebits_abi_version(void) {                                                                    \
    return SAMEBITS_ABI_VERSION;                                                                           \
  }                                                                                                        \
  samebits_status samebits_describe(samebits_info* info) {                                                 \
    return samebits::detail::describe<Router>(info);                                                       \
  }                                                                                                        \
  samebits_status samebits_supports(const samebits_router_spec* spec, char* reason, size_t reason_size) {  \
    return samebits::detail::supports<Router>(spec, reason, reason_size);                                  \
  }                                                                                                        \
  int32_t samebits_topk_columns(const samebits_router_spec* spec) {                                        \
    return samebits::detail::topk_columns(spec);                                                           \
  }                                                                                                        \
  samebits_status samebits_create(const samebits_router_spec* spec, const samebits_constants* constants,   \
                                  samebits_router** router) {                                              \
    return samebits::detail::create(spec, constants, router);                                              \
  }                                                                                                        \
  size_t samebits_workspace_bytes(const samebits_router* router, int64_t) {                                \
    return samebits::detail::workspace_bytes(router->spec);                                                \
  }                                                                                                        \
  samebits_status samebits_workspace_init(const samebits_router*, void*, size_t, void*) {                  \
    return SAMEBITS_OK;                                                                                    \
  }                                                                                                        \
  samebits_status samebits_route(const samebits_router* router, const samebits_inputs* inputs,             \
                                 samebits_outputs* outputs, void* workspace, void*) {                      \
    return samebits::detail::route(*router, *inputs, *outputs, workspace, false);                          \
  }                                                                                                        \
  samebits_status samebits_route_from_logits(const samebits_router* router, const samebits_inputs* inputs, \
                                             samebits_outputs* outputs, void* workspace, void*) {          \
    return samebits::detail::route(*router, *inputs, *outputs, workspace, true);                           \
  }                                                                                                        \
  const char* samebits_last_error(const samebits_router*) {                                                \
    return samebits::detail::last_error().c_str();                                                         \
  }                                                                                                        \
  void samebits_destroy(samebits_router* router) {                                                         \
    delete router;                                                                                         \
  }                                                                                                        \
  }

#endif  // SAMEBITS_HOST_PLUGIN_HPP_
