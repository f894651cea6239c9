#include "oracle/exact/exact_logits.h"

#include <cmath>

#include "oracle/exact/dot.h"
#include "oracle/reference/arithmetic.h"

namespace samebits::oracle {
namespace {

double to_bf16(const ExactSum& sum) {
  return ArithmeticOf<double>::round_to_bf16(sum.rounded_to_odd());
}

}  // namespace

// Sum to double: a term meets the additions of its lane and of the lanes, and that of the bias; the radius itself is a
// few roundings off.
ExactLogits::ExactLogits(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t row)
    : spec_(spec),
      inputs_(inputs),
      intervals_(static_cast<std::size_t>(inputs.gate_rows)),
      values_(intervals_.size()),
      sums_(intervals_.size()) {
  if (inputs.from_logits()) {
    for (std::int64_t e = 0; e < inputs.gate_rows; ++e) {
      const double given = inputs.router_logits[static_cast<std::size_t>(row * inputs.gate_rows + e)];
      finite_ = finite_ && std::isfinite(given);
      intervals_[static_cast<std::size_t>(e)] = {given, given};
      values_[static_cast<std::size_t>(e)] = given;
    }
    return;
  }
  const auto x = exact_input(spec, inputs, row);
  finite_ = x.has_value();
  if (!finite_) return;
  x_ = *x;
  for (std::int64_t e = 0; e < inputs.gate_rows && finite_; ++e) {
    const std::vector<double> w = gate_weight_row(inputs, e);
    const double bias = linear_bias(spec, inputs, e);
    const Dot product = dot(x_.middle, w);
    const double sum = product.value + bias;
    const double total = product.total + std::fabs(bias);
    const double radius = (x_.spread(w) + gamma_n(product.depth + 1.0, kUnitDouble) * total) * kStretch;
    finite_ = std::isfinite(total);
    if (!finite_) return;
    put(e, sum, {sum - radius, sum + radius});
    const Interval& logit = intervals_[static_cast<std::size_t>(e)];
    if (!finite_in_fp32(logit)) refine(e);  // large products that cancel
    finite_ = finite_in_fp32(logit);
  }
}

void ExactLogits::put(std::int64_t expert, double sum, Interval bounds) {
  const Interval point = finished({sum, sum});
  values_[static_cast<std::size_t>(expert)] = point.lower + (point.upper - point.lower) / 2.0;
  intervals_[static_cast<std::size_t>(expert)] = finished(bounds);
}

double ExactLogits::radius(std::int64_t expert) const {
  const Interval& logit = intervals_[static_cast<std::size_t>(expert)];
  return std::max(logit.upper - value(expert), value(expert) - logit.lower);
}

// tanh to 2 ulp of double; a quotient and a product each lose one rounding.
Interval ExactLogits::finished(Interval sum) const {
  if (spec_.gate.logits_dtype == FloatType::kBf16) sum = rounded_to_bf16(sum, kFormula);
  const double temperature = static_cast<float>(spec_.logits.temperature);
  if (temperature != 1.0) {
    sum = widened({sum.lower / temperature, sum.upper / temperature}, 2.0 * kUnitDouble, 0.0);
  }
  if (spec_.logits.softcap) {
    const double cap = static_cast<float>(*spec_.logits.softcap);
    sum = widened({cap * std::tanh(sum.lower / cap), cap * std::tanh(sum.upper / cap)}, 8.0 * kUnitDouble, 0.0);
  }
  return sum;
}

void ExactLogits::refine(std::int64_t expert) {
  std::optional<ExactSum>& sum = sums_[static_cast<std::size_t>(expert)];
  if (inputs_.from_logits() || !x_.uncertain.empty() || sum) return;
  sum = exact_sum(x_.middle, gate_weight_row(inputs_, expert), linear_bias(spec_, inputs_, expert));
  if (spec_.gate.logits_dtype == FloatType::kBf16) {
    const double rounded = to_bf16(*sum);
    put(expert, rounded, {rounded, rounded});
    return;
  }
  const double rounded = sum->rounded();
  Interval bounds{rounded, rounded};
  const int rest = sum->rest();  // the sum lies within half an ulp, on this side
  if (rest > 0) bounds.upper = std::nextafter(rounded, std::numeric_limits<double>::infinity());
  if (rest < 0) bounds.lower = std::nextafter(rounded, -std::numeric_limits<double>::infinity());
  put(expert, rounded, bounds);
}

std::optional<std::strong_ordering> ExactLogits::compare(std::int64_t a, std::int64_t b) const {
  const auto i = static_cast<std::size_t>(a), j = static_cast<std::size_t>(b);
  const auto order = [](double x, double y) {
    return x < y ? std::strong_ordering::less : x > y ? std::strong_ordering::greater : std::strong_ordering::equal;
  };
  if (inputs_.from_logits()) return order(intervals_[i].lower, intervals_[j].lower);
  if (!sums_[i] || !sums_[j]) return std::nullopt;
  if (spec_.gate.logits_dtype == FloatType::kBf16) {
    return order(to_bf16(*sums_[i]), to_bf16(*sums_[j]));
  }
  return *sums_[i] <=> *sums_[j];
}

}  // namespace samebits::oracle
