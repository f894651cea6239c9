#include "oracle/second/test/compare/inputs.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

namespace samebits::second {
namespace {

using oracle::RouterInputs;
using oracle::RouterSpec;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kMax = std::numeric_limits<float>::max();

// Signed zeros, the edges of the subnormal and of the normal range, overflow, and where exp, sigmoid and softplus leave
// the normal range or saturate in fp32 and bf16.
constexpr std::array kSpecial{0.0f,      -0.0f,   0x1p-149f, -0x1p-149f, 0x1.fffffcp-127f, 0x1p-126f, 0x1p-133f,
                              1.0f,      -1.0f,   kMax,      -kMax,      0x1p127f,         -0x1p64f,  kInf,
                              -kInf,     kNaN,    16.64f,    17.33f,     -17.33f,          -18.02f,   6.25f,
                              -87.34f,   -88.73f, -103.98f,  -104.1f,    88.72f,           88.73f,    20.0f,
                              -0x1p-24f, 0.5f,    30.0f,     -30.0f};

float moved(float value, std::int64_t ulps) {
  for (; ulps > 0; --ulps) value = std::nextafterf(value, kInf);
  for (; ulps < 0; ++ulps) value = std::nextafterf(value, -kInf);
  return value;
}

float any_bits(Random& random) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(random.next()));
}

float special(Random& random) {
  return random.of(std::span<const float>(kSpecial));
}

void fill_ordinary(std::span<float> values, double scale, Random& random) {
  for (float& value : values) value = static_cast<float>(random.normal() * scale);
}

// One kind of numbers for a whole row of logits.
void fill_logits(std::span<float> row, Random& random) {
  switch (random.below(11)) {
    case 0:  // ordinary, at several scales
      fill_ordinary(row, std::pow(10.0, random.uniform(-3, 1.6)), random);
      break;
    case 1: {  // few distinct values: exact ties
      std::array<float, 3> few{};
      fill_ordinary(few, 2, random);
      for (float& value : row) value = random.of(std::span<const float>(few));
      break;
    }
    case 2: {  // neighbours
      const auto base = static_cast<float>(random.normal() * 3);
      for (float& value : row) value = moved(base, random.between(-2, 2));
      break;
    }
    case 3:  // special values alone
      for (float& value : row) value = special(random);
      break;
    case 4:  // special values among ordinary ones
      fill_ordinary(row, 2, random);
      for (float& value : row) {
        if (random.one_in(6)) value = special(random);
      }
      break;
    case 5:  // scores that saturate, or that a bias swallows
      for (float& value : row) value = static_cast<float>(random.uniform(random.one_in(2) ? -18.5 : 15.5, 18.0));
      break;
    case 6:  // where exp is subnormal or overflows
      for (float& value : row) value = static_cast<float>((random.one_in(2) ? -1 : 1) * random.uniform(85, 106));
      break;
    case 7: {  // all the same
      const float value = random.one_in(2) ? special(random) : static_cast<float>(random.normal());
      std::fill(row.begin(), row.end(), value);
      break;
    }
    case 8: {  // hardly anything left to choose
      const float rest = random.one_in(2) ? -kInf : kNaN;
      for (float& value : row) value = random.one_in(4) ? static_cast<float>(random.normal()) : rest;
      break;
    }
    case 9:
      for (float& value : row) value = any_bits(random);
      break;
    case 10:  // infinities of both signs and numbers
      for (float& value : row) {
        value = random.one_in(3) ? (random.one_in(2) ? kInf : -kInf) : static_cast<float>(random.normal());
      }
      break;
  }
}

void fill_bias(std::span<float> bias, Random& random) {
  constexpr std::array<double, 8> kOffsets{0, 0, 2.5, 7, 11.3, 12, 35, -0.5};
  const double offset = random.of(std::span<const double>(kOffsets));
  const double spread = std::pow(10.0, random.uniform(-4, 0));
  const std::int64_t kind = random.below(6);
  for (float& value : bias) {
    value = static_cast<float>(offset + (spread * random.normal()));
    if (kind == 0) value = static_cast<float>(offset);
    if (kind == 1 && random.one_in(5)) value = special(random);
    if (kind == 2) value = moved(static_cast<float>(offset), random.between(-1, 1));
    if (kind == 3) value = -0.5f;  // cancels sigmoid(0): sums of zero for biased weights
  }
}

void fill_scales(std::span<float> scales, bool ordinary, Random& random) {
  const bool hazards = !ordinary && random.one_in(2);
  for (float& value : scales) {
    value = static_cast<float>(random.uniform(0.2, 2.0));
    if (hazards && random.one_in(3)) value = random.one_in(2) ? special(random) : -value;
  }
}

std::uint16_t bf16(double value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16);
}

// One kind of numbers for a whole row of hidden states or of the gate weight.
double operand(std::int64_t kind, double scale, Random& random) {
  switch (kind) {
    case 1:  // exponents far apart: alignment cuts terms off
      return random.normal() * std::ldexp(1.0, static_cast<int>(random.between(-20, 20)));
    case 2:  // near overflow and underflow of products
      return random.normal() * std::ldexp(1.0, static_cast<int>(random.one_in(2) ? 62 : -66));
    case 3:  // special values
      return random.one_in(4) ? static_cast<double>(special(random)) : random.normal();
    case 4:  // subnormals
      return random.normal() * 0x1p-128;
    case 5:
      return static_cast<double>(any_bits(random));
    case 6:  // few values: terms that cancel exactly
      return static_cast<double>(random.between(-2, 2));
    default:
      return random.normal() * scale;
  }
}

std::int64_t operand_kind(bool ordinary, Random& random) {
  return ordinary || random.one_in(2) ? 0 : random.between(1, 6);
}

void fill_gate(const RouterSpec& spec, bool ordinary, Random& random, RouterInputs& inputs) {
  const auto width = static_cast<std::size_t>(inputs.hidden_size);
  const double scale = 1 / std::sqrt(static_cast<double>(width));
  for (std::int64_t t = 0; t < inputs.num_tokens; ++t) {
    const std::int64_t kind = operand_kind(ordinary, random);
    for (std::size_t i = 0; i < width; ++i) inputs.hidden_states.push_back(bf16(operand(kind, 1, random)));
  }
  const bool fp32 = random.one_in(3);
  for (std::int64_t e = 0; e < inputs.gate_rows; ++e) {
    const std::int64_t kind = random.one_in(4) ? operand_kind(ordinary, random) : 0;
    for (std::size_t i = 0; i < width; ++i) {
      const double value = operand(kind, scale, random);
      if (fp32) {
        inputs.gate_weight_fp32.push_back(static_cast<float>(value));
      } else {
        inputs.gate_weight_bf16.push_back(bf16(value));
      }
    }
    // A row of the gate that equals another one: exact ties from hidden states.
    if (e > 0 && random.one_in(8)) {
      auto repeat = [&](auto& weights) {
        if (!weights.empty()) std::copy_n(weights.begin(), width, weights.end() - static_cast<std::ptrdiff_t>(width));
      };
      repeat(inputs.gate_weight_fp32);
      repeat(inputs.gate_weight_bf16);
    }
  }
  if (spec.gate.input_scale_vector) {
    inputs.input_scale_vector.resize(width);
    fill_scales(inputs.input_scale_vector, ordinary, random);
  }
}

void fill_table(const RouterSpec& spec, Random& random, RouterInputs& inputs) {
  constexpr std::int64_t kLeast = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  const std::int64_t vocabulary = *spec.hash.vocab_size;
  std::vector<std::int32_t> ids(static_cast<std::size_t>(oracle::ranked_experts(spec)));
  std::iota(ids.begin(), ids.end(), 0);
  for (std::int64_t token = 0; token < vocabulary; ++token) {
    for (std::int64_t c = 0; c < oracle::top_k(spec); ++c) {
      const std::int64_t other = random.between(c, static_cast<std::int64_t>(ids.size()) - 1);
      std::swap(ids[static_cast<std::size_t>(c)], ids[static_cast<std::size_t>(other)]);
      inputs.hash_table.push_back(ids[static_cast<std::size_t>(c)]);
    }
  }
  const std::array<std::int64_t, 7> beyond{-1, vocabulary, kLeast, kMost, std::int64_t{1} << 32, 0, vocabulary - 1};
  for (std::int64_t t = 0; t < inputs.num_tokens; ++t) {
    inputs.token_ids.push_back(random.one_in(6) ? random.of(std::span<const std::int64_t>(beyond))
                                                : random.below(vocabulary));
  }
}

void fill_classes(std::int64_t classes, Random& random, RouterInputs& inputs) {
  constexpr std::int32_t kLeast = std::numeric_limits<std::int32_t>::min();
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  const std::array<std::int32_t, 4> beyond{-1, static_cast<std::int32_t>(classes), kLeast, kMost};
  for (std::int64_t t = 0; t < inputs.num_tokens; ++t) {
    inputs.row_class.push_back(random.one_in(8) ? random.of(std::span<const std::int32_t>(beyond))
                                                : static_cast<std::int32_t>(random.below(classes)));
  }
}

}  // namespace

RouterInputs make_inputs(const RouterSpec& spec, Start start, std::int64_t num_tokens, bool ordinary, Random& random) {
  RouterInputs inputs;
  inputs.num_tokens = num_tokens;
  inputs.gate_rows = oracle::gate_rows(spec);
  const auto rows = static_cast<std::size_t>(inputs.gate_rows);
  const auto tokens = static_cast<std::size_t>(num_tokens);
  if (start == Start::kHiddenStates) {
    inputs.hidden_size = oracle::hidden_size(spec);
    fill_gate(spec, ordinary, random, inputs);
  } else {
    inputs.router_logits.resize(tokens * rows);
    for (std::size_t t = 0; t < tokens; ++t) {
      const auto row = std::span(inputs.router_logits).subspan(t * rows, rows);
      if (ordinary) {
        fill_ordinary(row, 1.5, random);
      } else {
        fill_logits(row, random);
      }
    }
  }
  if (spec.gate.linear_bias != oracle::BiasType::kNone && start == Start::kHiddenStates) {
    inputs.linear_bias.resize(rows);
    fill_ordinary(inputs.linear_bias, 0.5, random);
    if (!ordinary && random.one_in(4)) inputs.linear_bias[0] = special(random);
  }
  if (spec.selection.bias != oracle::BiasType::kNone) {
    const auto experts = static_cast<std::size_t>(oracle::ranked_experts(spec));
    const std::size_t classes = spec.selection.bias_variants.size();
    inputs.selection_bias.resize(classes * experts);
    for (std::size_t c = 0; c < classes; ++c) {
      const auto bias = std::span(inputs.selection_bias).subspan(c * experts, experts);
      if (ordinary) {
        fill_ordinary(bias, 0.05, random);
      } else {
        fill_bias(bias, random);
      }
    }
    if (classes > 1 || random.one_in(8)) fill_classes(static_cast<std::int64_t>(classes), random, inputs);
  }
  if (spec.weights.per_expert_scale) {
    inputs.per_expert_scale.resize(rows);
    fill_scales(inputs.per_expert_scale, ordinary, random);
  }
  if (spec.weights.global_scale) {
    inputs.global_scale.resize(1);
    fill_scales(inputs.global_scale, ordinary, random);
  }
  if (spec.selection.method == oracle::SelectionMethod::kHashTable) fill_table(spec, random, inputs);
  return inputs;
}

}  // namespace samebits::second
