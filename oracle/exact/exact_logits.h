// Logits of one row as infinitely precise arithmetic gives them: to an error bound first, without error on demand.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "oracle/emulate/exact_sum.h"
#include "oracle/exact/input_bounds.h"
#include "oracle/exact/interval.h"
#include "oracle/spec/router_spec.h"
#include "oracle/tensors/router_inputs.h"

namespace samebits::oracle {

// The published formulas: prepared input rounded to bf16, sum of products and linear bias, one rounding to bf16 where
// the spec has it, temperature, softcap; nothing else is rounded. Refers to `spec` and `inputs`.
class ExactLogits {
 public:
  ExactLogits(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t row);

  // False: an operand or a logit is not finite in fp32; then there is nothing else to ask.
  bool finite() const { return finite_; }
  const std::vector<Interval>& intervals() const { return intervals_; }  // [G]
  double value(std::int64_t expert) const { return values_[static_cast<std::size_t>(expert)]; }
  double radius(std::int64_t expert) const;  // |logit - value| at the most

  // Sums the products of one expert without error and rounds the sum to double, or to bf16 where the spec does: what
  // remains of the interval is that rounding, and what temperature and softcap lose in double.
  void refine(std::int64_t expert);
  // The order of two logits, both refined or given: as the exact sums say, or after the rounding to bf16 of the spec
  // (what follows grows with the sum). nullopt: a prepared input could not be told from its bf16 neighbour.
  std::optional<std::strong_ordering> compare(std::int64_t a, std::int64_t b) const;

 private:
  void put(std::int64_t expert, double sum, Interval bounds);
  Interval finished(Interval sum) const;

  const RouterSpec& spec_;
  const RouterInputs& inputs_;
  bool finite_ = true;
  InputBounds x_;
  std::vector<Interval> intervals_;
  std::vector<double> values_;
  std::vector<std::optional<ExactSum>> sums_;  // of those that were refined
};

}  // namespace samebits::oracle
