// A router as a struct of steps. The embedded backend is one value of it; a mutant is the same value with one step
// replaced. A step sees one row (logits: a block of rows, because weights are reused across them). Steps allocate
// nothing and may run on several threads at once. Sizes E, R, G, k and K: sizes.h.
#pragma once

#include <cstdint>

#include "samebits/samebits.h"

namespace samebits::cpu {

class GateWeight;  // packed once at creation (gate_weight.h)

// Constants of a router in the form that the steps read. The selection bias was rounded as the spec asks at creation,
// by prepare_bias; the linear bias likewise.
struct RouterConstants {
  samebits_router_spec spec;
  const GateWeight* gate_weight;    // null: from logits only
  const float* linear_bias;         // [G] or null
  const float* selection_bias;      // [num_bias_variants, R] or null
  const float* input_scale_vector;  // [H] or null
  float input_scale;                // the factor on the input; 1: none
  const float* per_expert_scale;    // [G] or null
  const float* global_scale;        // [1] or null
  const std::int32_t* hash_table;   // [hash_vocab_size, k], checked; null unless the spec has one
};

// What a call says about a row beside its input. A row that reaches select has a class and a token id in range.
struct RowInfo {
  std::int64_t row_class = 0;  // row of the selection bias
  std::int64_t token_id = 0;   // row of the hash table
};

// Scratch of one thread.
struct RowScratch {
  float* input;            // [H], only where the input is prepared
  float* scores;           // [G]
  float* keys;             // [R]
  float* group_scores;     // [n_group]
  std::int32_t* groups;    // [n_group]
  std::uint8_t* excluded;  // [R] 1: masked by neg_inf, never chosen
  std::int32_t* ids;       // [K], the k chosen in slot order, then the shared experts in the gate
  float* chosen_logits;    // [K]
  float* chosen_values;    // [K]
};

struct Steps {
  const char* name;
  // out[i] = the R selection biases of a row class as the keys use them: rounded to bf16 exactly when the spec says
  // bf16.
  void (*prepare_bias)(const samebits_router_spec& spec, const float* bias, float* out);
  // The row that the gate reads, [H] in bf16, where has_prepared_input(spec).
  void (*prepare_input)(const RouterConstants& constants, const std::uint16_t* hidden_state, RowScratch& scratch,
                        std::uint16_t* prepared);
  // Finished logits of num_rows rows, logits[r][0 .. G); num_tokens is the T of the whole call. hidden_states is the
  // prepared input where there is one. row_stride and logits_stride count elements. May be called with any split of
  // the rows.
  void (*logits)(const RouterConstants& constants, const std::uint16_t* hidden_states, std::int64_t row_stride,
                 std::int64_t num_rows, std::int64_t num_tokens, float* logits, std::int64_t logits_stride);
  // scores[0 .. G), where all experts are scored before the choice.
  void (*score)(const RouterConstants& constants, const float* logits, float* scores);
  // keys[0 .. R).
  void (*key)(const RouterConstants& constants, const RowInfo& row, const float* logits, const float* scores,
              float* keys);
  // Fills scratch.excluded, may rewrite scratch.keys (mask zero), and writes the k chosen ids.
  void (*select)(const RouterConstants& constants, const RowInfo& row, RowScratch& scratch);
  // scratch.chosen_logits and chosen_values of the K ids: what the weights start from. May rewrite keys and scores.
  void (*value)(const RouterConstants& constants, const RowInfo& row, const float* logits, RowScratch& scratch);
  // weights[c] for ids[c], from chosen_logits and chosen_values, which it may rewrite; may reorder ids and weights
  // (sort: by_index) and remap ids of zero experts.
  void (*weigh)(const RouterConstants& constants, RowScratch& scratch, float* weights);
  // From finished ids of all rows, [T, K] in int32 (-1: none). scratch is [G].
  void (*bookkeep)(const RouterConstants& constants, const std::int32_t* ids, std::int64_t num_tokens,
                   std::int32_t* scratch, samebits_outputs& outputs);
};

const Steps& tc256_steps();  // the contract tc256

// samebits_create with other steps: how mutants become routers. All other ABI functions work on the result.
samebits_status create_with_steps(const Steps& steps, const samebits_router_spec* spec,
                                  const samebits_constants* constants, samebits_router** router);

// Test hook: number of threads over rows, also where the work is too small to be worth it (0: one per hardware thread,
// and fewer where the work is small). Takes effect with the next call of samebits_workspace_bytes.
void set_num_threads(int num_threads);

}  // namespace samebits::cpu
