#include "properties/variation.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "oracle/spec/validate.h"
#include "oracle/tensors/bf16.h"
#include "properties/spec_features.h"

namespace samebits::properties {
namespace {

using oracle::RouterInputs;
using oracle::RouterSpec;

constexpr float kShift = 4.0f, kMostLogit = 64.0f, kLogitSteps = 1024.0f;
constexpr float kRaise = 8.0f, kBiasSteps = 16.0f;
constexpr float kNegativeInf = -std::numeric_limits<float>::infinity();

// Sums over the experts in the order of their ids, as 32 lanes.
bool sums_over_experts(const RouterSpec& spec) {
  return is_sparsemixer(spec) || (spec.score.func == oracle::ScoreFunc::kSoftmax && scores_before_selection(spec));
}

std::int64_t group_size(const RouterSpec& spec) {
  return oracle::num_experts(spec) / spec.selection.n_group;
}

// Ids trade places inside aligned blocks of this many, so that groups keep their members. Where the router sums over
// the experts, a block is a power of two up to 32: id i xor (block - 1) then exchanges whole lanes of sum32, which adds
// the same pairs of lanes, and fp32 addition is commutative.
std::int64_t permuted_block(const RouterSpec& spec) {
  if (!sums_over_experts(spec)) return group_size(spec);
  std::int64_t block = 32;
  while (group_size(spec) % block != 0 || spec.special.zero_experts % block != 0) block /= 2;
  return block;
}

bool has_one_choice(const RouterSpec& spec) {
  return spec.selection.method == oracle::SelectionMethod::kTopk && spec.selection.n_group == 1 &&
         spec.selection.topk_scope == oracle::TopkScope::kGlobal;
}

// How many groups a router without groups gets; 1: none.
std::int64_t new_groups(const RouterSpec& spec) {
  for (const std::int64_t groups : {4, 2, 3}) {
    if (oracle::num_experts(spec) % groups == 0 && oracle::num_experts(spec) > groups) return groups;
  }
  return 1;
}

bool is_renormalised_softmax(const RouterSpec& spec) {
  // An eps below 2^-40 changes no bit of S + eps, as S is at least the largest score, 1 / R or more.
  constexpr double kNoEps = 0x1p-40;
  return spec.score.func == oracle::ScoreFunc::kSoftmax && scores_before_selection(spec) &&
         spec.weights.renormalize == oracle::Renormalize::kL1 && spec.weights.eps < kNoEps &&
         spec.score.dtype == oracle::FloatType::kFp32 && spec.weights.dtype == oracle::FloatType::kFp32 &&
         has_one_choice(spec) && !has_selection_bias(spec) && !renames_zero_experts(spec);
}

RouterSpec derived_spec(RouterSpec spec, Variation variation) {
  RouterSpec::Selection& selection = spec.selection;
  RouterSpec::Weights& weights = spec.weights;
  switch (variation) {
    case Variation::kDoubledScale:
      weights.routed_scaling_factor = 2.0 * static_cast<float>(weights.routed_scaling_factor);
      break;
    case Variation::kOtherScale:
      weights.routed_scaling_factor = weights.routed_scaling_factor == 1.0 ? 2.5 : 1.0;
      break;
    case Variation::kBf16Weights:
      weights.dtype = oracle::FloatType::kBf16;
      break;
    case Variation::kAllGroups:
      if (!ranks_groups(spec)) {
        selection.n_group = new_groups(spec);
        selection.group_score = oracle::GroupScore::kMax;
        selection.group_mask = oracle::GroupMask::kNegInf;
      }
      selection.topk_group = selection.n_group;
      break;
    case Variation::kNoGroups:
      selection.n_group = selection.topk_group = 1;
      selection.group_score = oracle::GroupScore::kNone;
      selection.group_mask = oracle::GroupMask::kNone;
      break;
    case Variation::kAppendedExpert:
      spec.shape.num_experts = oracle::num_experts(spec) + 1;
      break;
    case Variation::kSoftmaxOfChosen:
      spec.score.stage = oracle::ScoreStage::kAfterTopk;
      selection.rank_by = oracle::RankBy::kLogit;
      weights.renormalize = oracle::Renormalize::kNone;
      weights.eps = 0.0;
      weights.eps_mode = oracle::EpsMode::kNone;
      break;
    default:
      break;
  }
  return spec;
}

bool is_related(const RouterSpec& spec, Variation variation) {
  const bool by_logit = spec.selection.rank_by == oracle::RankBy::kLogit;
  switch (variation) {
    case Variation::kPermutedExperts:
      // With a `zero` mask the keys of rejected experts tie. Zero experts that were renamed have lost their ids.
      return permuted_block(spec) > 1 && spec.selection.group_mask != oracle::GroupMask::kZero &&
             !renames_zero_experts(spec);
    case Variation::kBf16Weights:
      return spec.weights.dtype == oracle::FloatType::kFp32;
    case Variation::kAllGroups:
      return ranks_groups(spec) || (has_one_choice(spec) && spec.special.zero_experts == 0 && new_groups(spec) > 1);
    case Variation::kNoGroups:
      return ranks_groups(spec);
    case Variation::kShiftedLogits:
      // What else a key is made of must not be rounded otherwise.
      return spec.score.func == oracle::ScoreFunc::kSoftmax && !is_sparsemixer(spec) &&
             !(by_logit && (has_selection_bias(spec) || ranks_groups(spec)));
    case Variation::kAppendedExpert:
      return spec.selection.n_group == 1 && spec.special.zero_experts == 0 && oracle::shared_in_gate(spec) == 0;
    case Variation::kRoundBiases:
    case Variation::kRaisedBiases:
      // Weights that hold the bias change with it, sums of group scores by more than it.
      return has_selection_bias(spec) && spec.selection.method == oracle::SelectionMethod::kTopk &&
             spec.weights.source == oracle::WeightSource::kUnbiasedScore && !ranks_groups(spec);
    case Variation::kSoftmaxOfChosen:
      return is_renormalised_softmax(spec);
    default:
      return true;
  }
}

template <class Element>
void permute_rows(const RouterSpec& spec, std::vector<Element>& matrix, std::int64_t width) {
  if (matrix.empty()) return;
  const std::vector<Element> from = matrix;
  for (std::int64_t e = 0; e < oracle::gate_rows(spec); ++e) {
    std::copy_n(from.begin() + e * width, width, matrix.begin() + permuted_id(spec, e) * width);
  }
}

// Of a matrix whose rows are `width` wide and start with the experts that compete.
void permute_columns(const RouterSpec& spec, std::vector<float>& matrix, std::int64_t width) {
  const std::vector<float> from = matrix;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(matrix.size()); ++i) {
    matrix[static_cast<std::size_t>(i - i % width + permuted_id(spec, i % width))] = from[static_cast<std::size_t>(i)];
  }
}

void permute(const RouterSpec& spec, RouterInputs& inputs) {
  const std::int64_t gate = oracle::gate_rows(spec);
  permute_rows(spec, inputs.gate_weight_bf16, inputs.hidden_size);
  permute_rows(spec, inputs.gate_weight_fp32, inputs.hidden_size);
  permute_columns(spec, inputs.router_logits, gate);
  permute_columns(spec, inputs.linear_bias, gate);
  permute_columns(spec, inputs.selection_bias, oracle::ranked_experts(spec));
  permute_columns(spec, inputs.per_expert_scale, gate);
  for (std::int32_t& id : inputs.hash_table) id = static_cast<std::int32_t>(permuted_id(spec, id));
}

// Of a value of the case: where the case has hidden states, those of the row make its logits.
float few_bits(float value) {
  if (!std::isfinite(value)) return 0.0f;
  return std::nearbyint(std::clamp(value, -kMostLogit, kMostLogit) * kLogitSteps) / kLogitSteps;
}

void give_logits(RouterInputs& inputs, float shift) {
  const std::int64_t gate = inputs.gate_rows, hidden = inputs.hidden_size;
  std::vector<float> logits(static_cast<std::size_t>(inputs.num_tokens * gate));
  for (std::int64_t t = 0; t < inputs.num_tokens; ++t) {
    for (std::int64_t e = 0; e < gate; ++e) {
      const auto at = static_cast<std::size_t>(t * gate + e);
      const float value =
          inputs.from_logits()
              ? inputs.router_logits[at]
              : oracle::bf16_to_fp32(inputs.hidden_states[static_cast<std::size_t>(t * hidden + e % hidden)]);
      logits[at] = few_bits(value) + shift;
    }
  }
  inputs.router_logits = std::move(logits);
  inputs.hidden_states.clear();
  inputs.gate_weight_bf16.clear();
  inputs.gate_weight_fp32.clear();
  inputs.input_scale_vector.clear();
  inputs.linear_bias.clear();  // finished logits have it
  inputs.hidden_size = 0;
}

// bf16 values, which stay exact when they are raised.
void round_biases(std::vector<float>& biases, float raise) {
  for (float& bias : biases) {
    const float finite = std::isfinite(bias) ? bias : 0.0f;
    bias = std::clamp(std::nearbyint(finite * kBiasSteps) / kBiasSteps, -kRaise, kRaise - 1.0f / kBiasSteps) + raise;
  }
}

void append_column(std::vector<float>& matrix, std::int64_t width, float value) {
  std::vector<float> wider;
  wider.reserve(matrix.size() + matrix.size() / static_cast<std::size_t>(width));
  for (std::size_t i = 0; i < matrix.size(); ++i) {
    wider.push_back(matrix[i]);
    if ((i + 1) % static_cast<std::size_t>(width) == 0) wider.push_back(value);
  }
  matrix = std::move(wider);
}

}  // namespace

const char* name_of(Variation variation) {
  switch (variation) {
    case Variation::kNone:
      break;
    case Variation::kPermutedExperts:
      return "permuted_experts";
    case Variation::kDoubledScale:
      return "doubled_scale";
    case Variation::kOtherScale:
      return "other_scale";
    case Variation::kBf16Weights:
      return "bf16_weights";
    case Variation::kAllGroups:
      return "all_groups";
    case Variation::kNoGroups:
      return "no_groups";
    case Variation::kGivenLogits:
      return "given_logits";
    case Variation::kShiftedLogits:
      return "shifted_logits";
    case Variation::kAppendedExpert:
      return "appended_expert";
    case Variation::kRoundBiases:
      return "round_biases";
    case Variation::kRaisedBiases:
      return "raised_biases";
    case Variation::kSoftmaxOfChosen:
      return "softmax_of_chosen";
  }
  return "none";
}

bool can_vary(const RouterSpec& spec, Variation variation) {
  return is_related(spec, variation) && oracle::find_problems(derived_spec(spec, variation)).empty();
}

Variation base_of(const RouterSpec& spec, Variation variation) {
  switch (variation) {
    case Variation::kAllGroups:
      return ranks_groups(spec) ? Variation::kNoGroups : Variation::kNone;
    case Variation::kShiftedLogits:
    case Variation::kAppendedExpert:
    case Variation::kSoftmaxOfChosen:
      return Variation::kGivenLogits;
    case Variation::kRaisedBiases:
      return Variation::kRoundBiases;
    default:
      return Variation::kNone;
  }
}

std::int64_t permuted_id(const RouterSpec& spec, std::int64_t id) {
  const std::int64_t block = permuted_block(spec);
  const std::int64_t end = sums_over_experts(spec) ? oracle::ranked_experts(spec) : oracle::num_experts(spec);
  if (id < 0 || id >= end) return id;
  return id - id % block + (block - 1 - id % block);
}

DerivedRouter derive(const RouterSpec& spec, const RouterInputs& inputs, Variation variation) {
  DerivedRouter derived{derived_spec(spec, variation), inputs};
  switch (variation) {
    case Variation::kPermutedExperts:
      permute(spec, derived.inputs);
      break;
    case Variation::kGivenLogits:
    case Variation::kSoftmaxOfChosen:
      give_logits(derived.inputs, 0.0f);
      break;
    case Variation::kShiftedLogits:
      give_logits(derived.inputs, kShift);
      break;
    case Variation::kRoundBiases:
    case Variation::kRaisedBiases:
      give_logits(derived.inputs, 0.0f);
      round_biases(derived.inputs.selection_bias, variation == Variation::kRaisedBiases ? kRaise : 0.0f);
      break;
    case Variation::kAppendedExpert:
      give_logits(derived.inputs, 0.0f);
      append_column(derived.inputs.router_logits, inputs.gate_rows, kNegativeInf);
      append_column(derived.inputs.selection_bias, inputs.gate_rows, kNegativeInf);
      append_column(derived.inputs.per_expert_scale, inputs.gate_rows, 1.0f);
      ++derived.inputs.gate_rows;
      break;
    default:
      break;
  }
  return derived;
}

}  // namespace samebits::properties
