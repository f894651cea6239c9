// The routed scaling factor twice, never or only sometimes; learned scales by the wrong index.
#include <cmath>

#include "kernels/common/sizes.h"
#include "kernels/cpu/weigh.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

using cpu::RouterConstants;
using cpu::RowScratch;

void weigh_without_scale(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  RouterConstants unscaled = constants;
  unscaled.spec.routed_scaling_factor = 1.0f;
  cpu::weigh_tc256(unscaled, scratch, weights);
}

void scale_twice(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  cpu::weigh_tc256(constants, scratch, weights);
  for (std::int64_t c = 0; c < topk_columns(constants.spec); ++c) weights[c] *= constants.spec.routed_scaling_factor;
}

void scale_only_if_renormalized(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  const bool off = constants.spec.renormalize == SAMEBITS_RENORM_NONE;
  (off ? weigh_without_scale : cpu::weigh_tc256)(constants, scratch, weights);
}

// A renormalisation after the scale takes it back.
void scale_only_if_not_renormalized(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  const bool off = constants.spec.renormalize == SAMEBITS_RENORM_NONE;
  (off ? cpu::weigh_tc256 : weigh_without_scale)(constants, scratch, weights);
}

void expert_scale_by_slot(const RouterConstants& constants, RowScratch& scratch, float* weights) {
  RouterConstants unscaled = constants;
  unscaled.per_expert_scale = nullptr;
  cpu::weigh_tc256(unscaled, scratch, weights);
  if (constants.per_expert_scale == nullptr) return;
  for (std::int64_t c = 0; c < topk_columns(constants.spec); ++c) {
    const float weight = weights[c] * constants.per_expert_scale[c];
    weights[c] = std::isfinite(weight) ? weight : 0.0f;
  }
}

}  // namespace

std::vector<Mutant> scale_mutants() {
  using cpu::Steps;
  return {
      {"M37",
       "scale_twice",
       "the routed scaling factor is applied twice",
       "sum",
       "vllm-project/vllm#24119, vllm-project/vllm#45037, sgl-project/sglang#35152",
       {"glm-5.3-flash"},
       with(&Steps::weigh, scale_twice)},
      {"M38",
       "scale_never",
       "the routed scaling factor is not applied",
       "sum",
       "sgl-project/sglang#8333, flashinfer-ai/flashinfer#3499",
       {"glm-5.3-flash"},
       with(&Steps::weigh, weigh_without_scale)},
      {"M39",
       "scale_only_if_renormalized",
       "the routed scaling factor is applied only where weights are renormalised",
       "sum",
       "sgl-project/sgl-jax#1282",
       {"deepseek-v2"},
       with(&Steps::weigh, scale_only_if_renormalized)},
      {"M40",
       "scale_only_if_not_renormalized",
       "the routed scaling factor comes before the renormalisation, which takes it back",
       "sum",
       "sgl-project/sglang#31449, InternLM/lmdeploy#3263",
       {"glm-5.3-flash"},
       with(&Steps::weigh, scale_only_if_not_renormalized)},
      {"U06",
       "expert_scale_by_slot",
       "the scale of an expert is looked up by slot instead of by id",
       "weights",
       "Gemma-4: per_expert_scale is gathered by id",
       {"gemma-4-26b-a4b"},
       with(&Steps::weigh, expert_scale_by_slot)},
  };
}

}  // namespace samebits::mutants
