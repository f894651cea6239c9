// A router as a struct of steps. The embedded backend is one value of it; a mutant is the same value with one step
// replaced. A step sees one row (logits: a block of rows, because weights are reused across them). Steps allocate
// nothing and may run on several threads at once.
#pragma once

#include <cstdint>

#include "samebits/samebits.h"

namespace samebits::cpu {

class GateWeight;  // packed once at creation (gate_weight.h)

// Constants of a router in the form that the steps read. The selection bias was rounded as the spec asks at creation,
// by prepare_bias; the linear bias likewise.
struct RouterConstants {
  samebits_router_spec spec;
  const GateWeight* gate_weight;  // null: from logits only
  const float* linear_bias;       // [E] or null
  const float* selection_bias;    // [E] or null
};

// Scratch of one thread, [E] each unless said otherwise.
struct RowScratch {
  float* scores;
  float* keys;
  float* group_scores;     // [n_group]
  std::int32_t* groups;    // [n_group]
  std::uint8_t* excluded;  // 1: masked by neg_inf, never chosen
  std::int32_t* ids;       // [K], key descending then lower id
  float* chosen_logits;    // [K]
  float* chosen_scores;    // [K]
};

struct Steps {
  const char* name;
  // out[i] = the selection bias as the keys use it: rounded to bf16 exactly when the spec says bf16.
  void (*prepare_bias)(const samebits_router_spec& spec, const float* bias, float* out);
  // Finished logits of num_rows rows, logits[r][e]; num_tokens is the T of the whole call. row_stride and
  // logits_stride count elements. May be called with any split of the rows.
  void (*logits)(const RouterConstants& constants, const std::uint16_t* hidden_states, std::int64_t row_stride,
                 std::int64_t num_rows, std::int64_t num_tokens, float* logits, std::int64_t logits_stride);
  void (*score)(const RouterConstants& constants, const float* logits, float* scores);
  void (*key)(const RouterConstants& constants, const float* logits, const float* scores, float* keys);
  // Fills scratch.excluded, may rewrite scratch.keys (mask zero), and writes K ids.
  void (*select)(const RouterConstants& constants, RowScratch& scratch);
  // weights[c] for ids[c]; may reorder both (sort: by_index).
  void (*weigh)(const RouterConstants& constants, const float* logits, RowScratch& scratch, float* weights);
  // From finished ids of all rows, [T, K] in int32 (-1: padding). scratch is [E].
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
