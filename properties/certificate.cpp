#include "properties/certificate.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "oracle/exact/key_bounds.h"
#include "oracle/exact/score_bounds.h"
#include "properties/spec_features.h"

namespace samebits::properties {
namespace {

using oracle::kFp32Steps;
using oracle::RouterSpec;

bool rejects_with_neg_inf(const RouterSpec& spec) {
  return spec.selection.group_mask != oracle::GroupMask::kZero;
}

// [G]; shared experts in the gate take no part in a softmax.
std::vector<Interval> scores_of(const RouterSpec& spec, std::span<const Interval> logits) {
  const auto ranked = static_cast<std::size_t>(oracle::ranked_experts(spec));
  std::vector<Interval> scores = oracle::score_bounds(spec.score, logits.first(ranked), kFp32Steps);
  for (const Interval& score : oracle::score_bounds(spec.score, logits.subspan(ranked), kFp32Steps)) {
    scores.push_back(score);
  }
  return scores;
}

std::vector<GroupState> group_states(const RouterSpec& spec, std::span<const Interval> keys, TieRule tie_rule) {
  const auto num_groups = static_cast<std::size_t>(spec.selection.n_group);
  const std::size_t group_size = keys.size() / num_groups;
  std::vector<Interval> scores;
  for (std::size_t g = 0; g < num_groups; ++g) {
    scores.push_back(
        oracle::group_score_bounds(spec.selection.group_score, keys.subspan(g * group_size, group_size), kFp32Steps));
  }

  const bool lowest = tie_rule == TieRule::kLowestIndex;
  std::vector<GroupState> states(keys.size(), GroupState::kKept);
  for (std::size_t g = 0; g < num_groups; ++g) {
    std::int64_t certainly_before = 0, possibly_before = 0;
    for (std::size_t h = 0; h < num_groups; ++h) {
      if (h == g) continue;
      // h ranks before g on equal scores: certainly by the tie rule, possibly without one.
      const bool wins_tie = lowest && h < g;
      const bool may_win_tie = !lowest || h < g;
      certainly_before += scores[h].lower > scores[g].upper || (scores[h].lower == scores[g].upper && wins_tie) ? 1 : 0;
      possibly_before +=
          scores[h].upper > scores[g].lower || (scores[h].upper == scores[g].lower && may_win_tie) ? 1 : 0;
    }
    const GroupState state = certainly_before >= spec.selection.topk_group  ? GroupState::kRejected
                             : possibly_before >= spec.selection.topk_group ? GroupState::kPossiblyKept
                                                                            : GroupState::kKept;
    std::fill_n(states.begin() + static_cast<std::ptrdiff_t>(g * group_size), group_size, state);
  }
  return states;
}

std::string name_pair(std::int64_t loser, std::int64_t winner) {
  return "expert " + std::to_string(winner) + " certainly ranks before expert " + std::to_string(loser);
}

std::int64_t group_of(const RouterSpec& spec, std::int64_t expert) {
  return expert / (oracle::num_experts(spec) / spec.selection.n_group);
}

std::optional<Contradiction> group_contradiction(const RouterSpec& spec, const BoundedRow& row,
                                                 std::span<const std::int64_t> chosen) {
  std::vector<std::int64_t> count(static_cast<std::size_t>(spec.selection.n_group), 0);
  for (const std::int64_t id : chosen) {
    if (row.group[static_cast<std::size_t>(id)] == GroupState::kRejected && rejects_with_neg_inf(spec)) {
      return Contradiction{id, -1, "the group of expert " + std::to_string(id) + " is certainly rejected"};
    }
    ++count[static_cast<std::size_t>(group_of(spec, id))];
  }
  if (selects_per_group(spec)) {
    const std::int64_t share = oracle::top_k(spec) / spec.selection.n_group;
    for (const std::int64_t id : chosen) {
      const std::int64_t group = group_of(spec, id);
      if (count[static_cast<std::size_t>(group)] == share) continue;
      return Contradiction{id, -1,
                           std::to_string(count[static_cast<std::size_t>(group)]) + " experts of group " +
                               std::to_string(group) + " were chosen, each group gives " + std::to_string(share)};
    }
    return std::nullopt;
  }
  const auto groups = std::count_if(count.begin(), count.end(), [](std::int64_t n) { return n > 0; });
  if (ranks_groups(spec) && rejects_with_neg_inf(spec) && groups > spec.selection.topk_group) {
    return Contradiction{chosen.front(), -1,
                         "experts of " + std::to_string(groups) + " groups were chosen, topk_group is " +
                             std::to_string(spec.selection.topk_group)};
  }
  return std::nullopt;
}

// `chosen` under their own ids, and `renamed` zero experts of which only the number is known.
std::optional<Contradiction> ranked_contradiction(const RouterSpec& spec, const BoundedRow& row,
                                                  std::span<const std::int64_t> chosen, std::int64_t renamed,
                                                  TieRule tie_rule) {
  if (spec.selection.n_group > 1) {
    if (auto contradiction = group_contradiction(spec, row, chosen)) return contradiction;
  }
  const std::int64_t ranked = oracle::ranked_experts(spec);
  const std::int64_t named = renames_zero_experts(spec) ? oracle::num_experts(spec) : ranked;
  std::vector<std::uint8_t> is_chosen(static_cast<std::size_t>(ranked), 0);
  for (const std::int64_t id : chosen) is_chosen[static_cast<std::size_t>(id)] = 1;
  const auto rejected = [&](std::int64_t e) {
    const bool competes = !rejects_with_neg_inf(spec) || row.group[static_cast<std::size_t>(e)] == GroupState::kKept;
    return is_chosen[static_cast<std::size_t>(e)] == 0 && competes;
  };

  for (std::int64_t e = 0; e < named; ++e) {
    if (!rejected(e)) continue;
    for (const std::int64_t id : chosen) {
      if (selects_per_group(spec) && group_of(spec, e) != group_of(spec, id)) continue;
      if (certainly_before(row, e, id, tie_rule)) return Contradiction{id, e, name_pair(id, e)};
    }
  }
  if (named == ranked) return std::nullopt;

  // Zero experts that must have been chosen because they rank before a chosen one, and those that cannot have been.
  std::int64_t must = 0, can = 0, example = -1, last = -1;
  for (std::int64_t z = named; z < ranked; ++z) {
    for (const std::int64_t id : chosen) {
      if (!certainly_before(row, z, id, tie_rule)) continue;
      ++must;
      example = z;
      last = id;
      break;
    }
    bool beaten = false;
    for (std::int64_t e = 0; e < named && !beaten; ++e) beaten = rejected(e) && certainly_before(row, e, z, tie_rule);
    can += beaten ? 0 : 1;
  }
  const std::string found = std::to_string(renamed) + " zero experts were chosen, but ";
  if (must > renamed) {
    return Contradiction{last, example,
                         found + std::to_string(must) + " certainly rank before expert " + std::to_string(last)};
  }
  if (can < renamed) {
    return Contradiction{0, -1, found + "experts that were not certainly rank before all but " + std::to_string(can)};
  }
  return std::nullopt;
}

// The id under which an expert is returned.
std::int64_t returned_id(const RouterSpec& spec, std::int64_t expert) {
  return renames_zero_experts(spec) && expert >= oracle::num_experts(spec) ? 0 : expert;
}

// The ids of the table's experts as a router returns them.
std::vector<std::int64_t> table_ids(const RouterSpec& spec, const BoundedRow& row) {
  std::vector<std::int64_t> ids(row.constants.table_ids.begin(), row.constants.table_ids.end());
  if (spec.selection.sort == oracle::SlotOrder::kByIndex) std::sort(ids.begin(), ids.end());
  for (std::int64_t& id : ids) id = returned_id(spec, id);
  return ids;
}

std::optional<Contradiction> table_contradiction(const RouterSpec& spec, const BoundedRow& row,
                                                 std::vector<std::int64_t> chosen) {
  std::vector<std::int64_t> expected = table_ids(spec, row);
  std::sort(expected.begin(), expected.end());
  std::sort(chosen.begin(), chosen.end());
  if (chosen == expected) return std::nullopt;
  const auto other = std::find_if(chosen.begin(), chosen.end(), [&](std::int64_t id) {
    return std::count(chosen.begin(), chosen.end(), id) > std::count(expected.begin(), expected.end(), id);
  });
  return Contradiction{other == chosen.end() ? -1 : *other, -1, "the table of the token names other experts"};
}

}  // namespace

bool certainly_before(const BoundedRow& row, std::int64_t winner, std::int64_t loser, TieRule tie_rule) {
  const Interval& w = row.keys[static_cast<std::size_t>(winner)];
  const Interval& l = row.keys[static_cast<std::size_t>(loser)];
  if (w.lower > l.upper) return true;
  if (tie_rule != TieRule::kLowestIndex || winner > loser) return false;
  return w.lower == l.upper || same_key_by_construction(row, winner, loser);
}

BoundedRow bound_row(const RouterSpec& spec, const oracle::LogitBounds& logits, bool exact_logits,
                     const oracle::RowConstants& constants, TieRule tie_rule) {
  BoundedRow row;
  row.exact_logits = exact_logits;
  row.constants = constants;
  if (!constants.routable) return row;
  for (std::size_t e = 0; e < logits.lower.size(); ++e) {
    row.logits.push_back({logits.lower[e], logits.upper[e]});
  }
  if (!std::all_of(row.logits.begin(), row.logits.end(), oracle::finite_in_fp32)) return row;
  row.bias = oracle::added_bias(spec.selection, constants.selection_bias);
  for (const float b : row.bias) {
    if (!std::isfinite(b)) return row;
  }
  if (scores_before_selection(spec)) row.scores = scores_of(spec, row.logits);
  row.judged = true;
  if (has_table(spec)) return row;

  row.keys = oracle::key_bounds(spec, row.logits, row.scores, row.bias, kFp32Steps);
  row.biased = row.keys;
  row.judged = std::all_of(row.keys.begin(), row.keys.end(), oracle::finite_in_fp32);
  row.group.assign(row.keys.size(), GroupState::kKept);
  if (row.judged && ranks_groups(spec)) {
    row.group = group_states(spec, row.keys, tie_rule);
    for (std::size_t e = 0; e < row.keys.size() && !rejects_with_neg_inf(spec); ++e) {
      if (row.group[e] == GroupState::kRejected) row.keys[e] = {0.0, 0.0};
      if (row.group[e] == GroupState::kPossiblyKept) row.keys[e] = hull(row.keys[e], {0.0, 0.0});
    }
  }
  return row;
}

bool same_key_by_construction(const BoundedRow& row, std::int64_t a, std::int64_t b) {
  const auto i = static_cast<std::size_t>(a);
  const auto j = static_cast<std::size_t>(b);
  if (row.keys[i].is_point() && row.keys[j].is_point() && row.keys[i].lower == row.keys[j].lower) return true;
  return row.exact_logits && row.logits[i].lower == row.logits[j].lower &&
         (row.bias.empty() || row.bias[i] == row.bias[j]) && row.group[i] == GroupState::kKept &&
         row.group[j] == GroupState::kKept;
}

std::optional<Contradiction> selection_contradiction(const RouterSpec& spec, const BoundedRow& row,
                                                     std::span<const std::int64_t> ids, TieRule tie_rule) {
  const std::int64_t ranked = oracle::ranked_experts(spec);
  std::vector<std::int64_t> chosen;
  for (const std::int64_t id : ids) {
    if (id < ranked) chosen.push_back(id);
  }
  const auto shared = static_cast<std::int64_t>(ids.size() - chosen.size());
  if (shared != oracle::shared_in_gate(spec)) {
    return Contradiction{ids.back(), -1,
                         "there are " + std::to_string(shared) + " shared experts among the slots, but each of the " +
                             std::to_string(oracle::shared_in_gate(spec)) + " in the gate has one"};
  }
  if (has_table(spec)) return table_contradiction(spec, row, chosen);
  const auto zeros = renames_zero_experts(spec) ? std::count(chosen.begin(), chosen.end(), 0) : 0;
  if (zeros == 0) return ranked_contradiction(spec, row, chosen, 0, tie_rule);
  const ReadingsOfId0 readings = readings_of_id_0(spec, row, ids, tie_rule);
  if (readings.without_expert_0 || readings.with_expert_0) return std::nullopt;
  std::erase(chosen, 0);
  return ranked_contradiction(spec, row, chosen, zeros, tie_rule);
}

ReadingsOfId0 readings_of_id_0(const RouterSpec& spec, const BoundedRow& row, std::span<const std::int64_t> ids,
                               TieRule tie_rule) {
  std::vector<std::int64_t> chosen;
  for (const std::int64_t id : ids) {
    if (id != 0 && id < oracle::ranked_experts(spec)) chosen.push_back(id);
  }
  const auto zeros = std::count(ids.begin(), ids.end(), 0);
  if (has_table(spec)) {
    const auto& table = row.constants.table_ids;
    const bool has_0 = std::find(table.begin(), table.end(), 0) != table.end();
    return {!has_0, has_0};
  }
  ReadingsOfId0 readings;
  readings.without_expert_0 = !ranked_contradiction(spec, row, chosen, zeros, tie_rule);
  chosen.push_back(0);
  readings.with_expert_0 = !ranked_contradiction(spec, row, chosen, zeros - 1, tie_rule);
  return readings;
}

std::optional<Contradiction> order_contradiction(const RouterSpec& spec, const BoundedRow& row,
                                                 std::span<const std::int64_t> ids, TieRule tie_rule) {
  const std::int64_t ranked = oracle::ranked_experts(spec);
  const bool by_index = spec.selection.sort == oracle::SlotOrder::kByIndex;
  if (has_table(spec)) {
    std::vector<std::int64_t> expected = table_ids(spec, row);
    for (std::int64_t shared = ranked; shared < oracle::gate_rows(spec); ++shared) expected.push_back(shared);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (ids[i] == expected[i]) continue;
      return Contradiction{ids[i], expected[i],
                           "slot " + std::to_string(i) + " belongs to expert " + std::to_string(expected[i])};
    }
    return std::nullopt;
  }
  for (std::size_t i = 0; i < ids.size(); ++i) {
    for (std::size_t j = i + 1; j < ids.size(); ++j) {
      if (renames_zero_experts(spec) && (ids[i] == 0 || ids[j] == 0)) continue;
      const bool shared = ids[i] >= ranked || ids[j] >= ranked;  // behind the others, in their order
      const bool wrong = by_index || shared ? ids[j] < ids[i] : certainly_before(row, ids[j], ids[i], tie_rule);
      if (wrong) return Contradiction{ids[i], ids[j], shared ? "shared experts come last" : name_pair(ids[i], ids[j])};
    }
  }
  return std::nullopt;
}

}  // namespace samebits::properties
