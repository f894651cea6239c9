#include "properties/explain_row.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

#include "oracle/reference/rank_key.h"
#include "oracle/reference/score.h"
#include "oracle/reference/weigh.h"
#include "oracle/tensors/bf16.h"

namespace samebits::properties {
namespace {

using oracle::RouterSpec;
using Answer = oracle::RowAnswer<float>;

// What one row is routed from; a mistake changes a copy of it.
struct Setup {
  RouterSpec spec;
  std::vector<float> logits;
  std::vector<float> bias;
  std::vector<float> unrounded_logits;  // empty: unknown
};

struct Mistake {
  const char* text;
  bool (*make)(Setup& setup);  // false: it would change nothing here
};

bool has_groups(const RouterSpec& spec) {
  return spec.selection.n_group > 1;
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
       const bool possible = !s.bias.empty() && s.spec.selection.rank_by == oracle::RankBy::kScore;
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
       const bool possible =
           s.spec.gate.logits_dtype == oracle::FloatType::kBf16 && s.unrounded_logits.size() == s.logits.size();
       if (possible) s.logits = s.unrounded_logits;
       return possible;
     }},
    {"experts ranked by logit instead of score",
     [](Setup& s) {
       const bool possible = s.spec.selection.rank_by == oracle::RankBy::kScore;
       s.spec.selection.rank_by = oracle::RankBy::kLogit;
       return possible;
     }},
    {"softmax over the chosen experts instead of over all",
     [](Setup& s) {
       const bool possible =
           s.spec.score.func == oracle::ScoreFunc::kSoftmax && s.spec.score.stage == oracle::ScoreStage::kBeforeTopk;
       s.spec.score.stage = oracle::ScoreStage::kAfterTopk;
       s.spec.selection.rank_by = oracle::RankBy::kLogit;
       return possible;
     }},
    {"softmax over all experts instead of over the chosen",
     [](Setup& s) {
       const bool possible =
           s.spec.score.func == oracle::ScoreFunc::kSoftmax && s.spec.score.stage == oracle::ScoreStage::kAfterTopk;
       s.spec.score.stage = oracle::ScoreStage::kBeforeTopk;
       return possible;
     }},
    {"softmax over the kept groups instead of over all",
     [](Setup& s) {
       const bool possible = has_groups(s.spec) && s.spec.score.func == oracle::ScoreFunc::kSoftmax &&
                             s.spec.selection.group_mask == oracle::GroupMask::kNegInf;
       if (!possible) return false;
       const Answer answer = oracle::route_row(s.spec, std::span<const float>(s.logits), {.selection_bias = s.bias});
       for (std::size_t e = 0; e < s.logits.size(); ++e) {
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
       const bool possible = s.spec.score.func == oracle::ScoreFunc::kSoftmax;
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
       const bool possible = has_groups(s.spec) && s.spec.selection.group_mask == oracle::GroupMask::kNegInf;
       s.spec.selection.group_mask = oracle::GroupMask::kZero;
       return possible;
     }},
    {"rejected groups masked with -inf instead of 0",
     [](Setup& s) {
       const bool possible = has_groups(s.spec) && s.spec.selection.group_mask == oracle::GroupMask::kZero;
       s.spec.selection.group_mask = oracle::GroupMask::kNegInf;
       return possible;
     }},
    {"groups ranked by their maximum instead of their best two",
     [](Setup& s) {
       const bool possible = has_groups(s.spec) && s.spec.selection.group_score == oracle::GroupScore::kTop2Sum;
       s.spec.selection.group_score = oracle::GroupScore::kMax;
       return possible;
     }},
    {"groups ranked by their best two instead of their maximum",
     [](Setup& s) {
       const bool possible = has_groups(s.spec) && s.spec.selection.group_score == oracle::GroupScore::kMax;
       s.spec.selection.group_score = oracle::GroupScore::kTop2Sum;
       return possible;
     }},
    {"the groups ignored",
     [](Setup& s) {
       const bool possible = has_groups(s.spec);
       ignore_groups(s.spec);
       return possible;
     }},
    {"weights taken from the biased score",
     [](Setup& s) {
       const bool possible = !s.bias.empty() && s.spec.weights.source == oracle::WeightSource::kUnbiasedScore;
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
       const bool possible = s.spec.weights.renormalize == oracle::Renormalize::kL1;
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
       const bool possible = has_scale(s.spec) && s.spec.weights.renormalize == oracle::Renormalize::kL1 &&
                             s.spec.weights.scale_stage == oracle::ScaleStage::kAfterRenorm;
       s.spec.weights.scale_stage = oracle::ScaleStage::kBeforeDivide;
       return possible;
     }},
    {"the scale applied after the division",
     [](Setup& s) {
       const bool possible = has_scale(s.spec) && s.spec.weights.renormalize == oracle::Renormalize::kL1 &&
                             s.spec.weights.scale_stage == oracle::ScaleStage::kBeforeDivide;
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

// The answer with ties to the higher id, within a group and across the cut; groups stay as the contract ranks them.
Answer with_ties_to_the_higher_id(const Setup& setup) {
  Answer answer = oracle::route_row(setup.spec, std::span<const float>(setup.logits), {.selection_bias = setup.bias});
  const auto value = [](const auto& values, std::int32_t id) { return values[static_cast<std::size_t>(id)]; };
  std::vector<std::int32_t> ids(answer.keys.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::sort(ids.begin(), ids.end(), [&](std::int32_t a, std::int32_t b) {
    const float key_a = value(answer.keys, a), key_b = value(answer.keys, b);
    const bool tie = value(answer.excluded, a) == value(answer.excluded, b) &&
                     (key_a == key_b || (std::isnan(key_a) && std::isnan(key_b)));
    return tie ? a > b : ranks_before(answer, a, b);
  });
  ids.resize(answer.ids.size());
  if (std::any_of(ids.begin(), ids.end(), [&](std::int32_t id) { return value(answer.excluded, id) != 0; })) {
    return answer;  // too few experts are left for a choice
  }
  if (setup.spec.score.stage == oracle::ScoreStage::kAfterTopk) {
    std::vector<float> chosen;
    for (const std::int32_t id : ids) chosen.push_back(value(answer.logits, id));
    chosen = oracle::score<float>(setup.spec.score, chosen);
    answer.scores.assign(answer.scores.size(), 0.0f);
    for (std::size_t i = 0; i < ids.size(); ++i) answer.scores[static_cast<std::size_t>(ids[i])] = chosen[i];
  }
  const bool biased = setup.spec.weights.source == oracle::WeightSource::kBiasedScore;
  const std::vector<float> source =
      biased ? oracle::rank_keys<float>(setup.spec, answer.logits, answer.scores, setup.bias) : answer.scores;
  std::vector<float> chosen;
  for (const std::int32_t id : ids) chosen.push_back(value(source, id));
  const auto weighed = oracle::weigh<float>(setup.spec.weights, chosen);
  std::vector<std::size_t> slots(ids.size());
  std::iota(slots.begin(), slots.end(), std::size_t{0});
  if (setup.spec.selection.sort == oracle::SlotOrder::kByIndex) {
    std::sort(slots.begin(), slots.end(), [&](std::size_t a, std::size_t b) { return ids[a] < ids[b]; });
  }
  for (std::size_t i = 0; i < slots.size(); ++i) {
    answer.ids[i] = ids[slots[i]];
    answer.weights[i] = weighed.weights[slots[i]];
  }
  answer.sum = weighed.sum;
  answer.denominator = weighed.denominator;
  return answer;
}

template <class Ids>
std::vector<std::int64_t> sorted(const Ids& ids) {
  std::vector<std::int64_t> copy(ids.begin(), ids.end());
  std::sort(copy.begin(), copy.end());
  return copy;
}

}  // namespace

std::vector<Alternative> alternatives(const RouterSpec& spec, std::span<const float> logits,
                                      std::span<const float> selection_bias, std::span<const float> unrounded_logits) {
  const Setup contract{spec,
                       {logits.begin(), logits.end()},
                       {selection_bias.begin(), selection_bias.end()},
                       {unrounded_logits.begin(), unrounded_logits.end()}};
  std::vector<Alternative> result;
  result.push_back({"ties to the higher id", with_ties_to_the_higher_id(contract)});
  for (const Mistake& mistake : kMistakes) {
    Setup setup = contract;
    if (!mistake.make(setup)) continue;
    result.push_back({mistake.text, oracle::route_row(setup.spec, std::span<const float>(setup.logits), {.selection_bias = setup.bias})});
  }
  return result;
}

bool ranks_before(const oracle::RowAnswer<float>& answer, std::int64_t a, std::int64_t b) {
  const auto i = static_cast<std::size_t>(a);
  const auto j = static_cast<std::size_t>(b);
  if (answer.excluded[i] != answer.excluded[j]) return answer.excluded[i] < answer.excluded[j];
  const bool nan_a = std::isnan(answer.keys[i]);
  const bool nan_b = std::isnan(answer.keys[j]);
  if (nan_a != nan_b) return nan_b;
  if (!nan_a && answer.keys[i] != answer.keys[j]) return answer.keys[i] > answer.keys[j];
  return a < b;
}

std::vector<std::string> explain_ids(const RouterSpec& spec, std::span<const float> logits,
                                     std::span<const float> selection_bias, std::span<const std::int64_t> ids) {
  std::vector<std::string> notes;
  for (const Alternative& other : alternatives(spec, logits, selection_bias)) {
    if (sorted(other.answer.ids) == sorted(ids)) notes.push_back(std::string("reproduced by: ") + other.text);
  }
  return notes;
}

std::vector<std::string> explain_weights(const RouterSpec& spec, std::span<const float> logits,
                                         std::span<const float> selection_bias, std::span<const std::int64_t> ids,
                                         std::span<const float> weights) {
  std::vector<std::string> notes;
  for (const Alternative& other : alternatives(spec, logits, selection_bias)) {
    bool same = other.answer.ids.size() == ids.size();
    for (std::size_t i = 0; same && i < ids.size(); ++i) {
      same = other.answer.ids[i] == ids[i] &&
             std::bit_cast<std::uint32_t>(other.answer.weights[i]) == std::bit_cast<std::uint32_t>(weights[i]);
    }
    if (same) notes.push_back(std::string("reproduced by: ") + other.text);
  }
  return notes;
}

}  // namespace samebits::properties
