#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "oracle/emulate/tc256.h"
#include "oracle/reference/log_space.h"
#include "oracle/reference/score.h"
#include "oracle/reference/weigh.h"
#include "properties/explain_mistakes.h"
#include "properties/spec_features.h"

namespace samebits::properties {
namespace {

using oracle::RouterSpec;
using Answer = oracle::RowAnswer<float>;

// The bias of the first class.
bool use_first_class(Setup& s) {
  const auto ranked = static_cast<std::ptrdiff_t>(oracle::ranked_experts(s.spec));
  s.bias.assign(s.inputs->selection_bias.begin(), s.inputs->selection_bias.begin() + ranked);
  return true;
}

std::int64_t class_of(const Setup& s) {
  return s.inputs->row_class.empty() ? 0 : s.inputs->row_class[static_cast<std::size_t>(s.row)];
}

// The table's row of another token where that of the row is outside of the table.
bool use_token(Setup& s, std::int64_t (*token)(std::int64_t id, std::int64_t vocab_size)) {
  if (s.routable || !has_table(s.spec)) return false;
  const std::int64_t k = oracle::top_k(s.spec), vocab = std::ssize(s.inputs->hash_table) / k;
  const std::int64_t other = token(s.inputs->token_ids[static_cast<std::size_t>(s.row)], vocab);
  if (other < 0 || other >= vocab) return false;
  const auto first = s.inputs->hash_table.begin() + other * k;
  s.table_ids.assign(first, first + k);
  s.routable = true;
  return true;
}

// Logits of a gate that differs in one field.
bool with_gate(Setup& s, bool possible, void (*edit)(RouterSpec&)) {
  if (!possible) return false;
  RouterSpec gate = s.spec;
  edit(gate);
  return s.recompute_logits(gate);
}

void remove_at(std::vector<float>& values, std::int64_t first, std::int64_t last) {
  if (values.size() > static_cast<std::size_t>(first)) values.erase(values.begin() + first, values.begin() + last);
}

bool leave_out_zero_experts(Setup& s) {
  const std::int64_t routed = oracle::num_experts(s.spec), ranked = oracle::ranked_experts(s.spec);
  const bool in_table = std::any_of(s.table_ids.begin(), s.table_ids.end(), [&](auto id) { return id >= routed; });
  if (routed == ranked || in_table || oracle::top_k(s.spec) > routed) return false;
  remove_at(s.logits, routed, ranked);
  remove_at(s.bias, routed, ranked);
  remove_at(s.per_expert_scale, routed, ranked);
  s.spec.special.zero_experts = 0;
  s.spec.special.zero_type = oracle::ZeroType::kNone;
  return true;
}

// Shared experts keep the ids that they have.
void restore_shared_ids(const Setup& s, Answer& answer) {
  const auto routed = static_cast<std::int32_t>(oracle::num_experts(s.spec));
  const auto shift = static_cast<std::int32_t>(s.inputs->gate_rows - oracle::gate_rows(s.spec));
  for (std::int32_t& id : answer.ids) id += id >= routed ? shift : 0;
}

// Weights by a sum of the first k slots, which the shared experts follow.
void without_shared_in_the_sum(const Setup& s, Answer& answer) {
  const auto k = static_cast<std::size_t>(oracle::top_k(s.spec));
  const bool log_space = s.spec.weights.renormalize == oracle::Renormalize::kLogSpaceL1;
  oracle::LearnedScales scales;
  scales.global = s.spec.weights.global_scale ? s.global_scale : std::nullopt;
  for (const std::int32_t id : answer.expert_ids) {
    if (s.spec.weights.per_expert_scale) scales.per_slot.push_back(s.per_expert_scale[static_cast<std::size_t>(id)]);
  }
  const std::span<const float> chosen = std::span<const float>(answer.values).first(k);
  const float sum = log_space ? oracle::tc256::sum32(chosen) : oracle::weigh<float>(s.spec.weights, chosen).denominator;
  if (sum == 0.0f) return;
  const float scale = oracle::routed_scale<float>(s.spec.weights), log_sum = oracle::tc256::log(sum);
  float max = -INFINITY;
  for (const std::int32_t id : answer.expert_ids) {
    max = std::max(max, oracle::log_sigmoid(answer.logits[static_cast<std::size_t>(id)]));
  }
  for (std::size_t i = 0; i < answer.values.size(); ++i) {
    const float l = oracle::log_sigmoid(answer.logits[static_cast<std::size_t>(answer.expert_ids[i])]);
    const float share = log_space ? oracle::tc256::exp((l - max) - log_sum) : answer.values[i] / sum;
    answer.weights[i] = oracle::finished_weight(s.spec.weights, share * scale, i, scales);
  }
}

// Scores by a sum that leaves the terms of the zero experts out.
bool leave_zero_experts_out_of_the_sum(Setup& s) {
  const auto routed = static_cast<std::size_t>(oracle::num_experts(s.spec));
  const bool possible = s.spec.special.zero_experts > 0 && s.spec.score.func == oracle::ScoreFunc::kSoftmax &&
                        s.spec.score.stage == oracle::ScoreStage::kBeforeTopk &&
                        s.spec.selection.rank_by == oracle::RankBy::kScore;
  if (!possible || !std::all_of(s.logits.begin(), s.logits.end(), [](float x) { return std::isfinite(x); })) {
    return false;
  }
  const float max = *std::max_element(s.logits.begin(), s.logits.end());
  for (float& x : s.logits) x = oracle::tc256::exp(x - max);
  const float sum = oracle::tc256::sum32(std::span<const float>(s.logits).first(routed));
  for (float& x : s.logits) x /= sum;
  s.spec.score.func = oracle::ScoreFunc::kIdentity;
  return true;
}

void uniform_weights(const Setup& s, Answer& answer) {
  const float share = 1.0f / static_cast<float>(answer.weights.size());
  std::fill(answer.weights.begin(), answer.weights.end(),
            share * static_cast<float>(s.spec.weights.routed_scaling_factor));
}

// Sparsemixer passes that all measure the distance from the largest logit.
void thresholds_from_the_largest(const Setup& s, Answer& answer) {
  if (answer.expert_ids.empty()) return;
  const float threshold = 2.0f * static_cast<float>(s.spec.sparsemixer_jitter_eps.value());
  std::vector<float> left = answer.logits;
  Setup weighing = s;
  std::vector<float> scores(left.size());
  const float t = left[static_cast<std::size_t>(answer.expert_ids.front())];
  for (const std::int32_t id : answer.expert_ids) {
    std::vector<float> pass = left;
    for (std::size_t j = 0; j < pass.size(); ++j) {
      if ((t - answer.logits[j]) / std::max(std::fabs(answer.logits[j]), t) > threshold) pass[j] = -INFINITY;
    }
    scores[static_cast<std::size_t>(id)] = oracle::softmax<float>(pass)[static_cast<std::size_t>(id)];
    left[static_cast<std::size_t>(id)] = -INFINITY;
  }
  weighing.logits = scores;
  weighing.spec.score = {.func = oracle::ScoreFunc::kIdentity, .dtype = s.spec.score.dtype};
  const Answer weighed = route_chosen(weighing, answer.expert_ids);
  answer.weights = weighed.weights;
}

constexpr Mistake kMistakes[] = {
    {"the selection bias of the first row class for every row",
     [](Setup& s) { return s.routable && !s.bias.empty() && class_of(s) != 0 && use_first_class(s); }},
    {"an unknown row class read as the first",
     [](Setup& s) {
       if (s.routable || s.inputs->selection_bias.empty() || has_table(s.spec)) return false;
       s.routable = true;
       return use_first_class(s);
     }},
    {"a token id outside the table clamped to it",
     [](Setup& s) {
       return use_token(s,
                        [](std::int64_t id, std::int64_t vocab) { return std::clamp<std::int64_t>(id, 0, vocab - 1); });
     }},
    {"a token id outside the table cut to 32 bits",
     [](Setup& s) {
       return use_token(s, [](std::int64_t id, std::int64_t) -> std::int64_t { return static_cast<std::int32_t>(id); });
     }},
    {"the table's ids sorted",
     [](Setup& s) {
       std::sort(s.table_ids.begin(), s.table_ids.end());
       return s.routable && has_table(s.spec);
     }},
    {"the table's ids sorted by score",
     [](Setup& s) {
       const Answer answer = s.route();
       std::stable_sort(s.table_ids.begin(), s.table_ids.end(), [&](std::int32_t a, std::int32_t b) {
         return answer.scores[static_cast<std::size_t>(a)] > answer.scores[static_cast<std::size_t>(b)];
       });
       return s.routable && has_table(s.spec);
     }},
    {"experts ranked although a table chooses them",
     [](Setup& s) {
       const bool possible = s.routable && has_table(s.spec);
       s.spec.selection.method = oracle::SelectionMethod::kTopk;
       return possible;
     }},
    {"uniform weights for a table's experts", [](Setup& s) { return s.routable && has_table(s.spec); },
     uniform_weights},
    {"the best of all experts instead of the best of each group",
     [](Setup& s) {
       const bool possible = selects_per_group(s.spec) && s.spec.selection.n_group > 1;
       s.spec.selection.topk_scope = oracle::TopkScope::kGlobal;
       s.spec.selection.n_group = s.spec.selection.topk_group = 1;
       return possible;
     }},
    {"the zero experts left out of the sum of the softmax", leave_zero_experts_out_of_the_sum},
    {"the zero experts left out of softmax and choice", leave_out_zero_experts, restore_shared_ids},
    {"zero experts not renamed to id 0 with weight 0",
     [](Setup& s) {
       const bool possible = renames_zero_experts(s.spec);
       s.spec.special.zero_type = oracle::ZeroType::kIdentity;
       return possible;
     }},
    {"zero experts renamed to id 0 with weight 0",
     [](Setup& s) {
       const bool possible = s.spec.special.zero_type == oracle::ZeroType::kIdentity;
       s.spec.special.zero_type = oracle::ZeroType::kIdentityRemappedToId0Weight0;
       return possible;
     }},
    {"the shared experts left out of the sum",
     [](Setup& s) {
       return s.routable && oracle::shared_in_gate(s.spec) > 0 &&
              s.spec.weights.renormalize != oracle::Renormalize::kNone;
     },
     without_shared_in_the_sum},
    {"sigmoids divided by their sum instead of in log space",
     [](Setup& s) {
       const bool possible = s.spec.weights.renormalize == oracle::Renormalize::kLogSpaceL1;
       s.spec.weights.renormalize = oracle::Renormalize::kL1;
       return possible;
     }},
    {"the learned scale of the slot instead of the expert's",
     [](Setup& s) {
       if (s.per_expert_scale.empty() || !s.routable) return false;
       const Answer answer = s.route();
       const std::vector<float> by_slot = s.per_expert_scale;
       for (std::size_t i = 0; i < answer.expert_ids.size(); ++i) {
         s.per_expert_scale[static_cast<std::size_t>(answer.expert_ids[i])] = by_slot[i];
       }
       return true;
     }},
    {"the learned scale of the expert left out",
     [](Setup& s) { return std::exchange(s.spec.weights.per_expert_scale, false); }},
    {"the learned global scale left out",
     [](Setup& s) {
       s.global_scale.reset();
       return std::exchange(s.spec.weights.global_scale, false);
     }},
    {"the threshold of sparsemixer left out",
     [](Setup& s) {
       s.spec.sparsemixer_jitter_eps = 1e30;
       return is_sparsemixer(s.spec);
     }},
    {"every pass of sparsemixer thresholded from the largest logit", [](Setup& s) { return is_sparsemixer(s.spec); },
     thresholds_from_the_largest},
    {"one softmax over all experts instead of sparsemixer",
     [](Setup& s) {
       const bool possible = is_sparsemixer(s.spec);
       s.spec.selection.method = oracle::SelectionMethod::kTopk;
       return possible;
     }},
    {"the softcap left out",
     [](Setup& s) {
       return with_gate(s, s.spec.logits.softcap.has_value(), [](RouterSpec& gate) { gate.logits.softcap.reset(); });
     }},
    {"the softcap as a ratio of exponentials, which overflow",
     [](Setup& s) {
       const std::vector<float> right = s.logits;
       if (!with_gate(s, s.spec.logits.softcap.has_value(), [](RouterSpec& gate) { gate.logits.softcap.reset(); })) {
         return false;
       }
       const float cap = static_cast<float>(s.spec.logits.softcap.value());
       for (std::size_t e = 0; e < right.size(); ++e) {
         const bool overflows = std::isinf(std::exp(2.0f * (s.logits[e] / cap)));
         s.logits[e] = overflows ? std::numeric_limits<float>::quiet_NaN() : right[e];
       }
       return true;
     }},
    {"the temperature left out",
     [](Setup& s) {
       return with_gate(s, s.spec.logits.temperature != 1.0, [](RouterSpec& gate) { gate.logits.temperature = 1.0; });
     }},
    {"the norm of the input left out",
     [](Setup& s) {
       return with_gate(s, s.spec.gate.input_norm != oracle::InputNorm::kNone,
                        [](RouterSpec& gate) { gate.gate.input_norm = oracle::InputNorm::kNone; });
     }},
    {"eps of the input's norm left out",
     [](Setup& s) {
       return with_gate(s, s.spec.gate.input_norm != oracle::InputNorm::kNone,
                        [](RouterSpec& gate) { gate.gate.input_norm_eps = 0.0; });
     }},
    {"the scale vector of the input left out",
     [](Setup& s) {
       return with_gate(s, s.spec.gate.input_scale_vector,
                        [](RouterSpec& gate) { gate.gate.input_scale_vector = false; });
     }},
    {"the scale of the input left out",
     [](Setup& s) {
       const bool possible = s.spec.gate.input_scale_kind != oracle::InputScale::kFactor ||
                             static_cast<float>(s.spec.gate.input_scale) != 1.0f;
       return with_gate(s, possible, [](RouterSpec& gate) {
         gate.gate.input_scale_kind = oracle::InputScale::kFactor;
         gate.gate.input_scale = 1.0;
       });
     }},
    {"the scale of the input rounded to bf16",
     [](Setup& s) {
       return with_gate(s, s.spec.gate.input_scale_kind == oracle::InputScale::kRsqrtHiddenSize, [](RouterSpec& gate) {
         gate.gate.input_scale_kind = oracle::InputScale::kRsqrtHiddenSizeBf16;
       });
     }},
    {"the scale of the input kept in fp32",
     [](Setup& s) {
       return with_gate(s, s.spec.gate.input_scale_kind == oracle::InputScale::kRsqrtHiddenSizeBf16,
                        [](RouterSpec& gate) { gate.gate.input_scale_kind = oracle::InputScale::kRsqrtHiddenSize; });
     }},
};

}  // namespace

std::span<const Mistake> feature_mistakes() {
  return kMistakes;
}

}  // namespace samebits::properties
