// Constants read otherwise where their values are rare: subnormal, infinite, NaN.
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/common/bits.h"
#include "kernels/common/sizes.h"
#include "kernels/cpu/score.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

float flushed(float x) {
  return std::fpclassify(x) == FP_SUBNORMAL ? std::copysign(0.0f, x) : x;
}
float clamped(float x) {
  return std::isinf(x) ? std::copysign(std::numeric_limits<float>::max(), x) : x;
}

// Creation with one constant changed, where it has that dtype.
template <samebits_tensor samebits_constants::*Member, std::int32_t Dtype, float (*Change)(float)>
samebits_status create_with(const samebits_router_spec* spec, const samebits_constants* constants,
                            samebits_router** router) {
  const samebits_tensor& tensor = constants->*Member;
  if (tensor.data == nullptr || tensor.dtype != Dtype) return samebits_create(spec, constants, router);
  std::vector<float> values;
  std::vector<std::uint16_t> halves;
  for (std::int64_t r = 0; r < tensor.rows; ++r) {
    for (std::int64_t c = 0; c < tensor.cols; ++c) {
      const std::int64_t at = r * tensor.row_stride + c;
      const float value = Dtype == SAMEBITS_BF16 ? bf16_to_float(static_cast<const std::uint16_t*>(tensor.data)[at])
                                                 : static_cast<const float*>(tensor.data)[at];
      values.push_back(Change(value));
      halves.push_back(static_cast<std::uint16_t>(to_bits(values.back()) >> 16));
    }
  }
  samebits_constants changed = *constants;
  void* const data = Dtype == SAMEBITS_BF16 ? static_cast<void*>(halves.data()) : values.data();
  changed.*Member = {data, tensor.rows, tensor.cols, tensor.cols, Dtype, 0};
  return samebits_create(spec, &changed, router);
}

template <float (*Change)(float)>
void prepare_changed_bias(const samebits_router_spec& spec, const float* bias, float* out) {
  std::vector<float> changed(bias, bias + ranked_experts(spec));
  for (float& value : changed) value = Change(value);
  cpu::prepare_selection_bias(spec, changed.data(), out);
}

float nan_is_zero(float x) {
  return is_nan(x) ? 0.0f : x;
}

AbiFaults creates(decltype(&samebits_create) fault) {
  AbiFaults faults;
  faults.create = fault;
  return faults;
}

}  // namespace

std::vector<Mutant> unlisted_constant_mutants() {
  using cpu::Steps;
  using C = samebits_constants;
  return {
      {"U200",
       "subnormal_selection_bias_flushed",
       "a subnormal selection bias is read as 0",
       "selection",
       "",
       {"glm-5.3-flash"},
       with(&Steps::prepare_bias, prepare_changed_bias<flushed>)},
      {"U201",
       "nan_selection_bias_is_zero",
       "a NaN in the selection bias is read as 0",
       "non_finite",
       "",
       {"glm-5.3-flash"},
       with(&Steps::prepare_bias, prepare_changed_bias<nan_is_zero>)},
      {"U202",
       "subnormal_linear_bias_flushed",
       "a subnormal linear bias is read as 0",
       "precision",
       "",
       {"gpt-oss-20b"},
       cpu::tc256_steps(),
       creates(create_with<&C::linear_bias, SAMEBITS_FP32, flushed>)},
      {"U203",
       "subnormal_expert_scale_flushed",
       "a subnormal scale of an expert is read as 0",
       "weights",
       "",
       {"gemma-4-26b-a4b"},
       cpu::tc256_steps(),
       creates(create_with<&C::per_expert_scale, SAMEBITS_FP32, flushed>)},
      {"U204",
       "subnormal_bf16_gate_weight_flushed",
       "a subnormal bf16 gate weight is read as 0",
       "precision",
       "",
       {"qwen3-30b-a3b"},
       cpu::tc256_steps(),
       creates(create_with<&C::gate_weight, SAMEBITS_BF16, flushed>)},
      {"U205",
       "subnormal_fp32_gate_weight_flushed",
       "a subnormal fp32 gate weight is read as 0",
       "precision",
       "",
       {"qwen3-30b-a3b"},
       cpu::tc256_steps(),
       creates(create_with<&C::gate_weight, SAMEBITS_FP32, flushed>)},
      {"U206",
       "infinite_fp32_gate_weight_clamped",
       "an infinite fp32 gate weight is read as the largest finite number",
       "non_finite",
       "",
       {"qwen3-30b-a3b"},
       cpu::tc256_steps(),
       creates(create_with<&C::gate_weight, SAMEBITS_FP32, clamped>)},
  };
}

}  // namespace samebits::mutants
