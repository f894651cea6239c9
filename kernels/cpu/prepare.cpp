#include "kernels/cpu/prepare.h"

#include "kernels/common/bits.h"
#include "kernels/cpu/simd.h"

namespace samebits::cpu {
namespace {

// 1 / sqrt(mean of squares + eps); `squares` is scratch.
float inverse_rms(const samebits_router_spec& spec, const std::uint16_t* hidden_state, float* squares) {
  for (std::int64_t i = 0; i < spec.hidden_size; ++i) {
    const float x = bf16_to_float(hidden_state[i]);
    squares[i] = x * x;
  }
  const float mean = sum32(squares, spec.hidden_size) / static_cast<float>(spec.hidden_size);
  return apply_elementwise(Elementwise::kRsqrt, mean + spec.input_norm_eps);
}

}  // namespace

void prepare_input(const RouterConstants& constants, const std::uint16_t* hidden_state, RowScratch& scratch,
                   std::uint16_t* prepared) {
  const std::int64_t hidden_size = constants.spec.hidden_size;
  // A factor of 1 changes no bit of a number, and NaN is canonical in the end.
  const bool norm = constants.spec.input_norm != SAMEBITS_INPUT_NORM_NONE;
  const float inverse = norm ? inverse_rms(constants.spec, hidden_state, scratch.input) : 1.0f;
  const float* vector = constants.input_scale_vector;
  for (std::int64_t i = 0; i < hidden_size; ++i) {
    const float x = bf16_to_float(hidden_state[i]) * inverse;
    prepared[i] = float_to_bf16((vector == nullptr ? x : x * vector[i]) * constants.input_scale);
  }
}

}  // namespace samebits::cpu
