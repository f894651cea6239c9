#include "properties/explain_row.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <functional>
#include <numeric>

#include "oracle/tensors/bf16.h"

namespace samebits::properties {
namespace {

using oracle::RouterSpec;

// What one row is routed from; a mistake changes a copy of it.
struct Setup {
  RouterSpec spec;
  std::vector<float> logits;
  std::vector<float> bias;
};

struct Mistake {
  const char* text;
  bool (*make)(Setup& setup);  // false: it would change nothing here
};

bool has_groups(const RouterSpec& spec) {
  return spec.selection.n_group > 1;
}

constexpr Mistake kMistakes[] = {
    {"the selection bias rounded to bf16",
     [](Setup& s) {
       const bool possible = s.spec.selection.bias == oracle::BiasType::kFp32;
       s.spec.selection.bias = oracle::BiasType::kBf16;
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
    {"the groups ignored",
     [](Setup& s) {
       const bool possible = has_groups(s.spec);
       s.spec.selection.n_group = s.spec.selection.topk_group = 1;
       s.spec.selection.group_score = oracle::GroupScore::kNone;
       s.spec.selection.group_mask = oracle::GroupMask::kNone;
       return possible;
     }},
    {"weights taken from the biased score",
     [](Setup& s) {
       const bool possible = !s.bias.empty() && s.spec.weights.source == oracle::WeightSource::kUnbiasedScore;
       s.spec.weights.source = oracle::WeightSource::kBiasedScore;
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
    {"the scale left out",
     [](Setup& s) {
       const bool possible = s.spec.weights.scale_stage != oracle::ScaleStage::kOnExpertOutput;
       s.spec.weights.routed_scaling_factor = 1.0;
       return possible;
     }},
    {"the scale applied twice",
     [](Setup& s) {
       const bool possible = s.spec.weights.scale_stage != oracle::ScaleStage::kOnExpertOutput;
       s.spec.weights.routed_scaling_factor *= s.spec.weights.routed_scaling_factor;
       return possible;
     }},
    {"the scale applied before the division",
     [](Setup& s) {
       const bool possible = s.spec.weights.renormalize == oracle::Renormalize::kL1 &&
                             s.spec.weights.scale_stage == oracle::ScaleStage::kAfterRenorm;
       s.spec.weights.scale_stage = oracle::ScaleStage::kBeforeDivide;
       return possible;
     }},
    {"the weights rounded to bf16",
     [](Setup& s) {
       const bool possible = s.spec.weights.dtype == oracle::FloatType::kFp32;
       s.spec.weights.dtype = oracle::FloatType::kBf16;
       return possible;
     }},
};

std::vector<std::int64_t> sorted(std::span<const std::int64_t> ids) {
  std::vector<std::int64_t> copy(ids.begin(), ids.end());
  std::sort(copy.begin(), copy.end());
  return copy;
}

std::vector<std::int64_t> sorted_ids(const oracle::RowAnswer<float>& answer) {
  std::vector<std::int64_t> copy(answer.ids.begin(), answer.ids.end());
  std::sort(copy.begin(), copy.end());
  return copy;
}

// Best K by key with ties to the higher id.
std::vector<std::int64_t> highest_id_choice(const oracle::RowAnswer<float>& answer) {
  std::vector<std::int64_t> ids(answer.keys.size());
  std::iota(ids.begin(), ids.end(), std::int64_t{0});
  std::sort(ids.begin(), ids.end(), [&](std::int64_t a, std::int64_t b) {
    const auto i = static_cast<std::size_t>(a);
    const auto j = static_cast<std::size_t>(b);
    const bool tie = answer.excluded[i] == answer.excluded[j] &&
                     (answer.keys[i] == answer.keys[j] || (std::isnan(answer.keys[i]) && std::isnan(answer.keys[j])));
    return tie ? a > b : ranks_before(answer, a, b);
  });
  ids.resize(answer.ids.size());
  std::sort(ids.begin(), ids.end());
  return ids;
}

std::vector<std::string> explain(const RouterSpec& spec, std::span<const float> logits,
                                 std::span<const float> selection_bias,
                                 const std::function<bool(const oracle::RowAnswer<float>&)>& reproduces) {
  std::vector<std::string> notes;
  for (const Mistake& mistake : kMistakes) {
    Setup setup{spec, {logits.begin(), logits.end()}, {selection_bias.begin(), selection_bias.end()}};
    if (!mistake.make(setup)) continue;
    if (reproduces(oracle::route_row(setup.spec, std::span<const float>(setup.logits), setup.bias))) {
      notes.push_back(std::string("reproduced by: ") + mistake.text);
    }
  }
  return notes;
}

}  // namespace

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
  const std::vector<std::int64_t> observed = sorted(ids);
  std::vector<std::string> notes;
  if (highest_id_choice(oracle::route_row(spec, logits, selection_bias)) == observed) {
    notes.emplace_back("reproduced by: ties to the higher id");
  }
  for (std::string& note :
       explain(spec, logits, selection_bias, [&](const auto& answer) { return sorted_ids(answer) == observed; })) {
    notes.push_back(std::move(note));
  }
  return notes;
}

std::vector<std::string> explain_weights(const RouterSpec& spec, std::span<const float> logits,
                                         std::span<const float> selection_bias, std::span<const std::int64_t> ids,
                                         std::span<const float> weights) {
  return explain(spec, logits, selection_bias, [&](const oracle::RowAnswer<float>& answer) {
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (answer.ids[i] != ids[i]) return false;
      if (std::bit_cast<std::uint32_t>(answer.weights[i]) != std::bit_cast<std::uint32_t>(weights[i])) return false;
    }
    return true;
  });
}

}  // namespace samebits::properties
