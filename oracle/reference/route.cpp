// One row through all steps.

#include <algorithm>
#include <numeric>
#include <stdexcept>

#include "oracle/reference/answer.h"
#include "oracle/reference/groups.h"
#include "oracle/reference/rank_key.h"
#include "oracle/reference/score.h"
#include "oracle/reference/select.h"
#include "oracle/reference/weigh.h"

namespace samebits::oracle {
namespace {

void require_covered(const RouterSpec& spec, std::size_t num_logits, std::size_t num_biases) {
  if (spec.selection.method != SelectionMethod::kTopk || spec.selection.topk_scope != TopkScope::kGlobal ||
      spec.weights.renormalize == Renormalize::kLogSpaceL1 || spec.weights.per_expert_scale ||
      spec.weights.global_scale) {
    throw std::invalid_argument("route_row: the spec asks for a step that the reference does not have");
  }
  const std::size_t experts = static_cast<std::size_t>(num_experts(spec));
  if (num_logits != experts || (spec.selection.bias != BiasType::kNone && num_biases != experts)) {
    throw std::invalid_argument("route_row: logits and selection bias must have num_experts entries");
  }
}

// at[id] for each id; 0 for the id -1.
template <class Real>
std::vector<Real> gather(std::span<const Real> at, std::span<const std::int32_t> ids) {
  std::vector<Real> values;
  for (const std::int32_t id : ids) values.push_back(id < 0 ? Real{0} : at[static_cast<std::size_t>(id)]);
  return values;
}

template <class Real>
void sort_by_index(RowAnswer<Real>& answer) {
  std::vector<std::size_t> order(answer.ids.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return answer.ids[a] < answer.ids[b]; });
  const RowAnswer<Real> by_key = answer;
  for (std::size_t i = 0; i < order.size(); ++i) {
    answer.ids[i] = by_key.ids[order[i]];
    answer.weights[i] = by_key.weights[order[i]];
  }
}

template <class Real>
RowAnswer<Real> route(const RouterSpec& spec, std::span<const Real> logits, const RowConstants& constants) {
  const std::span<const float> selection_bias = constants.selection_bias;
  require_covered(spec, logits.size(), selection_bias.size());
  const bool after_topk = spec.score.stage == ScoreStage::kAfterTopk;
  RowAnswer<Real> answer;
  for (const Real x : logits) answer.logits.push_back(ArithmeticOf<Real>::one_nan(x));
  answer.scores = after_topk ? std::vector<Real>(logits.size()) : score<Real>(spec.score, answer.logits);

  const std::vector<Real> keys = rank_keys<Real>(spec, answer.logits, answer.scores, selection_bias);
  answer.keys = keys;
  answer.excluded.assign(logits.size(), 0);
  if (has_groups(spec.selection)) {
    answer.group_scores = group_scores<Real>(spec.selection, keys);
    answer.group_kept = kept_groups<Real>(spec.selection, answer.group_scores);
    const std::size_t group_size = keys.size() / answer.group_kept.size();
    for (std::size_t e = 0; e < keys.size(); ++e) {
      if (answer.group_kept[e / group_size] != 0) continue;
      if (spec.selection.group_mask == GroupMask::kZero) answer.keys[e] = 0;
      if (spec.selection.group_mask == GroupMask::kNegInf) answer.excluded[e] = 1;
    }
  }

  const Selected selected = select<Real>(answer.keys, answer.excluded, top_k(spec));
  answer.ids = selected.ids;
  answer.last_chosen = selected.ids.empty() ? -1 : selected.ids.back();
  answer.first_rejected = selected.first_rejected;
  if (after_topk) {
    const std::vector<Real> chosen = score<Real>(spec.score, gather<Real>(answer.logits, answer.ids));
    for (std::size_t i = 0; i < chosen.size(); ++i) {
      if (answer.ids[i] >= 0) answer.scores[static_cast<std::size_t>(answer.ids[i])] = chosen[i];
    }
  }

  // biased_score: the key as it was before a `zero` mask.
  const bool biased = spec.weights.source == WeightSource::kBiasedScore;
  const Weighed<Real> weighed = weigh<Real>(spec.weights, gather<Real>(biased ? keys : answer.scores, answer.ids));
  answer.weights = weighed.weights;
  answer.sum = weighed.sum;
  answer.denominator = weighed.denominator;
  if (spec.selection.sort == SlotOrder::kByIndex) sort_by_index(answer);
  return answer;
}

}  // namespace

RowAnswer<float> route_row(const RouterSpec& spec, std::span<const float> logits, const RowConstants& constants) {
  return route<float>(spec, logits, constants);
}

RowAnswer<double> route_row(const RouterSpec& spec, std::span<const double> logits, const RowConstants& constants) {
  return route<double>(spec, logits, constants);
}

RowConstants row_constants(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t row) {
  RowConstants constants;
  const auto at = static_cast<std::size_t>(row);
  if (spec.selection.bias != BiasType::kNone) {
    const auto width = static_cast<std::size_t>(ranked_experts(spec));
    const std::int64_t row_class = inputs.row_class.empty() ? 0 : inputs.row_class.at(at);
    const auto classes = static_cast<std::int64_t>(spec.selection.bias_variants.size());
    constants.routable = row_class >= 0 && row_class < classes;
    if (constants.routable) {
      constants.selection_bias =
          std::span<const float>(inputs.selection_bias).subspan(static_cast<std::size_t>(row_class) * width, width);
    }
  }
  if (spec.weights.per_expert_scale) constants.per_expert_scale = inputs.per_expert_scale;
  if (spec.weights.global_scale) constants.global_scale = inputs.global_scale.at(0);
  if (spec.selection.method == SelectionMethod::kHashTable) {
    const std::int64_t token = inputs.token_ids.at(at);
    const auto k = static_cast<std::size_t>(top_k(spec));
    const auto vocab = static_cast<std::int64_t>(inputs.hash_table.size() / k);
    if (token < 0 || token >= vocab) {
      constants.routable = false;
    } else {
      constants.table_ids =
          std::span<const std::int32_t>(inputs.hash_table).subspan(static_cast<std::size_t>(token) * k, k);
    }
  }
  return constants;
}

}  // namespace samebits::oracle
