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

// No formula of a family reads num_tokens or num_experts, and only weight scale and pairs read H, always the generated
// one: this is what lets a smaller case keep the values of the larger one.
enum class HiddenFamily {
  kNormal,          // N(0, 1) rounded to bf16 (a sum of four uniform integers)
  kSmallInteger,    // -4 .. 4
  kOrderSensitive,  // with its weight partner: cancelling pairs of terms, so that the logit is what rounding left
  kWideExponent,    // N(0, 1) * 2^n, n uniform in -20 .. 20
  kSubnormal,       // both signs, every bf16 subnormal
  kUnitRows,        // row r is 1 in column r mod H and +0 elsewhere: with WeightFamily::kLogits, logits of any kind
  kFewTerms,        // N(0, H) in about three columns of a row, +0 elsewhere: logits of rms 1.7 of three terms each,
                    // whose proven error bound is near one fp32 rounding whatever H is
  kZero,
};
enum class WeightFamily {
  kNormal,          // N(0, 1/H): logits of rms 1
  kSmallInteger,    // -4 .. 4
  kOrderSensitive,  // the partner of the hidden family
  kWideExponent,    // N(0, 1) * 2^n, n uniform in -20 .. 20
  kDuplicateRows,   // N(0, 1/H), every expert has one of 3 rows: exact ties of logits
  kLogits,          // column c of expert e is what the logits family gives to row c and expert e
  kZero,
};
enum class BiasFamily {
  kZero,
  kNormal,   // offset + spread * N(0, 1)
  kUniform,  // offset + spread * [0, 1): 11.54 and 0.42 is GLM-5.3-Flash's published range
  kStepped,  // offset + spread * n, n a permutation of consecutive integers: every pair of experts a known step apart
  kFewDistinct,  // offset + spread * level; half of the experts have level 0, a quarter 1, ...: exact ties at any cut
};
enum class LogitsFamily {
  kNormal,       // offset + spread * N(0, 1)
  kAllEqual,     // offset + spread * N(0, 1), one value in a row
  kFewDistinct,  // offset + spread * level, levels as of the bias: ties across the cut, members at distant ids
  kUlpSteps,    // offset + n units in the last place (bf16 units where the spec rounds logits), n consecutive or levels
  kSparse,      // offset, for one in 16 offset + spread * {0.75, 0.8, 1}: the best expert can be alone in its group
  kSaturated,   // values at which scores round to 1, lose their bits, underflow or overflow
  kSignedZero,  // +0 and -0
  kScoreZones,  // row r is uniform in zone r mod 8: logits whose scores, or sums of scores, are 0, subnormal, about
                // 1e-20, or where a formula for the score loses bits; logits_offset and logits_spread play no part
};
inline constexpr std::int64_t kNumScoreZones = 8;

// Input scale vector, per-expert scale and global scale.
enum class ScaleFamily {
  kUnit,          // 1
  kNormal,        // 1 + N(0, 1) / 2: about one in 50 is negative
  kWideExponent,  // N(0, 1) * 2^n, n uniform in -20 .. 20
};
enum class TokenFamily {
  kUniform,  // 0 .. vocab_size - 1
  kEdges,    // one in four of them: 0, vocab_size - 1, vocab_size, -1, the greatest and the least int32; of int64 ids
             // also 2^32 + i and -2^32 + i for an i of the table, the least and the greatest int64
};
enum class RowClassFamily {
  kAbsent,  // the tensor is not given: every row is of class 0
  kMixed,   // uniform over the bias variants
  kEdges,   // one in four of them: -1, the number of classes, the greatest and the least int32
};

enum class TensorId {
  kHiddenStates,
  kGateWeight,
  kLinearBias,
  kSelectionBias,
  kRouterLogits,
  kInputScaleVector,
  kPerExpertScale,
  kGlobalScale,
  kTokenIds,
  kRowClass,
};

// One value written after generation: NaN, Inf, -0, a subnormal, a neighbour. Later plants overwrite earlier ones.
struct Plant {
  TensorId tensor;
  std::int64_t row;     // token; expert of the gate weight; class of the selection bias; else 0; -1: every row
  std::int64_t column;  // hidden column; expert of a bias, a scale and of logits; else 0; -1: every column
  std::uint32_t bits;   // fp32 bits; a bf16 tensor takes the upper 16; token ids and row classes: an int32
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
  std::int64_t zero_experts = 0;
  std::int64_t shared_in_gate = 0;
  std::int64_t vocab_size = 0;  // rows of the hash table; 0 exactly when the spec selects by another method
  std::optional<std::int32_t> num_valid_rows;

  std::uint64_t data_key = 0;
  HiddenFamily hidden = HiddenFamily::kNormal;
  WeightFamily weight = WeightFamily::kNormal;
  oracle::FloatType gate_weight_dtype = oracle::FloatType::kBf16;
  BiasFamily linear_bias = BiasFamily::kNormal;
  BiasFamily selection_bias = BiasFamily::kZero;
  float bias_offset = 0.0f;  // of both biases
  float bias_spread = 1.0f;
  LogitsFamily logits = LogitsFamily::kNormal;
  float logits_offset = 0.0f;
  float logits_spread = 1.0f;
  ScaleFamily scales = ScaleFamily::kNormal;
  TokenFamily tokens = TokenFamily::kUniform;
  bool token_ids_int32 = false;
  RowClassFamily row_classes = RowClassFamily::kMixed;
  std::vector<Plant> plants;  // positions refer to the generated tensors, before any selection below

  // Sub-tensors of the generated ones, for shrinking: empty means all. The sizes above are those after selection.
  // keep_experts holds rows of the generated gate: routed experts, then zero experts, then shared ones, each ascending;
  // the counts above say how many there are of each. The generated hash table is reduced by vocab_size alone.
  std::vector<std::int64_t> keep_rows, keep_experts, keep_columns;
  std::int64_t generated_hidden_size = 0;  // H before the selection of columns; 0: hidden_size

  // Explicit tensors instead of generated ones (known answers, captures, the end of shrinking). Nothing is planted in
  // or selected from them, and num_valid_rows above counts.
  std::optional<oracle::RouterInputs> data;
};

struct Case {
  std::string spec_name;    // for REPRO lines: the name or file that was given
  std::string variant;      // empty: none
  oracle::RouterSpec spec;  // resolved, with the shape of the description (apply_shape)
  CaseDescription description;
};

// The spec with hidden_size (from logits: unchanged), num_experts, top_k, groups, zero experts, shared experts in the
// gate and vocab_size of the description. One group is no group: group_score and group_mask become none. Without zero
// experts zero_type becomes none, without shared experts in the gate shared_mode is no longer in_gate.
oracle::RouterSpec apply_shape(const oracle::RouterSpec& spec, const CaseDescription& description);

// All tensors of the case. Throws std::invalid_argument when the description contradicts itself or the spec.
oracle::RouterInputs materialize(const Case& c);

}  // namespace samebits::properties
