#include "properties/explain_mistakes.h"

#include <cstddef>
#include <limits>

#include "oracle/emulate/tc256.h"
#include "oracle/tensors/bf16.h"
#include "properties/spec_features.h"

namespace samebits::properties {
namespace {

using oracle::RouterSpec;
using Answer = oracle::RowAnswer<float>;

bool ranks_scores(const RouterSpec& spec) {
  return spec.selection.method == oracle::SelectionMethod::kTopk && spec.selection.rank_by == oracle::RankBy::kScore;
}

bool renormalizes(const RouterSpec& spec) {
  return spec.weights.renormalize == oracle::Renormalize::kL1;
}

bool is_softmax(const RouterSpec& spec) {
  return spec.score.func == oracle::ScoreFunc::kSoftmax && !is_sparsemixer(spec);
}

bool has_scale(const RouterSpec& spec) {
  return static_cast<float>(spec.weights.routed_scaling_factor) != 1.0f;
}

void ignore_groups(RouterSpec& spec) {
  spec.selection.n_group = spec.selection.topk_group = 1;
  spec.selection.group_score = oracle::GroupScore::kNone;
  spec.selection.group_mask = oracle::GroupMask::kNone;
}

constexpr Mistake kMistakes[] = {
    {"the selection bias rounded to bf16",
     [](Setup& s) {
       const bool possible = s.spec.selection.bias == oracle::BiasType::kFp32;
       s.spec.selection.bias = oracle::BiasType::kBf16;
       return possible;
     }},
    {"the selection bias kept in fp32",
     [](Setup& s) {
       const bool possible = s.spec.selection.bias == oracle::BiasType::kBf16;
       s.spec.selection.bias = oracle::BiasType::kFp32;
       return possible;
     }},
    {"the selection bias added before the score function",
     [](Setup& s) {
       const bool possible = !s.bias.empty() && ranks_scores(s.spec);
       const bool bf16 = s.spec.selection.bias == oracle::BiasType::kBf16;
       for (std::size_t e = 0; e < s.bias.size(); ++e)
         s.logits[e] += bf16 ? oracle::round_to_bf16(s.bias[e]) : s.bias[e];
       s.spec.selection.bias = oracle::BiasType::kNone;
       s.bias.clear();
       return possible;
     }},
    {"the selection bias left out",
     [](Setup& s) {
       const bool possible = !s.bias.empty();
       s.spec.selection.bias = oracle::BiasType::kNone;
       s.bias.clear();
       return possible;
     }},
    {"the logits rounded to bf16",
     [](Setup& s) {
       for (float& x : s.logits) x = oracle::round_to_bf16(x);
       return s.spec.gate.logits_dtype == oracle::FloatType::kFp32;
     }},
    {"the logits kept in fp32",
     [](Setup& s) {
       if (s.spec.gate.logits_dtype != oracle::FloatType::kBf16) return false;
       RouterSpec gate = s.spec;
       gate.gate.logits_dtype = oracle::FloatType::kFp32;
       return s.recompute_logits(gate);
     }},
    {"experts ranked by logit instead of score",
     [](Setup& s) {
       const bool possible = ranks_scores(s.spec);
       s.spec.selection.rank_by = oracle::RankBy::kLogit;
       return possible;
     }},
    {"softmax over the chosen experts instead of over all",
     [](Setup& s) {
       const bool possible = is_softmax(s.spec) && s.spec.score.stage == oracle::ScoreStage::kBeforeTopk;
       s.spec.score.stage = oracle::ScoreStage::kAfterTopk;
       s.spec.selection.rank_by = oracle::RankBy::kLogit;
       return possible;
     }},
    {"softmax over all experts instead of over the chosen",
     [](Setup& s) {
       const bool possible = is_softmax(s.spec) && s.spec.score.stage == oracle::ScoreStage::kAfterTopk;
       s.spec.score.stage = oracle::ScoreStage::kBeforeTopk;
       return possible;
     }},
    {"softmax over the kept groups instead of over all",
     [](Setup& s) {
       const bool possible =
           ranks_groups(s.spec) && is_softmax(s.spec) && s.spec.selection.group_mask == oracle::GroupMask::kNegInf;
       if (!possible) return false;
       const Answer answer = s.route();
       for (std::size_t e = 0; e < answer.excluded.size(); ++e) {
         if (answer.excluded[e] != 0) s.logits[e] = -std::numeric_limits<float>::infinity();
       }
       return true;
     }},
    {"softmax scores instead of sigmoid",
     [](Setup& s) {
       const bool possible = s.spec.score.func == oracle::ScoreFunc::kSigmoid;
       s.spec.score.func = oracle::ScoreFunc::kSoftmax;
       return possible;
     }},
    {"sigmoid scores instead of softmax",
     [](Setup& s) {
       const bool possible = is_softmax(s.spec);
       s.spec.score.func = oracle::ScoreFunc::kSigmoid;
       return possible;
     }},
    {"the scores kept in fp32",
     [](Setup& s) {
       const bool possible = s.spec.score.dtype == oracle::FloatType::kBf16;
       s.spec.score.dtype = oracle::FloatType::kFp32;
       return possible;
     }},
    {"the scores rounded to bf16",
     [](Setup& s) {
       const bool possible = s.spec.score.dtype == oracle::FloatType::kFp32;
       s.spec.score.dtype = oracle::FloatType::kBf16;
       return possible;
     }},
    {"rejected groups masked with 0 instead of -inf",
     [](Setup& s) {
       const bool possible = ranks_groups(s.spec) && s.spec.selection.group_mask == oracle::GroupMask::kNegInf;
       s.spec.selection.group_mask = oracle::GroupMask::kZero;
       return possible;
     }},
    {"rejected groups masked with -inf instead of 0",
     [](Setup& s) {
       const bool possible = ranks_groups(s.spec) && s.spec.selection.group_mask == oracle::GroupMask::kZero;
       s.spec.selection.group_mask = oracle::GroupMask::kNegInf;
       return possible;
     }},
    {"groups ranked by their maximum instead of their best two",
     [](Setup& s) {
       const bool possible = ranks_groups(s.spec) && s.spec.selection.group_score == oracle::GroupScore::kTop2Sum;
       s.spec.selection.group_score = oracle::GroupScore::kMax;
       return possible;
     }},
    {"groups ranked by their best two instead of their maximum",
     [](Setup& s) {
       const bool possible = ranks_groups(s.spec) && s.spec.selection.group_score == oracle::GroupScore::kMax;
       s.spec.selection.group_score = oracle::GroupScore::kTop2Sum;
       return possible;
     }},
    {"the groups ignored",
     [](Setup& s) {
       const bool possible = ranks_groups(s.spec);
       ignore_groups(s.spec);
       return possible;
     }},
    {"weights taken from the biased score",
     [](Setup& s) {
       const bool possible = !s.bias.empty() && s.spec.weights.source == oracle::WeightSource::kUnbiasedScore &&
                             oracle::shared_in_gate(s.spec) == 0;
       s.spec.weights.source = oracle::WeightSource::kBiasedScore;
       return possible;
     }},
    {"weights taken from the unbiased score",
     [](Setup& s) {
       const bool possible = !s.bias.empty() && s.spec.weights.source == oracle::WeightSource::kBiasedScore;
       s.spec.weights.source = oracle::WeightSource::kUnbiasedScore;
       return possible;
     }},
    {"weights not renormalised",
     [](Setup& s) {
       const bool possible = s.spec.weights.renormalize != oracle::Renormalize::kNone;
       s.spec.weights.renormalize = oracle::Renormalize::kNone;
       s.spec.weights.eps = 0.0;
       s.spec.weights.eps_mode = oracle::EpsMode::kNone;
       return possible;
     }},
    {"weights renormalised",
     [](Setup& s) {
       const bool possible = s.spec.weights.renormalize == oracle::Renormalize::kNone;
       s.spec.weights.renormalize = oracle::Renormalize::kL1;
       return possible;
     }},
    {"eps left out",
     [](Setup& s) {
       const bool possible = s.spec.weights.renormalize == oracle::Renormalize::kL1 && s.spec.weights.eps != 0.0 &&
                             s.spec.weights.eps_mode != oracle::EpsMode::kNone;
       s.spec.weights.eps_mode = oracle::EpsMode::kNone;
       return possible;
     }},
    {"the scale applied by the router",
     [](Setup& s) {
       const bool possible = has_scale(s.spec) && s.spec.weights.scale_stage == oracle::ScaleStage::kOnExpertOutput;
       s.spec.weights.scale_stage = oracle::ScaleStage::kAfterRenorm;
       return possible;
     }},
    {"the scale left out",
     [](Setup& s) {
       const bool possible = has_scale(s.spec) && s.spec.weights.scale_stage != oracle::ScaleStage::kOnExpertOutput;
       s.spec.weights.routed_scaling_factor = 1.0;
       return possible;
     }},
    {"the scale applied twice",
     [](Setup& s) {
       const bool possible = has_scale(s.spec) && s.spec.weights.scale_stage != oracle::ScaleStage::kOnExpertOutput;
       s.spec.weights.routed_scaling_factor *= s.spec.weights.routed_scaling_factor;
       return possible;
     }},
    {"the scale applied before the division",
     [](Setup& s) {
       const bool possible =
           has_scale(s.spec) && renormalizes(s.spec) && s.spec.weights.scale_stage == oracle::ScaleStage::kAfterRenorm;
       s.spec.weights.scale_stage = oracle::ScaleStage::kBeforeDivide;
       return possible;
     }},
    {"the scale applied after the division",
     [](Setup& s) {
       const bool possible =
           has_scale(s.spec) && renormalizes(s.spec) && s.spec.weights.scale_stage == oracle::ScaleStage::kBeforeDivide;
       s.spec.weights.scale_stage = oracle::ScaleStage::kAfterRenorm;
       return possible;
     }},
    {"the weights kept in fp32",
     [](Setup& s) {
       const bool possible = s.spec.weights.dtype == oracle::FloatType::kBf16;
       s.spec.weights.dtype = oracle::FloatType::kFp32;
       return possible;
     }},
    {"the weights rounded to bf16",
     [](Setup& s) {
       const bool possible = s.spec.weights.dtype == oracle::FloatType::kFp32;
       s.spec.weights.dtype = oracle::FloatType::kBf16;
       return possible;
     }},
};

}  // namespace

oracle::RowAnswer<float> Setup::route() const {
  oracle::RowConstants constants;
  constants.selection_bias = bias;
  constants.per_expert_scale = per_expert_scale;
  constants.global_scale = global_scale;
  constants.table_ids = table_ids;
  constants.routable = routable;
  return oracle::route_row(spec, std::span<const float>(logits), constants);
}

bool Setup::recompute_logits(const RouterSpec& gate_spec) {
  if (inputs->from_logits()) return false;
  logits = oracle::tc256_logits(gate_spec, *inputs, std::span(&row, 1));
  return true;
}

std::span<const Mistake> general_mistakes() {
  return kMistakes;
}

}  // namespace samebits::properties
