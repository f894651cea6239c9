// Other readings of the gate weight and of its input.
#include <cmath>
#include <vector>

#include "kernels/common/bits.h"
#include "kernels/cpu/gate_weight.h"
#include "kernels/cpu/prepare.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

using cpu::RouterConstants;
using cpu::RowScratch;

// An fp32 gate weight of which only the bits in Mask are kept.
template <std::uint32_t Mask>
samebits_status create_with_masked_weight(const samebits_router_spec* spec, const samebits_constants* constants,
                                          samebits_router** router) {
  const samebits_tensor& weight = constants->gate_weight;
  if (weight.data == nullptr || weight.dtype != SAMEBITS_FP32) return samebits_create(spec, constants, router);
  const auto* values = static_cast<const float*>(weight.data);
  std::vector<float> masked(static_cast<std::size_t>(weight.rows * weight.cols));
  for (std::int64_t r = 0; r < weight.rows; ++r) {
    for (std::int64_t c = 0; c < weight.cols; ++c) {
      const float w = values[r * weight.row_stride + c];
      masked[static_cast<std::size_t>(r * weight.cols + c)] = std::isfinite(w) ? from_bits(to_bits(w) & Mask) : w;
    }
  }
  samebits_constants changed = *constants;
  changed.gate_weight = {masked.data(), weight.rows, weight.cols, weight.cols, SAMEBITS_FP32, 0};
  return samebits_create(spec, &changed, router);
}

void norm_rounded_before_scales(const RouterConstants& constants, const std::uint16_t* hidden_state,
                                RowScratch& scratch, std::uint16_t* prepared) {
  if (constants.spec.input_norm == SAMEBITS_INPUT_NORM_NONE) {
    return cpu::prepare_input(constants, hidden_state, scratch, prepared);
  }
  RouterConstants norm = constants, scales = constants;
  norm.input_scale_vector = nullptr, norm.input_scale = 1.0f;
  scales.spec.input_norm = SAMEBITS_INPUT_NORM_NONE;
  cpu::prepare_input(norm, hidden_state, scratch, prepared);
  cpu::prepare_input(scales, prepared, scratch, prepared);
}

void norm_without_eps(const RouterConstants& constants, const std::uint16_t* hidden_state, RowScratch& scratch,
                      std::uint16_t* prepared) {
  RouterConstants changed = constants;
  changed.spec.input_norm_eps = 0.0f;
  cpu::prepare_input(changed, hidden_state, scratch, prepared);
}

AbiFaults creates(decltype(&samebits_create) fault) {
  AbiFaults faults;
  faults.create = fault;
  return faults;
}

}  // namespace

std::vector<Mutant> unlisted_gate_mutants() {
  using cpu::Steps;
  return {
      {"U58",
       "tf32_gate_weight",
       "an fp32 gate weight loses its last 13 bits",
       "precision",
       "torch.backends.cuda.matmul.allow_tf32",
       {"glm-5.3-flash"},
       cpu::tc256_steps(),
       creates(create_with_masked_weight<0xffffe000u>)},
      {"U59",
       "two_part_gate_weight",
       "an fp32 gate weight is the sum of two bf16 parts instead of three",
       "precision",
       "",
       {"glm-5.3-flash"},
       cpu::tc256_steps(),
       creates(create_with_masked_weight<0xffffff00u>)},
      {"U69",
       "norm_rounded_before_scales",
       "the normalised input is rounded to bf16 before its scales too",
       "precision",
       "an RMS norm that returns its input's type",
       {"gemma-4-26b-a4b"},
       with(&Steps::prepare_input, norm_rounded_before_scales)},
      {"U70",
       "norm_without_eps",
       "the norm of the input leaves out its eps",
       "precision",
       "",
       {"gemma-4-26b-a4b"},
       with(&Steps::prepare_input, norm_without_eps)},
  };
}

}  // namespace samebits::mutants
