// One row through all steps.

#include <algorithm>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include "oracle/reference/answer.h"
#include "oracle/reference/groups.h"
#include "oracle/reference/log_space.h"
#include "oracle/reference/rank_key.h"
#include "oracle/reference/score.h"
#include "oracle/reference/select.h"
#include "oracle/reference/sparsemixer.h"
#include "oracle/reference/weigh.h"

namespace samebits::oracle {
namespace {

void require_size(const char* name, std::size_t found, std::int64_t wanted) {
  if (found != static_cast<std::size_t>(wanted)) {
    throw std::invalid_argument("route_row: found " + std::to_string(found) + " values of " + name +
                                "; allowed: " + std::to_string(wanted) + ", as the spec says; give them all");
  }
}

void check_sizes(const RouterSpec& spec, std::size_t num_logits, const RowConstants& constants) {
  require_size("logits", num_logits, gate_rows(spec));
  if (!constants.routable) return;
  if (spec.selection.bias != BiasType::kNone) {
    require_size("selection_bias", constants.selection_bias.size(), ranked_experts(spec));
  }
  if (spec.weights.per_expert_scale) {
    require_size("per_expert_scale", constants.per_expert_scale.size(), gate_rows(spec));
  }
  if (spec.selection.method == SelectionMethod::kHashTable) {
    require_size("table_ids", constants.table_ids.size(), top_k(spec));
  }
  if (spec.weights.global_scale != constants.global_scale.has_value()) {
    require_size("global_scale", constants.global_scale ? 1 : 0, spec.weights.global_scale ? 1 : 0);
  }
}

// at[id] for each id; 0 for the id -1.
template <class Real>
std::vector<Real> gather(std::span<const Real> at, std::span<const std::int32_t> ids) {
  std::vector<Real> values;
  values.reserve(ids.size());
  for (const std::int32_t id : ids) values.push_back(id < 0 ? Real{0} : at[static_cast<std::size_t>(id)]);
  return values;
}

// Scores that exist before selection: of all experts that compete, and of the shared ones in the gate.
template <class Real>
std::vector<Real> scores_before_selection(const RouterSpec& spec, std::span<const Real> logits) {
  if (spec.score.stage == ScoreStage::kAfterTopk || spec.selection.method == SelectionMethod::kSparsemixer) {
    return std::vector<Real>(logits.size());
  }
  const auto ranked = static_cast<std::size_t>(ranked_experts(spec));
  std::vector<Real> scores = score<Real>(spec.score, logits.first(ranked));
  if (ranked == logits.size()) return scores;
  const std::vector<Real> shared = spec.score.func == ScoreFunc::kSoftmax
                                       ? std::vector<Real>(logits.size() - ranked)
                                       : score<Real>(spec.score, logits.subspan(ranked));
  scores.insert(scores.end(), shared.begin(), shared.end());
  return scores;
}

// Ranks the experts: fills keys, groups and the cut of the answer, and returns the chosen in key order. biased_keys are
// the keys as they were before a `zero` mask.
template <class Real>
std::vector<std::int32_t> select_by_keys(const RouterSpec& spec, const RowConstants& constants, RowAnswer<Real>& answer,
                                         std::vector<Real>& biased_keys) {
  const auto ranked = static_cast<std::size_t>(ranked_experts(spec));
  biased_keys = rank_keys<Real>(spec, std::span<const Real>(answer.logits).first(ranked),
                                std::span<const Real>(answer.scores).first(ranked), constants.selection_bias);
  answer.keys = biased_keys;
  answer.excluded.assign(ranked, 0);
  if (has_groups(spec.selection)) {
    answer.group_scores = group_scores<Real>(spec.selection, answer.keys);
    answer.group_kept = kept_groups<Real>(spec.selection, answer.group_scores);
    const std::size_t group_size = ranked / answer.group_kept.size();
    for (std::size_t e = 0; e < ranked; ++e) {
      if (answer.group_kept[e / group_size] != 0) continue;
      if (spec.selection.group_mask == GroupMask::kZero) answer.keys[e] = 0;
      if (spec.selection.group_mask == GroupMask::kNegInf) answer.excluded[e] = 1;
    }
  }
  Selected selected = spec.selection.topk_scope == TopkScope::kPerGroup
                          ? select_per_group<Real>(answer.keys, spec.selection.n_group, top_k(spec))
                          : select<Real>(answer.keys, answer.excluded, top_k(spec));
  answer.last_chosen = selected.last_chosen;
  answer.first_rejected = selected.first_rejected;
  return std::move(selected.ids);
}

// Scores that exist only for the slots.
template <class Real>
void score_the_chosen(const RouterSpec& spec, RowAnswer<Real>& answer) {
  std::vector<Real> scores;
  if (spec.selection.method == SelectionMethod::kSparsemixer) {
    scores = sparsemixer_scores<Real>(spec.sparsemixer_jitter_eps.value(), answer.logits, answer.expert_ids);
    if (spec.score.dtype == FloatType::kBf16) {
      for (Real& s : scores) s = ArithmeticOf<Real>::round_to_bf16(s);
    }
  } else if (spec.score.stage == ScoreStage::kAfterTopk) {
    scores = score<Real>(spec.score, gather<Real>(answer.logits, answer.expert_ids));
  }
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (answer.expert_ids[i] >= 0) answer.scores[static_cast<std::size_t>(answer.expert_ids[i])] = scores[i];
  }
}

template <class Real>
Weighed<Real> weigh_slots(const RouterSpec& spec, const RowConstants& constants, const RowAnswer<Real>& answer,
                          std::span<const Real> biased_keys) {
  const std::span<const std::int32_t> ids = answer.expert_ids;
  LearnedScales scales;
  if (spec.weights.per_expert_scale) scales.per_slot = gather<float>(constants.per_expert_scale, ids);
  scales.global = constants.global_scale;
  if (spec.weights.renormalize == Renormalize::kLogSpaceL1) {
    return weigh_in_log_space<Real>(spec.weights, gather<Real>(answer.logits, ids), scales);
  }
  const bool biased = spec.weights.source == WeightSource::kBiasedScore;
  return weigh<Real>(spec.weights, gather<Real>(biased ? biased_keys : std::span<const Real>(answer.scores), ids),
                     scales);
}

template <class Real>
void sort_by_index(RowAnswer<Real>& answer) {
  std::vector<std::size_t> order(answer.expert_ids.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return answer.expert_ids[a] < answer.expert_ids[b]; });
  const RowAnswer<Real> by_key = answer;
  for (std::size_t i = 0; i < order.size(); ++i) {
    answer.expert_ids[i] = by_key.expert_ids[order[i]];
    answer.weights[i] = by_key.weights[order[i]];
    answer.values[i] = by_key.values[order[i]];
  }
}

// The ids that are returned: zero experts under their own id, or as id 0 with weight 0.
template <class Real>
void name_experts(const RouterSpec& spec, RowAnswer<Real>& answer) {
  answer.ids = answer.expert_ids;
  if (spec.special.zero_type != ZeroType::kIdentityRemappedToId0Weight0) return;
  for (std::size_t i = 0; i < answer.ids.size(); ++i) {
    if (answer.ids[i] < num_experts(spec) || answer.ids[i] >= ranked_experts(spec)) continue;
    answer.ids[i] = 0;
    answer.weights[i] = 0;
  }
}

template <class Real>
RowAnswer<Real> route(const RouterSpec& spec, std::span<const Real> logits, const RowConstants& constants) {
  check_sizes(spec, logits.size(), constants);
  const auto columns = static_cast<std::size_t>(topk_columns(spec));
  RowAnswer<Real> answer;
  answer.logits.resize(logits.size());
  std::transform(logits.begin(), logits.end(), answer.logits.begin(), ArithmeticOf<Real>::one_nan);
  answer.scores = scores_before_selection<Real>(spec, answer.logits);
  if (!constants.routable) {
    answer.ids = answer.expert_ids = std::vector<std::int32_t>(columns, -1);
    answer.weights = answer.values = std::vector<Real>(columns);
    return answer;
  }

  std::vector<Real> biased_keys;
  if (spec.selection.method == SelectionMethod::kHashTable) {
    answer.expert_ids.assign(constants.table_ids.begin(), constants.table_ids.end());
  } else {
    answer.expert_ids = select_by_keys<Real>(spec, constants, answer, biased_keys);
  }
  for (auto id = static_cast<std::int32_t>(ranked_experts(spec)); answer.expert_ids.size() < columns; ++id) {
    answer.expert_ids.push_back(id);  // shared experts in the gate
  }
  score_the_chosen<Real>(spec, answer);

  Weighed<Real> weighed = weigh_slots<Real>(spec, constants, answer, biased_keys);
  answer.weights = std::move(weighed.weights);
  answer.values = std::move(weighed.values);
  answer.sum = weighed.sum;
  answer.denominator = weighed.denominator;
  if (spec.selection.sort == SlotOrder::kByIndex) sort_by_index(answer);
  name_experts(spec, answer);
  return answer;
}

}  // namespace

RowAnswer<float> route_row(const RouterSpec& spec, std::span<const float> logits, const RowConstants& constants) {
  return route<float>(spec, logits, constants);
}

RowAnswer<double> route_row(const RouterSpec& spec, std::span<const double> logits, const RowConstants& constants) {
  return route<double>(spec, logits, constants);
}

}  // namespace samebits::oracle
