// explain: what the contract does with one row.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "oracle/reference/answer.h"
#include "oracle/spec/router_spec.h"

namespace samebits::harness {

// One row and its right answer.
struct ExplainedRow {
  const oracle::RouterSpec& spec;
  const oracle::RouterInputs& inputs;
  std::int64_t row = 0;  // of the case
  oracle::RowConstants constants = {};
  std::vector<std::uint16_t> prepared_input = {};  // [H] bf16; empty: the hidden states as they are, or given logits
  std::vector<float> logits = {};                  // [G] finished
  std::vector<float> uncapped_logits = {};         // [G] before the softcap; empty: none, or given logits
  oracle::RowAnswer<float> answer = {};
};

// What a router returned for the row; weights belong to the ids.
struct ObservedRow {
  std::string run;       // "main"
  std::int64_t row = 0;  // of the run
  std::vector<std::int64_t> ids;
  std::vector<float> weights;
  std::vector<float> logits;  // [G] or empty
};

// "8.03", "-0.0", "nan", "inf"
std::string number_text(float value);
// "8.03 (0x41007ae1)"
std::string number_and_bits(float value);

// "s / D * 2.5"
std::string weight_formula(const oracle::RouterSpec& spec);
// "expert 5, 6 instead of 2, 3", or "" where the two sets are equal.
std::string replaced_experts(std::vector<std::int32_t> before, std::vector<std::int32_t> after);
// The chosen experts under their own ids, in the order in which slots are filled and sums run.
std::vector<std::int32_t> slot_order(const ExplainedRow& row);

void print_steps(const ExplainedRow& row);
// The experts around the cut, every chosen one up to a limit, and those that `observed` (may be null) chose; or all.
void print_experts(const ExplainedRow& row, const ObservedRow* observed, bool all);
void print_groups(const ExplainedRow& row);
void print_cut(const ExplainedRow& row);
// The passes of sparsemixer; nothing for other methods.
void print_passes(const ExplainedRow& row);
void print_weights(const ExplainedRow& row);

}  // namespace samebits::harness
