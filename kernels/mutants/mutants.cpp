#include "kernels/mutants/mutants.h"

#include <cstring>

#include "kernels/mutants/faults.h"

namespace samebits::mutants {
namespace {

// The CPU router under another name, with one step replaced.
template <class Step>
cpu::Steps with(const char* name, Step cpu::Steps::*step, Step fault) {
  cpu::Steps steps = cpu::tc256_steps();
  steps.name = name;
  steps.*step = fault;
  return steps;
}

}  // namespace

std::span<const Mutant> all_mutants() {
  using cpu::Steps;
  static const Steps kSplit = with("row_dependent_split", &Steps::logits, split_logits);
  static const Steps kBias = with("bf16_bias", &Steps::prepare_bias, bf16_selection_bias);
  static const Steps kTies = with("ties_to_higher_id", &Steps::select, select_higher_id);
  static const Steps kSoftcap = with("softcap_by_exponentials", &Steps::logits, softcap_by_exponentials);
  static const Steps kZero = with("softmax_without_zero_experts", &Steps::score, softmax_without_zero_experts);
  static const Steps kClass = with("text_bias_for_image_rows", &Steps::key, keys_of_first_class);
  static const Steps kHashOrder = with("hash_ids_by_score", &Steps::select, hash_ids_by_score);
  static const Steps kHashWeights = with("uniform_hash_weights", &Steps::weigh, uniform_hash_weights);
  static const Steps kBiased = with("biased_weights", &Steps::value, biased_values);
  static const Steps kSparse = with("sparsemixer_with_kept_mask", &Steps::value, sparsemixer_with_kept_mask);
  static const Steps kShared = with("sum_without_shared_experts", &Steps::weigh, sum_without_shared_experts);
  static const Steps kSlotScale = with("expert_scale_by_slot", &Steps::weigh, expert_scale_by_slot);
  static const Mutant kMutants[] = {
      {"row_dependent_split", "more than 16 rows: the sum over H is cut in two halves that are added at the end",
       "batch_invariance",
       "cuBLAS on H100 and H200 splits K for small batches only; SGLang's tiny router GEMM stops at 16 rows", &kSplit},
      {"bf16_bias", "the selection bias is rounded to bf16 although the spec says fp32", "selection",
       "sgl-project/sglang#31213, vllm-project/vllm#50761", &kBias},
      {"ties_to_higher_id", "of equal keys the higher expert id is chosen first", "selection",
       "ggml-org/llama.cpp#17659", &kTies},
      {"softcap_by_exponentials", "the softcap is a quotient of exponentials, NaN for 2z / c above 88.7", "precision",
       "a SGLang path that forms tanh from exponentials", &kSoftcap},
      {"softmax_without_zero_experts", "the sum of the softmax leaves the zero experts out", "weights",
       "LongCat-Flash: softmax over 768 rows, 256 of them zero experts", &kZero},
      {"text_bias_for_image_rows", "rows of every class are ranked with the bias of the first", "selection",
       "engines that load the bias of image rows and never read it", &kClass},
      {"hash_ids_by_score", "ids from a hash table are sorted by score", "order",
       "hash layers of DeepSeek-V4: ids in table order", &kHashOrder},
      {"uniform_hash_weights", "experts from a hash table all get the same weight", "weights",
       "pie #480: 1/k instead of the renormalised scores of the chosen", &kHashWeights},
      {"biased_weights", "weights come from score + bias although the spec says unbiased", "weights",
       "vllm-project/vllm#11971, huggingface/transformers#39581", &kBiased},
      {"sparsemixer_with_kept_mask", "the threshold mask of the first pass is kept in the later ones", "weights",
       "Phi-3.5-MoE: each pass has a mask of its own", &kSparse},
      {"sum_without_shared_experts", "shared experts in the gate take no part in the sum", "weights",
       "Inkling: shared experts are normalised with the routed ones", &kShared},
      {"expert_scale_by_slot", "the scale of an expert is looked up by slot instead of by id", "weights",
       "Gemma-4: per_expert_scale is gathered by id", &kSlotScale},
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
