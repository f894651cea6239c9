// One test case: a spec, and a description from which every tensor follows.
//
// A description is data, not code: (seed, index) -> description -> tensors gives the same bits on any machine. Tensors
// are made by counter-based randomness, value(data_key, tensor, row, column), so a value does not depend on the sizes
// and a smaller case keeps the values of the larger one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "oracle/spec/router_spec.h"
#include "oracle/tensors/router_inputs.h"

namespace samebits::properties {

enum class Stage { kFull, kFromLogits };

enum class HiddenFamily {
  kNormal,        // N(0, 1) rounded to bf16
  kSmallInteger,  // -4 .. 4
  kOrderSensitive,  // pairs +2^a, -2^a at distant columns, ones between: any other order of additions shows
  kWideExponent,  // exponents over +-20
  kZero,
};
enum class WeightFamily {
  kNormal,        // N(0, 1/H) rounded to bf16: logits of rms 1
  kSmallInteger,  // -4 .. 4
  kOrderSensitive,  // the partner of the hidden family
  kDuplicateRows,  // experts repeat a few distinct rows: exact ties of logits
  kZero,
};
enum class BiasFamily {
  kZero,
  kNormal,       // N(0, spread) around offset
  kUniform,      // offset + [0, spread): 11.54 + [0, 0.42) is GLM-5.3-Flash's published range
  kStepped,      // offset + i * spread, permuted: every pair of keys apart by a known step
  kFewDistinct,  // offset + one of 4 multiples of spread: exact ties
};
enum class LogitsFamily {
  kNormal,
  kShifted,       // N(0, 1) + offset (all negative, all positive)
  kAllEqual,      // one value in a row
  kFewDistinct,   // ties across the cut, members in distant positions
  kUlpSteps,      // neighbours apart by 0, 1 or 2 ulp around offset
  kSaturated,     // scores round to 1 or underflow
  kSignedZero,    // +0 and -0 mixed
};

enum class TensorId { kHiddenStates, kGateWeight, kLinearBias, kSelectionBias, kRouterLogits };

// One value written after generation: NaN, Inf, -0, subnormals, a one-ulp neighbour.
struct Plant {
  TensorId tensor;
  std::int64_t row;     // bias: 0; -1: every row
  std::int64_t column;  // -1: every column
  std::uint32_t bits;   // fp32 bits; a bf16 tensor takes the upper 16
  bool operator==(const Plant&) const = default;
};

struct CaseDescription {
  std::uint64_t seed = 0;
  std::uint64_t index = 0;
  std::string hazard = "plain";  // label: what this case is meant to provoke
  Stage stage = Stage::kFull;

  std::int64_t num_tokens = 1;
  std::int64_t hidden_size = 0;  // 0 exactly when stage is kFromLogits
  std::int64_t num_experts = 1;
  std::int64_t top_k = 1;
  std::int64_t n_group = 1;
  std::int64_t topk_group = 1;
  std::optional<std::int32_t> num_valid_rows;

  std::uint64_t data_key = 0;
  HiddenFamily hidden = HiddenFamily::kNormal;
  WeightFamily weight = WeightFamily::kNormal;
  oracle::FloatType gate_weight_dtype = oracle::FloatType::kBf16;
  BiasFamily linear_bias = BiasFamily::kNormal;
  BiasFamily selection_bias = BiasFamily::kZero;
  float bias_offset = 0.0f;
  float bias_spread = 1.0f;
  LogitsFamily logits = LogitsFamily::kNormal;
  float logits_offset = 0.0f;
  float logits_spread = 1.0f;
  std::vector<Plant> plants;  // positions refer to the generated tensors, before any selection below

  // Sub-tensors of the generated ones, for shrinking: empty means all. num_tokens, num_experts and hidden_size are the
  // sizes after selection.
  std::vector<std::int64_t> keep_rows, keep_experts, keep_columns;

  // Explicit tensors instead of generated ones (known answers, captures, the end of shrinking).
  std::optional<oracle::RouterInputs> data;
};

struct Case {
  std::string spec_name;    // for REPRO lines: the name or file that was given
  std::string variant;      // empty: none
  oracle::RouterSpec spec;  // resolved, with the shape of the description (apply_shape)
  CaseDescription description;
};

// The spec with hidden_size (from logits: unchanged), num_experts, top_k and groups of the description.
oracle::RouterSpec apply_shape(const oracle::RouterSpec& spec, const CaseDescription& description);

// All tensors of the case. Throws std::invalid_argument when the description contradicts itself.
oracle::RouterInputs materialize(const Case& c);

}  // namespace samebits::properties
