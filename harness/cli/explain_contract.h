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
  std::vector<float> logits;            // [E] finished
  std::vector<float> unrounded_logits;  // [E] before their rounding to bf16; empty: not rounded, or given as finished
  oracle::RowAnswer<float> answer;
};

// What a router returned for the row; weights belong to the ids.
struct ObservedRow {
  std::string run;       // "main"
  std::int64_t row = 0;  // of the run
  std::vector<std::int64_t> ids;
  std::vector<float> weights;
  std::vector<float> logits;  // [E] or empty
};

// "8.03", "-0.0", "nan", "inf"
std::string number_text(float value);
// "8.03 (0x41007ae1)"
std::string number_and_bits(float value);

void print_steps(const ExplainedRow& row);
// The experts around the cut, every chosen one up to a limit, and those that `observed` (may be null) chose; or all.
void print_experts(const ExplainedRow& row, const ObservedRow* observed, bool all);
void print_groups(const ExplainedRow& row);
void print_cut(const ExplainedRow& row);
void print_weights(const ExplainedRow& row);

}  // namespace samebits::harness
