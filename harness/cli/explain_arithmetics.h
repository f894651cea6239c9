// explain: the row with infinitely precise logits, and in arithmetics other than the contract's.
#pragma once

#include <string>
#include <vector>

#include "harness/cli/explain_contract.h"
#include "oracle/emulate/arithmetic_model.h"

namespace samebits::harness {

struct ArithmeticForm {
  std::string form;  // "tc-chunks:C[@ARCHITECTURE]"
  const char* meaning;
};
// All forms that arithmetic_model() reads.
std::vector<ArithmeticForm> arithmetic_forms();

// The models of these names; without names, a fixed list less what cannot differ from another entry for this spec and
// hidden size. Throws UsageError for a name that is none, or does not fit the hidden size.
std::vector<oracle::ArithmeticModel> chosen_arithmetics(const std::vector<std::string>& names,
                                                        const oracle::RouterSpec& spec, std::int64_t hidden_size);

// What logits without rounding errors choose, and how that is known; nothing where a table chooses. Both are for rows
// that have an answer and start from hidden states.
void print_exact_choice(const ExplainedRow& row);
void print_arithmetics(const ExplainedRow& row, const std::vector<oracle::ArithmeticModel>& models);

}  // namespace samebits::harness
