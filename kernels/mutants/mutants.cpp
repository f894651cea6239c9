#include "kernels/mutants/mutants.h"

#include <cstring>
#include <vector>

#include "kernels/cpu/gate_weight.h"
#include "kernels/cpu/logits.h"
#include "kernels/cpu/score.h"
#include "kernels/cpu/select.h"
#include "kernels/cpu/simd.h"

namespace samebits::mutants {
namespace {

using cpu::RouterConstants;

constexpr std::int64_t kLargestUnsplitBatch = 16;

// Like a GEMM that splits K for some batch sizes: each half is right by itself, their sum has another order.
void split_logits(const RouterConstants& constants, const std::uint16_t* hidden_states, std::int64_t row_stride,
                  std::int64_t num_rows, std::int64_t num_tokens, float* logits, std::int64_t logits_stride) {
  const cpu::GateWeight& weight = *constants.gate_weight;
  const std::int64_t hidden_size = weight.hidden_size(), num_experts = weight.num_experts();
  const std::int64_t middle = (hidden_size / 2 + cpu::kStepWidth - 1) / cpu::kStepWidth * cpu::kStepWidth;
  if (num_tokens <= kLargestUnsplitBatch || middle == 0 || middle >= hidden_size) {
    cpu::logits_tc256(constants, hidden_states, row_stride, num_rows, num_tokens, logits, logits_stride);
    return;
  }
  std::vector<float> second(static_cast<std::size_t>(num_rows * num_experts));
  cpu::multiply_rows(weight, hidden_states, row_stride, num_rows, 0, middle, logits, logits_stride);
  cpu::multiply_rows(weight, hidden_states, row_stride, num_rows, middle, hidden_size, second.data(), num_experts);
  for (std::int64_t r = 0; r < num_rows; ++r) {
    float* row = logits + r * logits_stride;
    for (std::int64_t e = 0; e < num_experts; ++e) {
      row[e] = cpu::canonical(row[e] + second[static_cast<std::size_t>(r * num_experts + e)]);
    }
    cpu::finish_logits(constants, row);
  }
}

void bf16_selection_bias(const samebits_router_spec& spec, const float* bias, float* out) {
  cpu::round_bias(SAMEBITS_BF16, bias, spec.num_experts, out);
}

// An equal key that comes later goes in front.
void select_higher_id(const RouterConstants& constants, cpu::RowScratch& scratch) {
  cpu::mask_groups(constants.spec, scratch);
  cpu::best_keys(scratch.keys, scratch.excluded, constants.spec.num_experts, constants.spec.top_k, scratch.ids,
                 [](float key, float listed) { return !cpu::ranks_before(listed, key); });
}

cpu::Steps row_dependent_split() {
  cpu::Steps steps = cpu::tc256_steps();
  steps.name = "row_dependent_split";
  steps.logits = split_logits;
  return steps;
}

cpu::Steps bf16_bias() {
  cpu::Steps steps = cpu::tc256_steps();
  steps.name = "bf16_bias";
  steps.prepare_bias = bf16_selection_bias;
  return steps;
}

cpu::Steps ties_to_higher_id() {
  cpu::Steps steps = cpu::tc256_steps();
  steps.name = "ties_to_higher_id";
  steps.select = select_higher_id;
  return steps;
}

}  // namespace

std::span<const Mutant> all_mutants() {
  static const cpu::Steps kSplit = row_dependent_split(), kBias = bf16_bias(), kTies = ties_to_higher_id();
  static const Mutant kMutants[] = {
      {"row_dependent_split", "more than 16 rows: the sum over H is cut in two halves that are added at the end",
       "batch_invariance",
       "cuBLAS on H100 and H200 splits K for small batches only; SGLang's tiny router GEMM stops at 16 rows", &kSplit},
      {"bf16_bias", "the selection bias is rounded to bf16 although the spec says fp32", "selection",
       "sgl-project/sglang#31213, vllm-project/vllm#50761", &kBias},
      {"ties_to_higher_id", "of equal keys the higher expert id is chosen first", "selection",
       "ggml-org/llama.cpp#17659", &kTies},
  };
  return kMutants;
}

const Mutant* find_mutant(const char* name) {
  for (const Mutant& mutant : all_mutants()) {
    if (std::strcmp(mutant.name, name) == 0) return &mutant;
  }
  return nullptr;
}

}  // namespace samebits::mutants
