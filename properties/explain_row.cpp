#include "properties/explain_row.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "oracle/reference/rank_key.h"
#include "properties/explain_mistakes.h"
#include "properties/spec_features.h"

namespace samebits::properties {
namespace {

using oracle::RouterSpec;
using Answer = oracle::RowAnswer<float>;

// The answer with ties to the higher id, within a group and across the cut; groups stay as the contract ranks them.
// Nothing where too few experts are left for a choice, or none is ranked.
std::optional<Answer> with_ties_to_the_higher_id(const Setup& setup) {
  if (setup.spec.selection.method != oracle::SelectionMethod::kTopk || !setup.routable) return std::nullopt;
  const Answer answer = setup.route();
  const auto value = [](const auto& values, std::int32_t id) { return values[static_cast<std::size_t>(id)]; };
  const auto before = [&](std::int32_t a, std::int32_t b) {
    const float key_a = value(answer.keys, a), key_b = value(answer.keys, b);
    const bool tie = value(answer.excluded, a) == value(answer.excluded, b) &&
                     (key_a == key_b || (std::isnan(key_a) && std::isnan(key_b)));
    return tie ? a > b : ranks_before(answer, a, b);
  };
  const bool per_group = selects_per_group(setup.spec);
  const std::size_t scopes = per_group ? static_cast<std::size_t>(setup.spec.selection.n_group) : 1;
  const std::size_t size = answer.keys.size() / scopes,
                    share = static_cast<std::size_t>(oracle::top_k(setup.spec)) / scopes;
  std::vector<std::int32_t> ids;
  for (std::size_t scope = 0; scope < scopes; ++scope) {
    std::vector<std::int32_t> members(size);
    std::iota(members.begin(), members.end(), static_cast<std::int32_t>(scope * size));
    std::sort(members.begin(), members.end(), before);
    ids.insert(ids.end(), members.begin(), members.begin() + static_cast<std::ptrdiff_t>(share));
  }
  std::sort(ids.begin(), ids.end(), before);
  if (std::any_of(ids.begin(), ids.end(), [&](std::int32_t id) { return value(answer.excluded, id) != 0; })) {
    return std::nullopt;
  }
  return route_chosen(setup, ids);
}

std::vector<std::string> note_of(const std::vector<const char*>& mistakes) {
  if (mistakes.empty()) return {};
  std::string note;
  for (const char* text : mistakes) note += std::string(note.empty() ? kCauseLabel : "; ") + text;
  return {note};
}

}  // namespace

Setup setup_of(const RouterSpec& spec, const oracle::RouterInputs& inputs, std::int64_t row,
               std::span<const float> logits) {
  const oracle::RowConstants c = oracle::row_constants(spec, inputs, row);
  return {spec,
          &inputs,
          row,
          {logits.begin(), logits.end()},
          {c.selection_bias.begin(), c.selection_bias.end()},
          {c.per_expert_scale.begin(), c.per_expert_scale.end()},
          c.global_scale,
          {c.table_ids.begin(), c.table_ids.end()},
          c.routable};
}

// As a table that holds them: a table ranks nothing, and everything after the choice is the same.
Answer route_chosen(const Setup& setup, const std::vector<std::int32_t>& ids) {
  Setup chosen = setup;
  chosen.spec.selection.method = oracle::SelectionMethod::kHashTable;
  chosen.table_ids = ids;
  if (setup.spec.weights.source == oracle::WeightSource::kBiasedScore) {
    // Keys in the place of scores.
    const Answer answer = setup.route();
    chosen.logits = oracle::rank_keys<float>(setup.spec, answer.logits, answer.scores, setup.bias);
    chosen.spec.score = {.func = oracle::ScoreFunc::kIdentity};
    chosen.spec.weights.source = oracle::WeightSource::kUnbiasedScore;
  }
  chosen.spec.selection.bias = oracle::BiasType::kNone;
  return chosen.route();
}

std::vector<Alternative> alternatives(const RouterSpec& spec, const oracle::RouterInputs& inputs, std::int64_t row,
                                      std::span<const float> logits) {
  const Setup contract = setup_of(spec, inputs, row, logits);
  std::vector<Alternative> result;
  for (const auto& mistakes : {feature_mistakes(), general_mistakes()}) {
    for (const Mistake& mistake : mistakes) {
      Setup setup = contract;
      if (!mistake.make(setup)) continue;
      result.push_back({mistake.text, setup.route()});
      if (mistake.then != nullptr) mistake.then(setup, result.back().answer);
    }
  }
  if (auto answer = with_ties_to_the_higher_id(contract)) {
    result.push_back({"ties to the higher id", *std::move(answer)});
  }
  return result;
}

bool ranks_before(const Answer& answer, std::int64_t a, std::int64_t b) {
  const auto i = static_cast<std::size_t>(a);
  const auto j = static_cast<std::size_t>(b);
  if (answer.excluded[i] != answer.excluded[j]) return answer.excluded[i] < answer.excluded[j];
  const bool nan_a = std::isnan(answer.keys[i]);
  const bool nan_b = std::isnan(answer.keys[j]);
  if (nan_a != nan_b) return nan_b;
  if (!nan_a && answer.keys[i] != answer.keys[j]) return answer.keys[i] > answer.keys[j];
  return a < b;
}

std::vector<std::string> explain_logits(const RouterSpec& spec, const oracle::RouterInputs& inputs, std::int64_t row,
                                        std::span<const float> logits, std::span<const float> observed) {
  const Setup contract = setup_of(spec, inputs, row, logits);
  const auto same = [](float a, float b) {
    return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b) || (std::isnan(a) && std::isnan(b));
  };
  std::vector<const char*> found;
  for (const auto& mistakes : {feature_mistakes(), general_mistakes()}) {
    for (const Mistake& mistake : mistakes) {
      Setup setup = contract;
      if (!mistake.make(setup)) continue;
      if (std::equal(observed.begin(), observed.end(), setup.logits.begin(), setup.logits.end(), same)) {
        found.push_back(mistake.text);
      }
    }
  }
  return note_of(found);
}

std::vector<std::string> explain_ids(const RouterSpec& spec, const oracle::RouterInputs& inputs, std::int64_t row,
                                     std::span<const float> logits, std::span<const std::int64_t> ids) {
  const bool in_order = has_table(spec);
  std::vector<const char*> found;
  for (const Alternative& other : alternatives(spec, inputs, row, logits)) {
    const std::vector<std::int32_t>& others = other.answer.ids;
    const bool same = in_order ? std::equal(ids.begin(), ids.end(), others.begin(), others.end())
                               : std::is_permutation(ids.begin(), ids.end(), others.begin(), others.end());
    if (same) found.push_back(other.text);
  }
  return note_of(found);
}

std::vector<std::string> explain_weights(const RouterSpec& spec, const oracle::RouterInputs& inputs, std::int64_t row,
                                         std::span<const float> logits, std::span<const std::int64_t> ids,
                                         std::span<const float> weights) {
  std::vector<const char*> found;
  for (const Alternative& other : alternatives(spec, inputs, row, logits)) {
    bool same = other.answer.ids.size() == ids.size();
    for (std::size_t i = 0; same && i < ids.size(); ++i) {
      same = other.answer.ids[i] == ids[i] &&
             std::bit_cast<std::uint32_t>(other.answer.weights[i]) == std::bit_cast<std::uint32_t>(weights[i]);
    }
    if (same) found.push_back(other.text);
  }
  return note_of(found);
}

}  // namespace samebits::properties
