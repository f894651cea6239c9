// Strides and element types of the tensors of a call.
#include <cstdint>

#include "kernels/cpu/gate_weight.h"
#include "kernels/cpu/logits.h"
#include "kernels/cpu/simd.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

using cpu::RouterConstants;

void tail_of_hidden_dropped(const RouterConstants& constants, const std::uint16_t* hidden_states,
                            std::int64_t row_stride, std::int64_t num_rows, std::int64_t num_tokens, float* logits,
                            std::int64_t logits_stride) {
  const cpu::GateWeight& weight = *constants.gate_weight;
  const std::int64_t end = weight.hidden_size() / cpu::kStepWidth * cpu::kStepWidth;
  if (end == 0) {
    return cpu::logits_tc256(constants, hidden_states, row_stride, num_rows, num_tokens, logits, logits_stride);
  }
  cpu::multiply_rows(weight, hidden_states, row_stride, num_rows, 0, end, logits, logits_stride);
  for (std::int64_t row = 0; row < num_rows; ++row) cpu::finish_logits(constants, logits + row * logits_stride);
}

}  // namespace

std::vector<Mutant> layout_mutants() {
  using cpu::Steps;
  return {
      {"M61",
       "tail_of_hidden_dropped",
       "columns past the last whole step of 16 take no part in the product",
       "precision",
       "vllm-project/vllm#39897: loads of 32 bytes assume that H is a multiple of 16",
       {.spec = "qwen3-30b-a3b", .set = {{"shape.hidden_size", "72"}}},
       with(&Steps::logits, tail_of_hidden_dropped)},
  };
}

}  // namespace samebits::mutants
