// The right answer for one row, with every intermediate value, in the arithmetic `Real`:
//   float   the contract tc256, bit for bit (functions and orders of oracle/emulate)
//   double  the formulas of the published router, to double precision: an error-bounded witness
// One step a file: score.h, rank_key.h, groups.h, select.h, weigh.h, bookkeeping.cpp.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "oracle/spec/router_spec.h"
#include "oracle/tensors/router_inputs.h"
#include "oracle/tensors/router_outputs.h"

namespace samebits::oracle {

template <class Real>
struct RowAnswer {
  std::vector<Real> logits;              // [E] finished logits
  std::vector<Real> scores;              // [E]; for after_topk: 0 except at the chosen
  std::vector<Real> keys;                // [E] rank keys as ranked, after a `zero` mask
  std::vector<Real> group_scores;        // [n_group] or empty
  std::vector<std::uint8_t> group_kept;  // [n_group] or empty
  std::vector<std::uint8_t> excluded;    // [E] 1: masked by neg_inf
  std::vector<std::int32_t> ids;         // [K] in output order
  std::vector<Real> weights;             // [K] in output order
  Real sum{};                            // S: left fold of the chosen scores in key order, NaN as 0
  Real denominator{};                    // D as the spec says, 1 without renormalisation; 0: all weights are 0
  std::int32_t last_chosen = -1;         // expert just above the cut (worst key of the chosen)
  std::int32_t first_rejected = -1;      // best expert that was not chosen and is not excluded; -1: none
};

// From finished logits onwards. `logits` has E entries; `selection_bias` E entries or none. The bias is rounded here
// when the spec says bf16.
RowAnswer<float> route_row(const RouterSpec& spec, std::span<const float> logits,
                           std::span<const float> selection_bias);
RowAnswer<double> route_row(const RouterSpec& spec, std::span<const double> logits,
                            std::span<const float> selection_bias);

// Logits in double precision (H products of exact values, summed in double, then linear bias), not rounded to
// logits_dtype unless the spec says bf16. Output [E].
std::vector<double> logits_fp64(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t row);

// Distance of two finite fp32 values in units of the last place along the number line (+0 and -0 are one point).
std::int64_t ulp_distance(float a, float b);

// Counts, offsets, both permutations and (block_size > 0) the padded block form, from ids [T, K].
Bookkeeping bookkeeping(std::span<const std::int64_t> topk_ids, std::int64_t num_tokens, std::int64_t top_k,
                        std::int64_t num_experts, std::int32_t block_size);

}  // namespace samebits::oracle
