#include "properties/generators/families.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <numeric>

#include "oracle/tensors/bf16.h"
#include "properties/generators/random_bits.h"

namespace samebits::properties {
namespace {

using oracle::fp32_to_bf16;

void store(float value, std::uint16_t& out) {
  out = fp32_to_bf16(value);
}
void store(float value, float& out) {
  out = value;
}

// row_values(row) returns a callable: column -> float.
template <class T, class RowValues>
std::vector<T> fill(const std::vector<std::int64_t>& rows, const std::vector<std::int64_t>& columns,
                    RowValues row_values) {
  std::vector<T> out(rows.size() * columns.size());
  T* next = out.data();
  for (const std::int64_t row : rows) {
    auto value = row_values(row);
    for (const std::int64_t column : columns) store(value(column), *next++);
  }
  return out;
}

float small_integer(std::uint64_t bits) {
  return static_cast<float>(uniform_below(bits, 9) - 4);
}

float power_of_two(std::uint64_t bits) {  // 2^-20 .. 2^20
  const std::int64_t exponent = uniform_below(bits, 41) - 20;
  return std::bit_cast<float>(static_cast<std::uint32_t>(127 + exponent) << 23);
}

// Half of all draws have level 0, a quarter level 1, ...; at most 15.
int geometric_level(std::uint64_t bits) {
  return std::countl_zero(bits | (std::uint64_t{1} << 48));
}

// The order-sensitive families. In every k16 block, lane l = 0 .. 8 holds terms that cancel against the same lane of
// the block 2^l blocks away: both columns have the same hidden value and opposite weights. Distances of 16 .. 4096
// columns lie inside a chunk of 256, across neighbouring chunks, and across the halves and quarters of H, so whatever
// is added first, sums of about 2^22 are open when terms of order 1 arrive, and what each addition rounds away depends
// on the order. Other lanes, and lanes whose partner would lie past H, hold terms of order 1.
struct PairedColumn {
  bool paired;
  std::int64_t base;  // the first column of the pair
  bool second;
};
PairedColumn paired_column(std::int64_t column, std::int64_t hidden_size) {
  const std::int64_t lane = column & 15;
  if (lane > 8) return {false, column, false};
  const std::int64_t distance = std::int64_t{16} << lane;
  const std::int64_t window_end = (column | (2 * distance - 1)) + 1;
  if (window_end > hidden_size) return {false, column, false};
  return {true, column & ~distance, (column & distance) != 0};
}
constexpr float kPairedScale = 512.0f;  // of either factor: terms of about 2^18, open sums of about 2^22

// 1 / sqrt(H), by correctly rounded operations only.
float inverse_sqrt(std::int64_t hidden_size) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(hidden_size)));
}

struct Zone {
  float low, high;
};
constexpr std::array<Zone, kNumScoreZones> kScoreZones = {{
    {-330.0f, -310.0f},  // every score is 0
    {-103.0f, -88.8f},   // e^x is subnormal, e^-x overflows
    {-206.0f, -178.0f},  // sqrt(e^x) is subnormal
    {-56.0f, -46.0f},    // e^x is about 1e-20, the eps of most published routers
    {-112.0f, -92.0f},   // sqrt(e^x) is
    {-100.0f, -17.0f},   // 1 + e^x is 1
    {-18.0f, -14.0f},    // e^x is in the last bits of 1 + e^x
    {10.0f, 11.5f},      // softplus is larger than x by 10 to 50 fp32 steps
}};

// `bits` belong to the expert, `row_bits` to the row.
float logit_value(const CaseDescription& d, std::uint32_t ulp, std::int64_t row, std::int64_t expert,
                  std::uint64_t bits, std::uint64_t row_bits) {
  switch (d.logits) {
    case LogitsFamily::kNormal:
      return d.logits_offset + d.logits_spread * normal(bits);
    case LogitsFamily::kAllEqual:
      return d.logits_offset + d.logits_spread * normal(row_bits);
    case LogitsFamily::kFewDistinct:
      return d.logits_offset + d.logits_spread * static_cast<float>(geometric_level(bits));
    case LogitsFamily::kUlpSteps: {
      // In half of the rows all experts are apart, consecutive ones by one step; in the others most are tied.
      const std::int64_t level = (row_bits & 1) != 0 ? expert ^ uniform_below(row_bits, 1024) : geometric_level(bits);
      const std::uint32_t steps = static_cast<std::uint32_t>(level) * ulp;
      // Upwards on the number line: the magnitude of a negative value falls.
      const std::uint32_t start = std::bit_cast<std::uint32_t>(d.logits_offset);
      return std::bit_cast<float>(d.logits_offset < 0.0f ? start - steps : start + steps);
    }
    case LogitsFamily::kSparse: {
      if (bits >> 60 != 0) return d.logits_offset;
      constexpr std::array<float, 3> kHeights = {0.75f, 0.8f, 1.0f};
      return d.logits_offset + d.logits_spread * kHeights[static_cast<std::size_t>(uniform_below(bits << 4, 3))];
    }
    case LogitsFamily::kSaturated: {
      // exp underflows to a subnormal at -87.3 and to 0 at -103.97, overflows at 88.72; sigmoid rounds to 1 from 16.64
      // or 17.33 on; sqrt(softplus) underflows at -208.
      constexpr std::array<float, 24> kValues = {-1e30f, -1e4f,  -300.0f, -208.0f, -200.0f, -104.0f, -103.9f, -88.8f,
                                                 -87.4f, -87.0f, -40.0f,  -20.0f,  -10.0f,  0.0f,    6.25f,   10.0f,
                                                 16.5f,  16.7f,  17.0f,   17.5f,   88.0f,   89.0f,   1e4f,    1e30f};
      return kValues[static_cast<std::size_t>(uniform_below(bits, kValues.size()))];
    }
    case LogitsFamily::kSignedZero:
      return bits >> 63 != 0 ? -0.0f : 0.0f;
    case LogitsFamily::kScoreZones: {
      const Zone zone = kScoreZones[static_cast<std::size_t>(row % kNumScoreZones)];
      return zone.low + (zone.high - zone.low) * (static_cast<float>(bits >> 40) * 0x1p-24f);
    }
  }
  return 0.0f;
}

std::uint32_t logit_ulp(const oracle::RouterSpec& spec) {
  return rounds_logits_to_bf16(spec) ? 0x10000u : 1u;
}

// Of a bias tensor, one row for each class.
std::vector<float> generate_bias(const CaseDescription& d, BiasFamily family, Stream stream,
                                 const std::vector<std::int64_t>& classes, const std::vector<std::int64_t>& experts) {
  return fill<float>(classes, experts, [&](std::int64_t row_class) {
    const std::int64_t mask = uniform_below(random_bits(d.data_key, stream, row_class + 1, 0), 1024);
    const float offset = d.bias_offset + d.bias_spread * static_cast<float>(row_class);
    return [=, spread = d.bias_spread, row = RandomRow(d.data_key, stream, row_class)](std::int64_t expert) mutable {
      const std::uint64_t bits = row.at(expert);
      switch (family) {
        case BiasFamily::kZero:
          break;
        case BiasFamily::kNormal:
          return offset + spread * normal(bits);
        case BiasFamily::kUniform:
          return offset + spread * (static_cast<float>(bits >> 40) * 0x1p-24f);
        case BiasFamily::kStepped:
          // Experts e < 2^m take 2^m consecutive steps in the order that the mask gives.
          return offset + spread * static_cast<float>(expert ^ mask);
        case BiasFamily::kFewDistinct:
          return offset + spread * static_cast<float>(geometric_level(bits));
      }
      return 0.0f;
    };
  });
}

template <class T>
std::vector<T> generate_gate_weight(const Case& c, const Kept& kept) {
  const CaseDescription& d = c.description;
  const std::uint64_t key = d.data_key;
  const std::int64_t hidden_size = generated_hidden_size(d);
  const float scale = inverse_sqrt(hidden_size);
  const auto by_bits = [&](auto value) {
    return fill<T>(kept.experts, kept.columns, [&](std::int64_t expert) {
      return [=, bits = RandomRow(key, Stream::kWeight, expert)](std::int64_t column) mutable {
        return value(bits.at(column));
      };
    });
  };
  switch (d.weight) {
    case WeightFamily::kNormal:
      return by_bits([scale](std::uint64_t bits) { return normal(bits) * scale; });
    case WeightFamily::kSmallInteger:
      return by_bits(small_integer);
    case WeightFamily::kOrderSensitive:
      return fill<T>(kept.experts, kept.columns, [&](std::int64_t expert) {
        return [=, bits = RandomRow(key, Stream::kWeight, expert)](std::int64_t column) mutable {
          const PairedColumn pair = paired_column(column, hidden_size);
          const float value = normal(bits.at(pair.base));
          if (!pair.paired) return value * scale;
          // Rounded to bf16 also as fp32: the products of a pair must cancel exactly.
          const float rounded = oracle::round_to_bf16(value * kPairedScale);
          return pair.second ? -rounded : rounded;
        };
      });
    case WeightFamily::kWideExponent:
      return fill<T>(kept.experts, kept.columns, [&](std::int64_t expert) {
        return [bits = RandomRow(key, Stream::kWeight, expert),
                exponents = RandomRow(key, Stream::kWeightExponent, expert)](std::int64_t column) mutable {
          return normal(bits.at(column)) * power_of_two(exponents.at(column));
        };
      });
    case WeightFamily::kDuplicateRows:
      return fill<T>(kept.experts, kept.columns, [&](std::int64_t expert) {
        const std::int64_t row = uniform_below(random_bits(key, Stream::kExpertClass, 0, expert), 3);
        return [scale, bits = RandomRow(key, Stream::kWeight, row)](std::int64_t column) mutable {
          return normal(bits.at(column)) * scale;
        };
      });
    case WeightFamily::kLogits:
      return fill<T>(kept.experts, kept.columns, [&](std::int64_t expert) {
        return [&, expert](std::int64_t column) {
          RandomRow bits(key, Stream::kLogits, column);
          return logit_value(d, logit_ulp(c.spec), column, expert, bits.at(expert), bits.at(0));
        };
      });
    case WeightFamily::kZero:
      break;
  }
  return std::vector<T>(kept.experts.size() * kept.columns.size());
}

}  // namespace

std::int64_t generated_hidden_size(const CaseDescription& description) {
  return description.generated_hidden_size != 0 ? description.generated_hidden_size : description.hidden_size;
}

bool rounds_logits_to_bf16(const oracle::RouterSpec& spec) {
  return spec.gate.logits_dtype == oracle::FloatType::kBf16 && spec.logits.temperature == 1.0 && !spec.logits.softcap;
}

std::vector<std::uint16_t> generate_hidden_states(const CaseDescription& d, const Kept& kept) {
  using T = std::uint16_t;
  const std::uint64_t key = d.data_key;
  const std::int64_t hidden_size = generated_hidden_size(d);
  const auto by_bits = [&](auto value) {
    return fill<T>(kept.rows, kept.columns, [&](std::int64_t row) {
      return [=, bits = RandomRow(key, Stream::kHidden, row)](std::int64_t column) mutable {
        return value(bits.at(column));
      };
    });
  };
  switch (d.hidden) {
    case HiddenFamily::kNormal:
      return by_bits(normal);
    case HiddenFamily::kSmallInteger:
      return by_bits(small_integer);
    case HiddenFamily::kOrderSensitive:
      return fill<T>(kept.rows, kept.columns, [&](std::int64_t row) {
        return [=, bits = RandomRow(key, Stream::kHidden, row)](std::int64_t column) mutable {
          const PairedColumn pair = paired_column(column, hidden_size);
          return normal(bits.at(pair.base)) * (pair.paired ? kPairedScale : 1.0f);
        };
      });
    case HiddenFamily::kWideExponent:
      return fill<T>(kept.rows, kept.columns, [&](std::int64_t row) {
        return [bits = RandomRow(key, Stream::kHidden, row),
                exponents = RandomRow(key, Stream::kHiddenExponent, row)](std::int64_t column) mutable {
          return normal(bits.at(column)) * power_of_two(exponents.at(column));
        };
      });
    case HiddenFamily::kSubnormal:
      return by_bits([](std::uint64_t bits) {
        const std::uint32_t sign = bits >> 63 != 0 ? 0x80000000u : 0u;
        return std::bit_cast<float>(sign | static_cast<std::uint32_t>(1 + uniform_below(bits << 1, 127)) << 16);
      });
    case HiddenFamily::kUnitRows:
      return fill<T>(kept.rows, kept.columns, [&](std::int64_t row) {
        return [one = row % hidden_size](std::int64_t column) { return column == one ? 1.0f : 0.0f; };
      });
    case HiddenFamily::kFewTerms:
      return fill<T>(kept.rows, kept.columns, [&](std::int64_t row) {
        std::array<std::int64_t, 3> columns;
        for (std::size_t i = 0; i < columns.size(); ++i) {
          const std::uint64_t bits = random_bits(key, Stream::kHiddenExponent, row, static_cast<std::int64_t>(i));
          columns[i] = uniform_below(bits, hidden_size);
        }
        const float scale = 1.0f / inverse_sqrt(hidden_size);
        return [=, bits = RandomRow(key, Stream::kHidden, row)](std::int64_t column) mutable {
          const bool term = std::find(columns.begin(), columns.end(), column) != columns.end();
          return term ? normal(bits.at(column)) * scale : 0.0f;
        };
      });
    case HiddenFamily::kZero:
      break;
  }
  return std::vector<T>(kept.rows.size() * kept.columns.size());
}

std::vector<std::uint16_t> generate_gate_weight_bf16(const Case& c, const Kept& kept) {
  return generate_gate_weight<std::uint16_t>(c, kept);
}

std::vector<float> generate_gate_weight_fp32(const Case& c, const Kept& kept) {
  return generate_gate_weight<float>(c, kept);
}

std::vector<float> generate_linear_bias(const CaseDescription& d, const Kept& kept) {
  return generate_bias(d, d.linear_bias, Stream::kLinearBias, {0}, kept.experts);
}

std::vector<float> generate_selection_bias(const Case& c, const Kept& kept) {
  std::vector<std::int64_t> classes(c.spec.selection.bias_variants.size());
  std::iota(classes.begin(), classes.end(), std::int64_t{0});
  return generate_bias(c.description, c.description.selection_bias, Stream::kSelectionBias, classes, kept.ranked);
}

std::vector<float> generate_scale(const CaseDescription& d, TensorId tensor, const Kept& kept) {
  const bool vector = tensor == TensorId::kInputScaleVector, global = tensor == TensorId::kGlobalScale;
  const Stream stream = vector ? Stream::kInputScaleVector : global ? Stream::kGlobalScale : Stream::kPerExpertScale;
  return fill<float>({0},
                     vector   ? kept.columns
                     : global ? std::vector<std::int64_t>{0}
                              : kept.experts,
                     [&](std::int64_t) {
                       return [&, bits = RandomRow(d.data_key, stream, 0),
                               exponents = RandomRow(d.data_key, stream, 1)](std::int64_t column) mutable {
                         const float value = normal(bits.at(column));
                         switch (d.scales) {
                           case ScaleFamily::kUnit:
                             break;
                           case ScaleFamily::kNormal:
                             return 1.0f + 0.5f * value;
                           case ScaleFamily::kWideExponent:
                             return value * power_of_two(exponents.at(column));
                         }
                         return 1.0f;
                       };
                     });
}

std::vector<float> generate_router_logits(const Case& c, const Kept& kept) {
  const CaseDescription& d = c.description;
  const bool bf16 = rounds_logits_to_bf16(c.spec);
  const std::uint32_t ulp = logit_ulp(c.spec);
  return fill<float>(kept.rows, kept.experts, [&](std::int64_t row) {
    RandomRow bits(d.data_key, Stream::kLogits, row);
    const std::uint64_t row_bits = bits.at(0);
    return [&d, bf16, ulp, row, bits, row_bits](std::int64_t expert) mutable {
      const float value = logit_value(d, ulp, row, expert, bits.at(expert), row_bits);
      return bf16 ? oracle::round_to_bf16(value) : value;
    };
  });
}

}  // namespace samebits::properties
