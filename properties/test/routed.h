// What the oracle answers on a case, row by row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "oracle/emulate/tc256.h"
#include "oracle/reference/answer.h"
#include "properties/case.h"

namespace samebits::properties {

inline std::vector<oracle::RowAnswer<float>> route(const Case& c, const oracle::RouterInputs& inputs) {
  std::vector<std::int64_t> rows(static_cast<std::size_t>(inputs.num_tokens));
  std::iota(rows.begin(), rows.end(), std::int64_t{0});
  const std::vector<float> logits =
      inputs.from_logits() ? inputs.router_logits : oracle::tc256_logits(c.spec, inputs, rows);
  const auto E = static_cast<std::size_t>(inputs.gate_rows);
  std::vector<oracle::RowAnswer<float>> answers;
  for (std::size_t row = 0; row < rows.size(); ++row) {
    const auto constants = oracle::row_constants(c.spec, inputs, static_cast<std::int64_t>(row));
    answers.push_back(oracle::route_row(c.spec, std::span(logits).subspan(row * E, E), constants));
  }
  return answers;
}
inline std::vector<oracle::RowAnswer<float>> route(const Case& c) {
  return route(c, materialize(c));
}

}  // namespace samebits::properties
