// Sums and orders that are not the same in every call. How the threads of a call happen to run is stood in for by the
// number of the call: two calls in a row differ, always.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "kernels/common/bits.h"
#include "kernels/cpu/bookkeep.h"
#include "kernels/cpu/gate_weight.h"
#include "kernels/cpu/logits.h"
#include "kernels/cpu/simd.h"
#include "kernels/mutants/abi_faults.h"

namespace samebits::mutants {
namespace {

using cpu::RouterConstants;

std::atomic<std::int64_t> g_calls{0};

samebits_status counted(RouteCall& call) {
  ++g_calls;
  return call.run();
}

// Columns of H in parts, whose products are added from a part of the call's choice on; each is rounded if kRound says
// so.
struct Parts {
  std::int64_t width;
  std::int64_t first;
  float (*rounded)(float part);
};

void add_parts(const RouterConstants& constants, const Parts& parts, const std::uint16_t* hidden_states,
               std::int64_t row_stride, std::int64_t num_rows, float* logits, std::int64_t logits_stride) {
  const cpu::GateWeight& weight = *constants.gate_weight;
  const std::int64_t gate = weight.gate_rows(), hidden = weight.hidden_size();
  const std::int64_t num_parts = (hidden + parts.width - 1) / parts.width;
  std::vector<float> part(static_cast<std::size_t>(num_rows * gate));
  for (std::int64_t i = 0; i < num_parts; ++i) {
    const std::int64_t begin = (parts.first + i) % num_parts * parts.width;
    cpu::multiply_rows(weight, hidden_states, row_stride, num_rows, begin, std::min(begin + parts.width, hidden),
                       part.data(), gate);
    for (std::int64_t r = 0; r < num_rows; ++r) {
      for (std::int64_t e = 0; e < gate; ++e) {
        float& sum = logits[r * logits_stride + e];
        const float term = parts.rounded(part[static_cast<std::size_t>(r * gate + e)]);
        sum = i == 0 ? term : canonical(sum + term);
      }
    }
  }
  for (std::int64_t r = 0; r < num_rows; ++r) cpu::finish_logits(constants, logits + r * logits_stride);
}

void atomic_sum(const RouterConstants& constants, const std::uint16_t* hidden_states, std::int64_t row_stride,
                std::int64_t num_rows, std::int64_t, float* logits, std::int64_t logits_stride) {
  const Parts parts{cpu::kStepWidth, g_calls, [](float part) { return part; }};
  add_parts(constants, parts, hidden_states, row_stride, num_rows, logits, logits_stride);
}

void bf16_partial_sums(const RouterConstants& constants, const std::uint16_t* hidden_states, std::int64_t row_stride,
                       std::int64_t num_rows, std::int64_t, float* logits, std::int64_t logits_stride) {
  const Parts parts{cpu::kStepWidth, 0, round_to_bf16};
  add_parts(constants, parts, hidden_states, row_stride, num_rows, logits, logits_stride);
}

// Slots of an expert in the order in which threads met its counter.
void atomic_slot_order(const RouterConstants& constants, const std::int32_t* ids, std::int64_t num_tokens,
                       std::int32_t* scratch, samebits_outputs& outputs) {
  cpu::bookkeep_tc256(constants, ids, num_tokens, scratch, outputs);
  if (outputs.slot_of_position == nullptr || outputs.position_of_slot == nullptr) return;
  std::int32_t* const begin = outputs.slot_of_position;
  std::int32_t* const end = std::find(begin, begin + num_tokens * topk_columns(constants.spec), -1);
  for (std::int32_t* first = begin; first != end;) {
    const std::int32_t expert = ids[*first];
    std::int32_t* const last = std::find_if(first, end, [=](std::int32_t slot) { return ids[slot] != expert; });
    std::rotate(first, first + g_calls % (last - first), last);
    first = last;
  }
  for (std::int32_t* position = begin; position != end; ++position) {
    outputs.position_of_slot[*position] = static_cast<std::int32_t>(position - begin);
  }
}

}  // namespace

std::vector<Mutant> determinism_mutants() {
  using cpu::Steps;
  return {
      {"M86",
       "atomic_slot_order",
       "slots of an expert come in the order in which an atomic counter met them, another in each call",
       "run_to_run",
       "sgl-project/sglang#33511, vllm-project/vllm#52525",
       {"glm-5.3-flash"},
       with(&Steps::bookkeep, atomic_slot_order),
       around_route<counted>()},
      {"M88",
       "atomic_sum",
       "parts of a logit's sum are added by atomics, in another order in each call",
       "run_to_run",
       "sgl-project/sglang#26627: atomics in the product, two identical calls differ",
       {"glm-5.3-flash"},
       with(&Steps::logits, atomic_sum),
       around_route<counted>()},
      {"M89",
       "bf16_partial_sums",
       "parts of a logit's sum are rounded to bf16 before they are added",
       "precision",
       "sgl-project/sglang#40578: split-K partials in bf16",
       {"glm-5.3-flash"},
       with(&Steps::logits, bf16_partial_sums)},
  };
}

}  // namespace samebits::mutants
