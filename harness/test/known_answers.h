// Case files whose right answer is known from outside, and what the oracle answers.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "harness/cli/known_answer.h"
#include "harness/io/case_file.h"
#include "oracle/emulate/tc256.h"
#include "oracle/reference/answer.h"
#include "properties/case.h"
#include "properties/run.h"

namespace samebits::harness {

inline std::filesystem::path cases_folder() {
  return std::filesystem::path(SAMEBITS_FIXTURES_DIR) / "cases";
}
inline CaseFile read_case(const std::string& name) {
  return read_case_file(cases_folder() / (name + ".yaml"));
}

// Nothing when the outputs are those that the file states.
inline std::optional<std::string> contradiction(const KnownAnswer& answer, const oracle::RouterOutputs& outputs) {
  properties::Claims claims;
  claims.output_order = properties::OutputOrder::kKeyDescThenIndex;
  properties::Run run;
  run.request.id = "main";
  run.result.outputs = outputs;
  const properties::LawOutcome outcome = check_known_answer(answer, claims, {run});
  EXPECT_EQ(outcome.relevant, static_cast<std::int64_t>(answer.rows.size()));
  if (!outcome.violation) return std::nullopt;
  return fmt::format("{}: {}; stated: {}", outcome.violation->summary, outcome.violation->observed,
                     outcome.violation->expected);
}

// What the oracle answers, in the contract's arithmetic. The inputs may hold tensors that the spec does not ask for.
inline oracle::RouterOutputs run_oracle(const oracle::RouterSpec& spec, const oracle::RouterInputs& inputs) {
  oracle::RouterOutputs outputs;
  outputs.num_tokens = inputs.num_tokens;
  outputs.top_k = oracle::topk_columns(spec);
  const auto num_slots = static_cast<std::size_t>(outputs.num_tokens * outputs.top_k);
  outputs.topk_ids.assign(num_slots, -1);
  outputs.topk_weights.assign(num_slots, 0.0f);
  std::vector<std::int64_t> rows(static_cast<std::size_t>(inputs.valid_rows()));
  std::iota(rows.begin(), rows.end(), 0);
  const std::vector<float> logits =
      inputs.from_logits() ? inputs.router_logits : oracle::tc256_logits(spec, inputs, rows);
  for (const std::int64_t row : rows) {
    const auto row_logits = std::span(logits).subspan(static_cast<std::size_t>(row * inputs.gate_rows),
                                                      static_cast<std::size_t>(inputs.gate_rows));
    const oracle::RowAnswer<float> answer =
        oracle::route_row(spec, row_logits, oracle::row_constants(spec, inputs, row));
    std::copy(answer.ids.begin(), answer.ids.end(), outputs.topk_ids.begin() + row * outputs.top_k);
    std::copy(answer.weights.begin(), answer.weights.end(), outputs.topk_weights.begin() + row * outputs.top_k);
  }
  return outputs;
}
inline oracle::RouterOutputs run_oracle(const properties::Case& c) {
  return run_oracle(c.spec, properties::materialize(c));
}

// The outputs with the rows that another router reported.
inline oracle::RouterOutputs overwritten(oracle::RouterOutputs outputs, const std::vector<ExpectedRow>& rows) {
  for (const ExpectedRow& row : rows) {
    const std::int64_t first = row.row * outputs.top_k;
    std::copy(row.topk_ids.begin(), row.topk_ids.end(), outputs.topk_ids.begin() + first);
    for (std::size_t slot = 0; slot < row.topk_weights.size(); ++slot) {
      outputs.topk_weights[static_cast<std::size_t>(first) + slot] = static_cast<float>(row.topk_weights[slot]);
    }
  }
  return outputs;
}

}  // namespace samebits::harness
