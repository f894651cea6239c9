// What the oracle says about the rows of one case: computed when a law first asks, then kept.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "oracle/reference/answer.h"
#include "properties/case.h"
#include "properties/certificate.h"

namespace samebits::properties {

// Rows are those of the case, 0 <= row < num_rows; padding rows have no answer. The references stay valid.
class OracleAnswers {
 public:
  // The arguments must outlive this. num_rows: valid rows, at most inputs.num_tokens.
  OracleAnswers(const Case& c, const oracle::RouterInputs& inputs, std::int64_t num_rows, const Claims& claims);

  std::int64_t num_rows() const { return num_rows_; }
  // Finished logits [G] of the contract tc256, or the given logits of a case that starts from logits.
  std::span<const float> logits(std::int64_t row);
  // The answer of the contract tc256.
  const oracle::RowAnswer<float>& row(std::int64_t row);
  // What the declared arithmetic may answer.
  const BoundedRow& bounded(std::int64_t row);

 private:
  const Case& c_;
  const oracle::RouterInputs& inputs_;
  std::int64_t num_rows_;
  const Claims& claims_;
  std::optional<std::vector<float>> logits_;  // [num_rows, G]; not used from logits
  std::vector<oracle::RowAnswer<float>> rows_;
  std::vector<BoundedRow> bounded_;
};

}  // namespace samebits::properties
