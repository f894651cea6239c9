#include "oracle/second/test/compare/rules.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace samebits::second {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

using Answer = oracle::RowAnswer<float>;
using oracle::RouterSpec;

bool any(std::span<const float> values, bool (*holds)(float)) {
  return std::any_of(values.begin(), values.end(), holds);
}

bool is_nan(float x) {
  return std::isnan(x);
}
bool is_positive_infinity(float x) {
  return x == kInf;
}

float greatest(std::span<const float> values) {
  float result = -kInf;
  for (const float value : values) {
    if (value > result) result = value;
  }
  return result;
}

struct Rule {
  const char* name;
  bool (*met)(const RouterSpec&, std::span<const float>, const Answer&);
};

bool is_softmax(const RouterSpec& spec) {
  return spec.score.func == oracle::ScoreFunc::kSoftmax;
}

float key_of(const Answer& answer, std::int32_t id) {
  return answer.keys[static_cast<std::size_t>(id)];
}

bool renormalizes(const RouterSpec& spec) {
  return spec.weights.renormalize == oracle::Renormalize::kL1;
}

constexpr std::array kRules{
    Rule{"NaN logit",
         [](const RouterSpec&, std::span<const float> logits, const Answer&) { return any(logits, is_nan); }},
    Rule{"softmax, largest logit +Inf",
         [](const RouterSpec& spec, std::span<const float> logits, const Answer&) {
           return is_softmax(spec) && any(logits, is_positive_infinity);
         }},
    Rule{"softmax, no logit above -Inf", [](const RouterSpec& spec, std::span<const float> logits,
                                            const Answer&) { return is_softmax(spec) && greatest(logits) == -kInf; }},
    Rule{"tie at the cut",
         [](const RouterSpec&, std::span<const float>, const Answer& answer) {
           return answer.first_rejected >= 0 &&
                  key_of(answer, answer.last_chosen) == key_of(answer, answer.first_rejected);
         }},
    Rule{"NaN at the cut",
         [](const RouterSpec&, std::span<const float>, const Answer& answer) {
           return answer.first_rejected >= 0 && std::isnan(key_of(answer, answer.last_chosen));
         }},
    Rule{"NaN group score", [](const RouterSpec&, std::span<const float>,
                               const Answer& answer) { return any(answer.group_scores, is_nan); }},
    Rule{"zero mask, a key below 0",
         [](const RouterSpec& spec, std::span<const float>, const Answer& answer) {
           return spec.selection.group_mask == oracle::GroupMask::kZero && answer.last_chosen >= 0 &&
                  key_of(answer, answer.last_chosen) == 0;
         }},
    Rule{"neg_inf mask", [](const RouterSpec& spec, std::span<const float>,
                            const Answer&) { return spec.selection.group_mask == oracle::GroupMask::kNegInf; }},
    Rule{"per group", [](const RouterSpec& spec, std::span<const float>,
                         const Answer&) { return spec.selection.topk_scope == oracle::TopkScope::kPerGroup; }},
    Rule{"hash table", [](const RouterSpec& spec, std::span<const float>,
                          const Answer&) { return spec.selection.method == oracle::SelectionMethod::kHashTable; }},
    Rule{"sparsemixer", [](const RouterSpec& spec, std::span<const float>,
                           const Answer&) { return spec.selection.method == oracle::SelectionMethod::kSparsemixer; }},
    Rule{"scores after top-k", [](const RouterSpec& spec, std::span<const float>,
                                  const Answer&) { return spec.score.stage == oracle::ScoreStage::kAfterTopk; }},
    Rule{"biased weights", [](const RouterSpec& spec, std::span<const float>,
                              const Answer&) { return spec.weights.source == oracle::WeightSource::kBiasedScore; }},
    Rule{"D = 0",
         [](const RouterSpec&, std::span<const float>, const Answer& answer) { return answer.denominator == 0; }},
    Rule{"D < 0",
         [](const RouterSpec&, std::span<const float>, const Answer& answer) { return answer.denominator < 0; }},
    Rule{"+Inf with renormalisation",
         [](const RouterSpec& spec, std::span<const float>, const Answer& answer) {
           return renormalizes(spec) && any(answer.values, is_positive_infinity);
         }},
    Rule{"+Inf without renormalisation",
         [](const RouterSpec&, std::span<const float>, const Answer& answer) {
           return std::find(answer.weights.begin(), answer.weights.end(), kLargest) != answer.weights.end();
         }},
    Rule{"log space", [](const RouterSpec& spec, std::span<const float>,
                         const Answer&) { return spec.weights.renormalize == oracle::Renormalize::kLogSpaceL1; }},
    Rule{"log space, D = 0",
         [](const RouterSpec& spec, std::span<const float>, const Answer& answer) {
           return spec.weights.renormalize == oracle::Renormalize::kLogSpaceL1 && answer.denominator == 0;
         }},
    Rule{"zero expert chosen",
         [](const RouterSpec& spec, std::span<const float>, const Answer& answer) {
           return std::any_of(answer.expert_ids.begin(), answer.expert_ids.end(), [&](std::int32_t id) {
             return id >= oracle::num_experts(spec) && id < oracle::ranked_experts(spec);
           });
         }},
    Rule{"zero expert renamed", [](const RouterSpec&, std::span<const float>,
                                   const Answer& answer) { return answer.ids != answer.expert_ids; }},
    Rule{"shared experts in the gate", [](const RouterSpec& spec, std::span<const float>,
                                          const Answer&) { return oracle::shared_in_gate(spec) > 0; }},
    Rule{"learned scales", [](const RouterSpec& spec, std::span<const float>,
                              const Answer&) { return spec.weights.per_expert_scale || spec.weights.global_scale; }},
};

}  // namespace

std::vector<std::string> rules_met(const RouterSpec& spec, std::span<const float> logits, const Answer& answer) {
  std::vector<std::string> met;
  for (const Rule& rule : kRules) {
    if (rule.met(spec, logits, answer)) met.emplace_back(rule.name);
  }
  return met;
}

std::span<const char* const> all_rules() {
  static const auto names = [] {
    std::array<const char*, kRules.size()> result{};
    std::transform(kRules.begin(), kRules.end(), result.begin(), [](const Rule& rule) { return rule.name; });
    return result;
  }();
  return names;
}

}  // namespace samebits::second
