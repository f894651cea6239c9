// Scores of sparsemixer: one softmax for each chosen expert, over the experts near it.
#pragma once

#include "kernels/select/row.cuh"
#include "kernels/select/score.cuh"

namespace samebits::cuda {

// values[0 .. k) of ids. Overwrites keys and scores, whose use is over or none. By the whole block.
__device__ inline void sparsemixer_scores(Block block, const RouterView& router, const RowMemory& memory) {
  const samebits_router_spec& spec = router.spec;
  const float limit = fmul(2.0f, spec.sparsemixer_jitter_eps);
  float* pass = reinterpret_cast<float*>(memory.keys);
  for (int c = 0; c < router.top_k; ++c) {
    const int chosen = memory.ids[c];
    const float top = memory.logits[chosen];
    for (int e = block.rank(); e < router.ranked_experts; e += block.size) {
      const float logit = memory.logits[e], size = magnitude(logit);
      bool takes_part = !(fdiv(fsub(top, logit), size > top ? size : top) > limit);  // NaN takes part
      for (int earlier = 0; earlier < c; ++earlier) takes_part = takes_part && memory.ids[earlier] != e;
      pass[e] = takes_part ? logit : -infinity();
    }
    block.sync();
    softmax(block, pass, router.ranked_experts, memory.scores);
    block.sync();
    if (block.rank() == 0) {
      const float score = memory.scores[chosen];
      memory.values[c] = spec.score_dtype == SAMEBITS_BF16 ? round_to_bf16(score) : score;
    }
    block.sync();
  }
}

}  // namespace samebits::cuda
