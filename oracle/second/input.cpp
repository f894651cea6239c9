#include <algorithm>
#include <bit>
#include <cmath>

#include "oracle/second/logits.h"

namespace samebits::second {
namespace {

std::uint16_t bf16_bits(const Ball& value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(to_float(rounded(value, kBf16))) >> 16);
}

Ball reciprocal_root(const Ball& x) {
  return divide(exact(1), square_root(x));
}

std::span<const std::uint16_t> hidden_states(const RouterInputs& inputs, std::int64_t row) {
  const auto width = static_cast<std::size_t>(inputs.hidden_size);
  return std::span(inputs.hidden_states).subspan(static_cast<std::size_t>(row) * width, width);
}

// s of x * s, or nothing where no factor is applied.
std::optional<Ball> input_scale(const RouterSpec& spec, std::int64_t hidden_size) {
  const Ball width = exact(static_cast<float>(hidden_size));
  switch (spec.gate.input_scale_kind) {
    case oracle::InputScale::kFactor:
      if (spec.gate.input_scale == 1.0) return std::nullopt;
      return exact(static_cast<float>(spec.gate.input_scale));
    case oracle::InputScale::kRsqrtHiddenSize:
      return reciprocal_root(width);
    case oracle::InputScale::kRsqrtHiddenSizeBf16:
      return rounded(reciprocal_root(width), kBf16);
  }
  return std::nullopt;
}

}  // namespace

std::vector<std::uint16_t> contract_input(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t row) {
  const std::span<const std::uint16_t> hidden = hidden_states(inputs, row);
  if (!oracle::prepares_input(spec)) return {hidden.begin(), hidden.end()};
  std::vector<Ball> x;
  for (const std::uint16_t bits : hidden) x.push_back(exact_bf16(bits));
  if (spec.gate.input_norm == oracle::InputNorm::kRmsnormUnweighted) {
    std::vector<Ball> squares;
    for (const Ball& value : x) squares.push_back(multiply(value, value));
    const Ball mean = divide(sum32(squares), exact(static_cast<float>(inputs.hidden_size)));
    const Ball factor = reciprocal_root(add(mean, exact(static_cast<float>(spec.gate.input_norm_eps.value()))));
    for (Ball& value : x) value = multiply(value, factor);
  }
  if (spec.gate.input_scale_vector) {
    for (std::size_t i = 0; i < x.size(); ++i) x[i] = multiply(x[i], exact(inputs.input_scale_vector[i]));
  }
  if (const auto scale = input_scale(spec, inputs.hidden_size)) {
    for (Ball& value : x) value = multiply(value, *scale);
  }
  std::vector<std::uint16_t> prepared;
  for (const Ball& value : x) prepared.push_back(bf16_bits(value));
  return prepared;
}

// Relative errors of fp32, in units of kUnit: squares 1, sum32 of H terms ceil(H / 32) + 4, division 1, sum with eps 1,
// halved by the root, root 1, reciprocal 1, and one each for the products with it and the vector. H^(-1/2) has 2 (or
// is a bf16 number, on which both sides agree), the product with it 1. Together (ceil(H / 32) + 7) / 2 + 7; the factor
// 1.01 covers second-order terms. Values are bounded so that neither overflow nor a square that underflows matters:
// what underflows moves the mean by less than 2^-149, which counts against eps.
std::vector<Ball> published_input(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t row) {
  std::vector<Ball> x;
  for (const std::uint16_t bits : hidden_states(inputs, row)) x.push_back(exact_bf16(bits));
  const bool normalizes = spec.gate.input_norm == oracle::InputNorm::kRmsnormUnweighted;
  const auto width = static_cast<double>(inputs.hidden_size);
  double units = 5;
  Real factor;
  mpfr_set_ui(factor, 1, MPFR_RNDN);
  double scale_size = 1;
  bool bounded = true;
  for (const Ball& value : x) bounded = bounded && is_finite(value) && magnitude(value) < 0x1p50;
  if (normalizes && bounded) {
    const auto eps = static_cast<float>(spec.gate.input_norm_eps.value());
    units += ((std::ceil(width / 32) + 7) / 2) + (eps > 0x1p-100f ? 0x1p-20 : kUnknown);
    mpfr_set_ui(factor, 0, MPFR_RNDN);
    for (const Ball& value : x) mpfr_fma(factor, value.center, value.center, factor, MPFR_RNDN);
    mpfr_div_d(factor, factor, width, MPFR_RNDN);
    mpfr_add_d(factor, factor, eps, MPFR_RNDN);
    mpfr_rec_sqrt(factor, factor, MPFR_RNDN);
  }
  if (spec.gate.input_scale_kind == oracle::InputScale::kRsqrtHiddenSize) {
    Real root;
    mpfr_set_si(root, inputs.hidden_size, MPFR_RNDN);
    mpfr_rec_sqrt(root, root, MPFR_RNDN);
    mpfr_mul(factor, factor, root, MPFR_RNDN);
  } else if (const auto scale = input_scale(spec, inputs.hidden_size)) {
    mpfr_mul(factor, factor, scale->center, MPFR_RNDN);
    scale_size = magnitude(*scale);
  }
  std::vector<Ball> prepared;
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float learned = spec.gate.input_scale_vector ? inputs.input_scale_vector[i] : 1.0f;
    if (!bounded || !(std::abs(learned) < 0x1p60f)) {
      prepared.push_back(unknown());
      continue;
    }
    Real value;
    mpfr_mul(value, x[i].center, factor, MPFR_RNDN);
    mpfr_mul_d(value, value, learned, MPFR_RNDN);
    // A product that is subnormal in fp32 is off by 2^-150 more, times the factors that follow.
    const double size = std::abs(mpfr_get_d(value, MPFR_RNDA));
    const double underflow = 0x1p-150 * (2 + std::abs(static_cast<double>(learned))) * std::max(1.0, scale_size);
    prepared.push_back(rounded(with_error(value, (size * units * kUnit * 1.01) + underflow), kBf16));
  }
  return prepared;
}

}  // namespace samebits::second
