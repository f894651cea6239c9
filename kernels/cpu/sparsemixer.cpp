#include "kernels/cpu/sparsemixer.h"

#include <cmath>
#include <limits>

#include "kernels/common/bits.h"
#include "kernels/common/sizes.h"
#include "kernels/cpu/simd.h"

namespace samebits::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

}  // namespace

void sparsemixer_pass(const samebits_router_spec& spec, const float* logits, std::int32_t chosen,
                      const std::int32_t* earlier, std::int64_t num_earlier, float* pass) {
  const float top = logits[chosen], limit = 2.0f * spec.sparsemixer_jitter_eps;
  for (std::int64_t e = 0; e < ranked_experts(spec); ++e) {
    const float magnitude = std::fabs(logits[e]);
    const float distance = (top - logits[e]) / (magnitude > top ? magnitude : top);
    pass[e] = distance > limit ? -kInf : logits[e];  // NaN takes part
  }
  for (std::int64_t i = 0; i < num_earlier; ++i) pass[earlier[i]] = -kInf;
}

void sparsemixer_scores(const samebits_router_spec& spec, const float* logits, RowScratch& scratch) {
  for (std::int64_t c = 0; c < spec.top_k; ++c) {
    const std::int32_t chosen = scratch.ids[c];
    sparsemixer_pass(spec, logits, chosen, scratch.ids, c, scratch.keys);
    softmax(scratch.keys, ranked_experts(spec), scratch.scores);
    const float score = scratch.scores[chosen];
    scratch.chosen_values[c] = spec.score_dtype == SAMEBITS_BF16 ? round_to_bf16(score) : score;
  }
}

}  // namespace samebits::cpu
