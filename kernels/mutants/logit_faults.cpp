#include <vector>

#include "kernels/common/bits.h"
#include "kernels/cpu/gate_weight.h"
#include "kernels/cpu/logits.h"
#include "kernels/cpu/simd.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

using cpu::RouterConstants;

constexpr std::int64_t kLargestUnsplitBatch = 16;

// Like a GEMM that splits K for some batch sizes: each half is right by itself, their sum has another order.
void split_logits(const RouterConstants& constants, const std::uint16_t* hidden_states, std::int64_t row_stride,
                  std::int64_t num_rows, std::int64_t num_tokens, float* logits, std::int64_t logits_stride) {
  const cpu::GateWeight& weight = *constants.gate_weight;
  const std::int64_t hidden_size = weight.hidden_size(), gate_rows = weight.gate_rows();
  const std::int64_t middle = (hidden_size / 2 + cpu::kStepWidth - 1) / cpu::kStepWidth * cpu::kStepWidth;
  if (num_tokens <= kLargestUnsplitBatch || middle == 0 || middle >= hidden_size) {
    cpu::logits_tc256(constants, hidden_states, row_stride, num_rows, num_tokens, logits, logits_stride);
    return;
  }
  std::vector<float> second(static_cast<std::size_t>(num_rows * gate_rows));
  cpu::multiply_rows(weight, hidden_states, row_stride, num_rows, 0, middle, logits, logits_stride);
  cpu::multiply_rows(weight, hidden_states, row_stride, num_rows, middle, hidden_size, second.data(), gate_rows);
  for (std::int64_t r = 0; r < num_rows; ++r) {
    float* row = logits + r * logits_stride;
    for (std::int64_t e = 0; e < gate_rows; ++e) {
      row[e] = canonical(row[e] + second[static_cast<std::size_t>(r * gate_rows + e)]);
    }
    cpu::finish_logits(constants, row);
  }
}

// tanh x = (e^2x - 1) / (e^2x + 1), which is inf / inf where e^2x overflows.
void softcap_by_exponentials(const RouterConstants& constants, const std::uint16_t* hidden_states,
                             std::int64_t row_stride, std::int64_t num_rows, std::int64_t num_tokens, float* logits,
                             std::int64_t logits_stride) {
  RouterConstants uncapped = constants;
  uncapped.spec.softcap = 0.0f;
  cpu::logits_tc256(uncapped, hidden_states, row_stride, num_rows, num_tokens, logits, logits_stride);
  const float softcap = constants.spec.softcap;
  if (softcap == 0.0f) return;
  for (std::int64_t r = 0; r < num_rows; ++r) {
    for (std::int64_t e = 0; e < constants.gate_weight->gate_rows(); ++e) {
      float& logit = logits[r * logits_stride + e];
      const float power = cpu::apply_elementwise(cpu::Elementwise::kExp, 2.0f * (logit / softcap));
      logit = canonical(softcap * ((power - 1.0f) / (power + 1.0f)));
    }
  }
}

}  // namespace

std::vector<Mutant> logit_mutants() {
  using cpu::Steps;
  return {
      {"M87",
       "row_dependent_split",
       "more than 16 rows: the sum over H is cut in two halves that are added at the end",
       "batch_invariance",
       "cuBLAS on H100 and H200 splits K for small batches only; SGLang's tiny router GEMM stops at 16 rows",
       {"glm-5.3-flash"},
       with(&Steps::logits, split_logits)},
      {"U03",
       "softcap_by_exponentials",
       "the softcap is a quotient of exponentials, NaN for 2z / c above 88.7",
       "precision",
       "a SGLang path that forms tanh from exponentials",
       {"grok-2"},
       with(&Steps::logits, softcap_by_exponentials)},
  };
}

}  // namespace samebits::mutants
