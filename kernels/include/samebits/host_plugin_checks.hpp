// Checks of the arguments of a plug-in that host_plugin.hpp makes, for it alone: each gives an empty text, or what is
// wrong, with the value found and the ones allowed. Nothing is read or written before they have all passed.
#ifndef SAMEBITS_HOST_PLUGIN_CHECKS_HPP_
#define SAMEBITS_HOST_PLUGIN_CHECKS_HPP_

#include <samebits/samebits.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <utility>

namespace samebits {
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

// Empty, or what is wrong with a struct; `to` becomes a copy in which the fields beyond struct_size are zero.
template <class Struct>
std::string read_struct(const char* name, const Struct* from, Struct& to) {
  to = Struct{};
  if (from == nullptr) return std::string(name) + " is null";
  const std::size_t size = from->struct_size;
  const std::size_t most = 65536;  // beyond it nobody has set the field: as far as that nothing may be read
  if (size < 2 * sizeof(std::uint32_t) || size > most) {
    return std::string(name) + ".struct_size: found " + std::to_string(size) + "; set it to sizeof of the struct, " +
           std::to_string(sizeof(Struct));
  }
  const unsigned char* bytes = reinterpret_cast<const unsigned char*>(from);
  for (std::size_t i = sizeof(Struct); i < size; ++i) {
    if (bytes[i] != 0) {
      return std::string(name) + " sets fields beyond the " + std::to_string(sizeof(Struct)) +
             " bytes that this router knows; leave them zero or build it with a newer header";
    }
  }
  std::memcpy(&to, from, size < sizeof(Struct) ? size : sizeof(Struct));
  return "";
}

// Empty, or why nobody could have such a spec: sizes out of range, numbers that are not finite.
inline std::string problem_of(const samebits_router_spec& spec) {
  struct Range {
    const char* field;
    std::int64_t found, low, high;
  };
  const std::int64_t most = INT32_MAX, ranked = std::int64_t{spec.num_experts} + spec.zero_experts;
  const bool in_gate = spec.shared_mode == SAMEBITS_SHARED_IN_GATE, bias = spec.selection_bias_dtype != 0;
  for (const Range& range : {Range{"hidden_size", spec.hidden_size, 0, most},
                             {"num_experts", spec.num_experts, 1, most},
                             {"zero_experts", spec.zero_experts, 0, most - spec.num_experts},
                             {"shared_experts", spec.shared_experts, 0, in_gate ? most - ranked : most},
                             {"top_k", spec.top_k, 1, ranked},
                             {"num_bias_variants", spec.num_bias_variants, bias ? 1 : 0, most}}) {
    if (range.found >= range.low && range.found <= range.high) continue;
    return std::string(range.field) + ": found " + std::to_string(range.found) + ", allowed " +
           std::to_string(range.low) + " to " + std::to_string(range.high);
  }
  for (const auto& [field, value] : {std::pair<const char*, float>{"routed_scaling_factor", spec.routed_scaling_factor},
                                     {"eps", spec.eps},
                                     {"temperature", spec.temperature},
                                     {"softcap", spec.softcap},
                                     {"input_scale", spec.input_scale},
                                     {"input_norm_eps", spec.input_norm_eps},
                                     {"sparsemixer_jitter_eps", spec.sparsemixer_jitter_eps}}) {
    if (!std::isfinite(value)) return std::string(field) + ": found " + value_text("", value) + ", allowed finite";
  }
  return "";
}

inline std::int64_t element_size(std::int32_t dtype) {
  return dtype == SAMEBITS_BF16 ? 2 : dtype == SAMEBITS_INT64 ? 8 : 4;
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
  if (rows < 1 || cols < 1) return "";
  // The whole in fewer than 2^63 bytes; divisions, so that the check cannot wrap.
  const std::int64_t size = element_size(dtype), most = INT64_MAX / size;
  if (rows > most / cols) {
    return std::string(name) + ": found " + std::to_string(rows) + " rows, allowed at most " +
           std::to_string(most / cols) + "; pass fewer rows at a time";
  }
  if (rows > 1 && (tensor.row_stride < cols || tensor.row_stride > (most - cols) / (rows - 1))) {
    return std::string(name) + ": found row_stride " + std::to_string(tensor.row_stride) + ", allowed " +
           std::to_string(cols) + " (cols) to " + std::to_string((most - cols) / (rows - 1)) + " elements";
  }
  if (reinterpret_cast<std::uintptr_t>(tensor.data) % static_cast<std::uintptr_t>(size) != 0) {
    return std::string(name) + ": data is not aligned to its elements of " + std::to_string(size) + " bytes";
  }
  return "";
}

inline std::int32_t topk_columns(const samebits_router_spec* spec) {
  if (spec == nullptr) return 0;
  return spec->top_k + (spec->shared_mode == SAMEBITS_SHARED_IN_GATE ? spec->shared_experts : 0);
}

// For callers, who may pass anything: 0 for an invalid spec.
inline std::int32_t columns_of_any(const samebits_router_spec* from) {
  samebits_router_spec spec;
  const bool valid = read_struct("spec", from, spec).empty() && problem_of(spec).empty();
  return valid ? topk_columns(&spec) : 0;
}

inline std::int32_t gate_rows(const samebits_router_spec& spec) {
  return spec.num_experts + spec.zero_experts + topk_columns(&spec) - spec.top_k;
}

inline std::string problem_of(const samebits_router_spec& spec, const samebits_constants& constants) {
  const bool has_gate = constants.gate_weight.data != nullptr;
  if (has_gate) {
    const std::int32_t dtype = constants.gate_weight.dtype == SAMEBITS_FP32 ? SAMEBITS_FP32 : SAMEBITS_BF16;
    const std::string problem =
        problem_of("gate_weight", constants.gate_weight, gate_rows(spec), spec.hidden_size, dtype);
    if (!problem.empty()) return problem;
  }
  struct Constant {
    const char* name;
    const samebits_tensor& tensor;
    bool wanted;
    std::int64_t rows, cols;
  };
  const bool linear = spec.linear_bias_dtype != SAMEBITS_DTYPE_NONE;
  const std::int64_t ranked = std::int64_t{spec.num_experts} + spec.zero_experts;
  for (const Constant& constant :
       {Constant{"linear_bias", constants.linear_bias, linear, 1, gate_rows(spec)},
        {"selection_bias", constants.selection_bias, spec.selection_bias_dtype != SAMEBITS_DTYPE_NONE, 1, ranked},
        {"input_scale_vector", constants.input_scale_vector, false, 0, 0},
        {"per_expert_scale", constants.per_expert_scale, false, 0, 0},
        {"global_scale", constants.global_scale, false, 0, 0},
        {"hash_table", constants.hash_table, false, 0, 0}}) {
    if (!constant.wanted && constant.tensor.data != nullptr) {
      return std::string(constant.name) + ": given, but the spec has none; leave it out or change the spec";
    }
    // Given logits are finished: without a gate weight nobody reads the linear bias.
    const bool absent = constant.tensor.data == nullptr && !has_gate && &constant.tensor == &constants.linear_bias;
    if (!constant.wanted || absent) continue;
    const std::string problem = problem_of(constant.name, constant.tensor, constant.rows, constant.cols, SAMEBITS_FP32);
    if (!problem.empty()) return problem;
  }
  return "";
}

// Empty, or the name of an output that is wanted and that no HostRouter has.
inline std::string unwritten(const samebits_outputs& outputs) {
  if (outputs.router_logits.data != nullptr) return "outputs.router_logits";
  if (outputs.block_size != 0) return "outputs.block_size";
  const bool slots = outputs.tokens_per_expert != nullptr || outputs.expert_offsets != nullptr ||
                     outputs.slot_of_position != nullptr || outputs.position_of_slot != nullptr;
  const bool blocks =
      outputs.sorted_token_ids != nullptr || outputs.expert_ids != nullptr || outputs.num_tokens_post_padded != nullptr;
  return slots || blocks ? "outputs: bookkeeping" : "";
}

}  // namespace detail
}  // namespace samebits

#endif  // SAMEBITS_HOST_PLUGIN_CHECKS_HPP_
