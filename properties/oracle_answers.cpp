#include "properties/oracle_answers.h"

#include <numeric>

#include "oracle/emulate/tc256.h"
#include "properties/for_each_row.h"

namespace samebits::properties {
OracleAnswers::OracleAnswers(const Case& c, const oracle::RouterInputs& inputs, std::int64_t num_rows,
                             const Claims& claims)
    : c_(c), inputs_(inputs), num_rows_(num_rows), claims_(claims) {}

std::span<const float> OracleAnswers::logits(std::int64_t row) {
  const auto width = static_cast<std::size_t>(inputs_.gate_rows);
  if (!inputs_.from_logits() && !logits_) {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(num_rows_));
    std::iota(rows.begin(), rows.end(), std::int64_t{0});
    logits_ = oracle::tc256_logits(c_.spec, inputs_, rows);
  }
  const std::vector<float>& all = inputs_.from_logits() ? inputs_.router_logits : *logits_;
  return std::span(all).subspan(static_cast<std::size_t>(row) * width, width);
}

const oracle::RowAnswer<float>& OracleAnswers::row(std::int64_t row) {
  if (rows_.empty()) {
    logits(0);  // computed before the threads start
    rows_.resize(static_cast<std::size_t>(num_rows_));
    for_each_row(num_rows_, [this](std::int64_t r) {
      rows_[static_cast<std::size_t>(r)] =
          oracle::route_row(c_.spec, logits(r), oracle::row_constants(c_.spec, inputs_, r));
    });
  }
  return rows_[static_cast<std::size_t>(row)];
}

const BoundedRow& OracleAnswers::bounded(std::int64_t row) {
  if (bounded_.empty()) {
    bounded_.resize(static_cast<std::size_t>(num_rows_));
    for_each_row(num_rows_, [this](std::int64_t r) {
      bounded_[static_cast<std::size_t>(r)] =
          bound_row(c_.spec, oracle::logit_bounds(c_.spec, inputs_, r, claims_.arithmetic), inputs_.from_logits(),
                    oracle::row_constants(c_.spec, inputs_, r), claims_.tie_rule);
    });
  }
  return bounded_[static_cast<std::size_t>(row)];
}

}  // namespace samebits::properties
