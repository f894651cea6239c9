// The right answer for one row, with every intermediate value, in the arithmetic `Real`:
//   float   the contract tc256, bit for bit (functions and orders of oracle/emulate)
//   double  the formulas of the published router, to double precision: an error-bounded witness
// One step a file: score.h, rank_key.h, groups.h, select.h, sparsemixer.h, weigh.h, log_space.h, bookkeeping.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "oracle/spec/router_spec.h"
#include "oracle/tensors/router_inputs.h"
#include "oracle/tensors/router_outputs.h"

namespace samebits::oracle {

// What one row reads beside its logits. Views into the tensors of a case, which must outlive it.
struct RowConstants {
  std::span<const float> selection_bias = {};    // [R] of the row's class, or empty
  std::span<const float> per_expert_scale = {};  // [G] or empty
  std::optional<float> global_scale = {};
  std::span<const std::int32_t> table_ids = {};  // [k] of the row's token, or empty
  // false: the token id is outside the table, or the row class is none of the bias variants. The row has no answer.
  bool routable = true;
};
// Of row `row` in [0, T). Throws std::out_of_range where a vector that the spec asks for is too short.
RowConstants row_constants(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t row);

// K columns: the k chosen in key order (hash_table: in table order), then the shared experts in the gate; with
// sort by_index sorted by id.
template <class Real>
struct RowAnswer {
  std::vector<Real> logits;        // [G] finished logits
  std::vector<Real> scores;        // [G]; 0 where no score is defined: after_topk and sparsemixer except at the chosen,
                                   // softmax at shared experts
  std::vector<Real> keys;          // [R] rank keys as ranked, after a `zero` mask; empty for hash_table
  std::vector<Real> group_scores;  // [n_group] or empty
  std::vector<std::uint8_t> group_kept;  // [n_group] or empty
  std::vector<std::uint8_t> excluded;    // [R] 1: masked by neg_inf; empty for hash_table
  std::vector<std::int32_t> ids;         // [K] as returned; -1 in a row that is not routable
  std::vector<std::int32_t> expert_ids;  // [K] the same before zero experts were renamed to id 0
  std::vector<Real> weights;             // [K] as returned
  std::vector<Real> values;              // [K] what the weights start from, in the order of `ids`, NaN as 0: the
                                         // chosen (biased) scores; log_space_l1: e^(l - max l)
  Real sum{};                            // S: left fold of the values in slot order; log_space_l1: their sum32
  Real denominator{};                    // D as the spec says, 1 without renormalisation; 0: all weights are 0
  // The cut: expert just above it (worst key of the chosen), and the best that was not chosen and is not excluded.
  // per_group: of the group where the two keys are nearest (the lowest such group). -1: none, as in a table.
  std::int32_t last_chosen = -1;
  std::int32_t first_rejected = -1;
};

// From finished logits onwards; `logits` has G entries. The bias is rounded here when the spec says bf16. Throws
// std::invalid_argument where logits or constants have other sizes than the spec asks for.
RowAnswer<float> route_row(const RouterSpec& spec, std::span<const float> logits, const RowConstants& constants);
RowAnswer<double> route_row(const RouterSpec& spec, std::span<const double> logits, const RowConstants& constants);

// Logits in double precision (H products of exact values, summed in double, then linear bias, temperature, softcap).
// Of the spec's roundings only those to bf16 take place: of a prepared input and, if the spec says so, of the logit.
// Output [G].
std::vector<double> logits_fp64(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t row);

// Distance of two finite fp32 values in units of the last place along the number line (+0 and -0 are one point).
std::int64_t ulp_distance(float a, float b);

// Counts, offsets, both permutations and (block_size > 0) the padded block form, from ids [T, K] in 0 .. num_ids - 1;
// others belong to nobody.
Bookkeeping bookkeeping(std::span<const std::int64_t> topk_ids, std::int64_t num_tokens, std::int64_t topk_columns,
                        std::int64_t num_ids, std::int32_t block_size);

}  // namespace samebits::oracle
