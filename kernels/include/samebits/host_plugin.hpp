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
#include <samebits/host_plugin_checks.hpp>

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

// What no HostRouter is given: its rules may not allow it.
inline std::vector<Rule> not_passed_on(const samebits_router_spec& spec) {
  return {{"input_scale_vector", double(spec.input_scale_vector), 0},
          {"per_expert_scale", double(spec.per_expert_scale), 0},
          {"global_scale", double(spec.global_scale), 0},
          {"selection_method", double(spec.selection_method),
           double(spec.selection_method == SAMEBITS_SELECT_HASH_TABLE ? SAMEBITS_SELECT_TOPK : spec.selection_method)},
          {"num_bias_variants", spec.selection_bias_dtype == SAMEBITS_DTYPE_NONE ? 1.0 : spec.num_bias_variants, 1}};
}

template <class Router>
samebits_status supports(const samebits_router_spec* from, char* reason, std::size_t reason_size) {
  const auto refuse = [&](samebits_status status, const std::string& text) {
    if (reason != nullptr && reason_size > 0) std::snprintf(reason, reason_size, "%s", text.c_str());
    return status;
  };
  refuse(SAMEBITS_OK, "");
  samebits_router_spec spec;
  std::string problem = read_struct("spec", from, spec);
  if (problem.empty()) problem = problem_of(spec);
  if (!problem.empty()) return refuse(SAMEBITS_INVALID_ARGUMENT, problem);
  for (const std::vector<Rule>& rules : {Router::rules(spec), not_passed_on(spec)}) {
    for (const Rule& rule : rules) {
      if (rule.found == rule.allowed) continue;
      return refuse(SAMEBITS_UNSUPPORTED, std::string(rule.field) + ": found " + value_text(rule.field, rule.found) +
                                              ", this router has " + value_text(rule.field, rule.allowed));
    }
  }
  return SAMEBITS_OK;
}

template <class Router>
samebits_status create(const samebits_router_spec* spec_from, const samebits_constants* constants_from,
                       Router** router) {
  if (router == nullptr) return fail(SAMEBITS_INVALID_ARGUMENT, "router: null, allowed a place for the new router");
  *router = nullptr;
  char reason[256] = "";
  const samebits_status status = supports<Router>(spec_from, reason, sizeof(reason));
  if (status != SAMEBITS_OK) return fail(status, reason);
  samebits_router_spec spec;
  read_struct("spec", spec_from, spec);
  samebits_constants constants;
  std::string problem = read_struct("constants", constants_from, constants);
  if (!problem.empty()) return fail(SAMEBITS_INVALID_ARGUMENT, problem);
  if (constants.memory != SAMEBITS_MEMORY_HOST) {
    return fail(SAMEBITS_UNSUPPORTED,
                "constants.memory: found " + std::to_string(constants.memory) + ", allowed 1 (host)");
  }
  problem = problem_of(spec, constants);
  if (!problem.empty()) return fail(SAMEBITS_INVALID_ARGUMENT, problem);
  try {
    *router = new Router{{spec, read(constants.gate_weight, constants.gate_weight.rows, false),
                          read(constants.linear_bias, 1, spec.linear_bias_dtype == SAMEBITS_BF16),
                          read(constants.selection_bias, 1, spec.selection_bias_dtype == SAMEBITS_BF16)}};
  } catch (const std::exception& error) {
    return fail(SAMEBITS_OUT_OF_MEMORY, error.what());
  }
  return SAMEBITS_OK;
}

// One row of everything: hidden state [H], logits [G], ids [K], weights [K].
inline std::size_t workspace_bytes(const samebits_router_spec& spec) {
  return sizeof(float) * static_cast<std::size_t>(spec.hidden_size + gate_rows(spec) + 2 * topk_columns(&spec));
}

// Rows that get no experts: padding, and classes of which there is no bias.
inline bool has_answer(const samebits_router_spec& spec, const samebits_inputs& inputs, std::int64_t row) {
  if (inputs.num_valid_rows != nullptr && row >= *inputs.num_valid_rows) return false;
  if (spec.selection_bias_dtype == SAMEBITS_DTYPE_NONE || inputs.row_class.data == nullptr) return true;
  return static_cast<const std::int32_t*>(inputs.row_class.data)[row] == 0;
}

template <class Router>
samebits_status route(const Router& router, const samebits_inputs& inputs_from, samebits_outputs& outputs_to,
                      void* workspace, bool from_logits) {
  const samebits_router_spec& spec = router.spec;
  samebits_inputs inputs;
  samebits_outputs outputs;
  for (const std::string& problem :
       {read_struct("inputs", &inputs_from, inputs), read_struct("outputs", &outputs_to, outputs)}) {
    if (!problem.empty()) return fail(SAMEBITS_INVALID_ARGUMENT, problem);
  }
  const std::string not_written = unwritten(outputs);
  if (!not_written.empty()) {
    return fail(SAMEBITS_UNSUPPORTED,
                not_written + ": wanted, but this router writes ids and weights alone; leave it out");
  }
  const samebits_tensor& start = from_logits ? inputs.router_logits : inputs.hidden_states;
  const std::int32_t id_dtype = outputs.topk_ids.dtype, weight_dtype = outputs.topk_weights.dtype;
  if ((id_dtype != SAMEBITS_INT32 && id_dtype != SAMEBITS_INT64) ||
      (weight_dtype != SAMEBITS_FP32 && weight_dtype != SAMEBITS_BF16)) {
    return fail(SAMEBITS_INVALID_ARGUMENT,
                "found dtype " + std::to_string(id_dtype) + " of topk_ids and " + std::to_string(weight_dtype) +
                    " of topk_weights, allowed INT32 (3) or INT64 (4), and FP32 (1) or BF16 (2)");
  }
  const std::int64_t tokens = inputs.num_tokens;
  if (tokens < 0) {
    return fail(SAMEBITS_INVALID_ARGUMENT,
                "inputs.num_tokens: found " + std::to_string(tokens) + ", allowed 0 or more");
  }
  const std::int64_t width = from_logits ? gate_rows(spec) : spec.hidden_size;
  const bool classes = spec.selection_bias_dtype != SAMEBITS_DTYPE_NONE && inputs.row_class.data != nullptr;
  for (const std::string& problem :
       {problem_of("the input", start, tokens, width, from_logits ? SAMEBITS_FP32 : SAMEBITS_BF16),
        problem_of("topk_ids", outputs.topk_ids, tokens, topk_columns(&spec), id_dtype),
        problem_of("topk_weights", outputs.topk_weights, tokens, topk_columns(&spec), weight_dtype),
        classes ? problem_of("row_class", inputs.row_class, 1, tokens, SAMEBITS_INT32) : std::string()}) {
    if (!problem.empty()) return fail(SAMEBITS_INVALID_ARGUMENT, problem);
  }
  if (!from_logits && router.gate_weight.empty()) return fail(SAMEBITS_INVALID_ARGUMENT, "there is no gate weight");
  if (workspace == nullptr)
    return fail(SAMEBITS_INVALID_ARGUMENT, "workspace: null, allowed samebits_workspace_bytes bytes");
  float* const x = static_cast<float*>(workspace);
  float* const logits = x + spec.hidden_size;
  float* const weights = logits + gate_rows(spec);
  const std::int32_t columns = topk_columns(&spec);
  std::int32_t* const ids = reinterpret_cast<std::int32_t*>(weights + columns);
  for (std::int64_t row = 0; row < inputs.num_tokens; ++row) {
    const bool padding = !has_answer(spec, inputs, row);
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
  if (outputs_to.struct_size >= offsetof(samebits_outputs, kernel_name) + sizeof(outputs_to.kernel_name)) {
    std::snprintf(outputs_to.kernel_name, sizeof(outputs_to.kernel_name), "one row at a time");
  }
  return SAMEBITS_OK;
}

template <class Router>
samebits_status route(const Router* router, const samebits_inputs* inputs, samebits_outputs* outputs, void* workspace,
                      bool from_logits) {
  if (router == nullptr || inputs == nullptr || outputs == nullptr) {
    return fail(SAMEBITS_INVALID_ARGUMENT, std::string(router == nullptr   ? "router"
                                                       : inputs == nullptr ? "inputs"
                                                                           : "outputs") +
                                               " is null");
  }
  return route(*router, *inputs, *outputs, workspace, from_logits);
}

inline samebits_status workspace_init(const void* router, const void* workspace) {
  if (router == nullptr) return fail(SAMEBITS_INVALID_ARGUMENT, "router is null");
  if (workspace == nullptr) return fail(SAMEBITS_INVALID_ARGUMENT, "workspace is null");
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
    return samebits::detail::columns_of_any(spec);                                                         \
  }                                                                                                        \
  samebits_status samebits_create(const samebits_router_spec* spec, const samebits_constants* constants,   \
                                  samebits_router** router) {                                              \
    return samebits::detail::create(spec, constants, router);                                              \
  }                                                                                                        \
  size_t samebits_workspace_bytes(const samebits_router* router, int64_t) {                                \
    return router == nullptr ? 0 : samebits::detail::workspace_bytes(router->spec);                        \
  }                                                                                                        \
  samebits_status samebits_workspace_init(const samebits_router* router, void* workspace, size_t, void*) { \
    return samebits::detail::workspace_init(router, workspace);                                            \
  }                                                                                                        \
  samebits_status samebits_route(const samebits_router* router, const samebits_inputs* inputs,             \
                                 samebits_outputs* outputs, void* workspace, void*) {                      \
    return samebits::detail::route(router, inputs, outputs, workspace, false);                             \
  }                                                                                                        \
  samebits_status samebits_route_from_logits(const samebits_router* router, const samebits_inputs* inputs, \
                                             samebits_outputs* outputs, void* workspace, void*) {          \
    return samebits::detail::route(router, inputs, outputs, workspace, true);                              \
  }                                                                                                        \
  const char* samebits_last_error(const samebits_router*) {                                                \
    return samebits::detail::last_error().c_str();                                                         \
  }                                                                                                        \
  void samebits_destroy(samebits_router* router) {                                                         \
    delete router;                                                                                         \
  }                                                                                                        \
  }

#endif  // SAMEBITS_HOST_PLUGIN_HPP_
