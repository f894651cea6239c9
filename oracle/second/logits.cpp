#include "oracle/second/logits.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "oracle/second/exact_sum.h"
#include "oracle/second/step.h"

namespace samebits::second {
namespace {

constexpr std::size_t kChunk = 256;

float widened(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

// 8 significant bits of a number, or a multiple of 2^-133, cut toward zero.
void cut_to_bf16(mpfr_ptr cut, mpfr_srcptr number) {
  mpfr_set(cut, number, MPFR_RNDZ);
  if (mpfr_zero_p(cut) != 0 || mpfr_get_exp(cut) >= -125) return;
  mpfr_mul_2si(cut, cut, 133, MPFR_RNDZ);
  mpfr_rint(cut, cut, MPFR_RNDZ);
  mpfr_mul_2si(cut, cut, -133, MPFR_RNDZ);
}

// Linear bias, rounding, temperature, softcap.
Ball finished(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t expert, Ball logit,
              const Functions& functions) {
  if (spec.gate.linear_bias != oracle::BiasType::kNone) {
    Ball bias = exact(inputs.linear_bias[static_cast<std::size_t>(expert)]);
    if (spec.gate.linear_bias == oracle::BiasType::kBf16) bias = rounded(bias, kBf16);
    logit = add(logit, bias);
  }
  if (spec.gate.logits_dtype == oracle::FloatType::kBf16) logit = rounded(logit, kBf16);
  const auto temperature = static_cast<float>(spec.logits.temperature);
  if (temperature != 1.0f) logit = divide(logit, exact(temperature));
  if (spec.logits.softcap) {
    const Ball cap = exact(static_cast<float>(*spec.logits.softcap));
    logit = multiply(cap, functions.tanh(divide(logit, cap)));
  }
  return logit;
}

// A bf16 number as significand * 2^(exponent - 7), with its sign; `exponent` is the one that alignment looks at.
struct Number {
  std::int32_t significand;
  std::int32_t exponent;
  double magnitude;
  bool special;  // infinite or NaN
};

Number decode(std::uint16_t bits) {
  const std::int32_t field = (bits >> 7) & 0xff;
  const std::int32_t tail = bits & 0x7f;
  const std::int32_t significand = field == 0 ? tail : tail | 0x80;
  return {(bits >> 15) != 0 ? -significand : significand, std::max(field, 1) - 127,
          static_cast<double>(widened(bits & 0x7fffu)), field == 0xff};
}

// What tensor-core steps may make of a sum, as a bound.
//
// In one step each of 17 magnitudes is cut to a multiple of 2^(emax - 25), and the sum to 24 bits: less than
// 17 * 2^(emax - 25) + 2^-23 |sum| + 2^-149. emax is the largest exponent of a product, that of c, or -133. |c| and
// |sum| are at most the sum of |product| so far plus the error so far; the exponent of a subnormal c is -126. A step of
// zeros changes nothing.
class ChainBound {
 public:
  void step(double magnitudes, int greatest_exponent) {
    if (magnitudes == 0) return;
    const double before = total_ + error_;
    int exponent = std::max(greatest_exponent, -133);
    if (before > 0) exponent = std::max({exponent, std::ilogb(before), -126});
    total_ += magnitudes;
    const double cut = std::ldexp(17.0, exponent - 25);
    error_ = (error_ + cut + (0x1p-23 * (total_ + error_ + cut)) + 0x1p-149) * (1 + 0x1p-23);
  }
  double total() const { return total_; }
  double error() const { return error_; }

 private:
  double total_ = 0;  // sum of |product|
  double error_ = 0;
};

// Sums of ChainBound under fp32 additions, each of which is off by half an ulp of its result.
struct FoldBound {
  double total = 0;
  double error = 0;
  bool empty = true;
  void add(double other_total, double other_error) {
    total += other_total;
    error += other_error;
    if (!empty) error = (error + (kUnit * (total + error))) * (1 + 0x1p-23);
    empty = false;
  }
};

struct Dot {
  ExactSum sum;
  double underflow = 0;  // of what the three parts of an fp32 weight leave out
  bool nan = false, positive_infinity = false, negative_infinity = false;

  // A product with an infinity or a NaN.
  void special(float x, float w) {
    const float product = x * w;
    if (std::isnan(product)) {
      nan = true;
    } else {
      (product < 0 ? negative_infinity : positive_infinity) = true;
    }
  }
};

// One chain: products of x with one part of the weights.
ChainBound chain_bound(std::span<const std::uint16_t> x_bits, std::span<const Number> x,
                       std::span<const std::uint16_t> weights, Dot& dot) {
  ChainBound bound;
  for (std::size_t first = 0; first < x.size(); first += kStepProducts) {
    double magnitudes = 0;
    int greatest = -1000;
    for (std::size_t i = first; i < std::min(first + kStepProducts, x.size()); ++i) {
      const Number w = decode(weights[i]);
      if (x[i].special || w.special) {
        dot.special(widened(x_bits[i]), widened(weights[i]));
        continue;
      }
      const std::int32_t product = x[i].significand * w.significand;
      if (product == 0) continue;
      const std::int32_t exponent = x[i].exponent + w.exponent;
      dot.sum.add(product, exponent - 14);
      magnitudes += x[i].magnitude * w.magnitude;
      greatest = std::max(greatest, exponent);
    }
    bound.step(magnitudes, greatest);
  }
  return bound;
}

Ball dot_ball(const Dot& dot, const FoldBound& fold) {
  if (dot.nan || (dot.positive_infinity && dot.negative_infinity)) {
    return exact(std::numeric_limits<float>::quiet_NaN());
  }
  // Within a power of two of overflow, a partial sum might have become infinite.
  if (fold.total + fold.error >= 0x1p127) return unknown();
  if (dot.positive_infinity) return exact(std::numeric_limits<float>::infinity());
  if (dot.negative_infinity) return exact(-std::numeric_limits<float>::infinity());
  if (fold.total == 0 && dot.underflow == 0) return exact(0);
  Real center;
  dot.sum.get(center);
  return with_error(center, fold.error + dot.underflow);
}

// Below 2^-110 the three parts may leave out up to 2^-133 of a weight.
void add_left_out(float weight, std::uint16_t hidden_state, Dot& dot) {
  const float x = widened(hidden_state);
  if (weight == 0 || !std::isfinite(x) || !(std::abs(weight) < 0x1p-110f)) return;
  dot.underflow += 0x1p-133 * std::abs(static_cast<double>(x));
}

std::vector<Number> decoded(std::span<const std::uint16_t> values) {
  std::vector<Number> numbers;
  numbers.reserve(values.size());
  for (const std::uint16_t bits : values) numbers.push_back(decode(bits));
  return numbers;
}

}  // namespace

Gate::Gate(const RouterInputs& inputs) : inputs_(inputs) {
  Real rest(24);
  Real cut(8);
  for (const float weight : inputs.gate_weight_fp32) {
    if (!std::isfinite(weight)) {
      const auto top = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(weight) >> 16);
      parts_[0].push_back(std::isnan(weight) ? std::uint16_t{0x7fff} : top);
      parts_[1].push_back(0);
      parts_[2].push_back(0);
      continue;
    }
    mpfr_set_flt(rest, weight, MPFR_RNDN);
    for (auto& part : parts_) {
      cut_to_bf16(cut, rest);
      mpfr_sub(rest, rest, cut, MPFR_RNDN);
      const auto bits = std::bit_cast<std::uint32_t>(mpfr_get_flt(cut, MPFR_RNDN));
      part.push_back(static_cast<std::uint16_t>(bits >> 16));
    }
  }
}

std::span<const std::uint16_t> Gate::part(std::int64_t expert, std::size_t part) const {
  const auto width = static_cast<std::size_t>(inputs_.hidden_size);
  const std::span<const std::uint16_t> all = is_fp32() ? parts_[part] : inputs_.gate_weight_bf16;
  return all.subspan(static_cast<std::size_t>(expert) * width, width);
}

std::span<const float> Gate::fp32_weights(std::int64_t expert) const {
  const auto width = static_cast<std::size_t>(inputs_.hidden_size);
  return std::span(inputs_.gate_weight_fp32).subspan(static_cast<std::size_t>(expert) * width, width);
}

std::vector<float> contract_logits(const RouterSpec& spec, const Gate& gate, std::span<const std::uint16_t> row,
                                   std::span<const std::int64_t> experts, const Functions& functions) {
  std::vector<float> logits;
  for (const std::int64_t expert : experts) {
    std::vector<Ball> chunks;
    for (std::size_t first = 0; first < row.size(); first += kChunk) {
      const std::size_t n = std::min(kChunk, row.size() - first);
      std::vector<Ball> chains;
      for (std::size_t p = 0; p < gate.num_parts(); ++p) {
        chains.push_back(exact(chain(row.subspan(first, n), gate.part(expert, p).subspan(first, n))));
      }
      chunks.push_back(left_fold(chains));
    }
    logits.push_back(to_float(finished(spec, gate.inputs(), expert, left_fold(chunks), functions)));
  }
  return logits;
}

std::vector<Ball> published_logits(const RouterSpec& spec, const Gate& gate, std::span<const std::uint16_t> row) {
  const std::vector<Number> x = decoded(row);
  std::vector<Ball> logits;
  for (std::int64_t expert = 0; expert < oracle::gate_rows(spec); ++expert) {
    Dot dot;
    FoldBound fold;
    for (std::size_t first = 0; first < x.size(); first += kChunk) {
      const std::size_t n = std::min(kChunk, x.size() - first);
      FoldBound chunk;
      for (std::size_t p = 0; p < gate.num_parts(); ++p) {
        const ChainBound chain = chain_bound(row.subspan(first, n), std::span(x).subspan(first, n),
                                             gate.part(expert, p).subspan(first, n), dot);
        chunk.add(chain.total(), chain.error());
      }
      fold.add(chunk.total, chunk.error);
    }
    if (gate.is_fp32()) {
      const std::span<const float> exact_weights = gate.fp32_weights(expert);
      for (std::size_t i = 0; i < x.size(); ++i) add_left_out(exact_weights[i], row[i], dot);
    }
    logits.push_back(finished(spec, gate.inputs(), expert, dot_ball(dot, fold), published_functions()));
  }
  return logits;
}

}  // namespace samebits::second
