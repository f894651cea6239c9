#include "oracle/second/select.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <utility>

namespace samebits::second {
namespace {

using Ids = std::vector<std::int32_t>;

// A key for ranking: larger center first, -0 = +0, NaN below -Inf, ties to the lower index. An exact key is an fp32
// number, which double holds; others are ranked by a double near their center, and `low` and `high` say what is
// certain.
struct Rank {
  double center;
  double low;
  double high;
  bool exact;
  bool nan;
};

Rank rank_of(const Ball& key) {
  if (is_unknown(key)) return {0, -kUnknown, kUnknown, false, false};
  if (is_nan(key)) return {0, 0, 0, true, true};
  const double center = mpfr_get_d(key.center, MPFR_RNDN);
  if (is_exact(key)) return {center, center, center, true, false};
  const double radius = (key.radius + (std::abs(center) * 0x1p-50)) * (1 + 0x1p-40);
  return {center, center - radius, center + radius, false, false};
}

class Ranking {
 public:
  explicit Ranking(std::span<const Ball> keys) {
    for (const Ball& key : keys) ranks_.push_back(rank_of(key));
  }

  bool before(std::int32_t a, std::int32_t b) const {
    const Rank& x = at(a);
    const Rank& y = at(b);
    if (x.nan != y.nan) return y.nan;
    if (!x.nan && x.center != y.center) return x.center > y.center;
    return a < b;
  }

  // Whether a comes before b wherever in their balls the keys lie.
  bool certainly_before(std::int32_t a, std::int32_t b) const {
    const Rank& x = at(a);
    const Rank& y = at(b);
    if (x.exact && y.exact) return before(a, b);
    if (x.nan || y.nan) return y.nan && x.low > -kUnknown;
    return x.low > y.high;
  }

  void sort(Ids& ids) const {
    std::sort(ids.begin(), ids.end(), [this](std::int32_t a, std::int32_t b) { return before(a, b); });
  }

  bool certainly_separated(std::span<const std::int32_t> chosen, std::span<const std::int32_t> rejected) const {
    return std::all_of(chosen.begin(), chosen.end(), [&](std::int32_t a) {
      return std::all_of(rejected.begin(), rejected.end(), [&](std::int32_t b) { return certainly_before(a, b); });
    });
  }

 private:
  const Rank& at(std::int32_t i) const { return ranks_[static_cast<std::size_t>(i)]; }
  std::vector<Rank> ranks_;
};

Ids indices(std::int64_t first, std::int64_t count) {
  Ids ids(static_cast<std::size_t>(count));
  std::iota(ids.begin(), ids.end(), static_cast<std::int32_t>(first));
  return ids;
}

// The first `count` of `candidates`; the rest goes to `rejected`.
Ids first_of(const Ranking& ranking, Ids candidates, std::int64_t count, Ids& rejected, bool& certain) {
  ranking.sort(candidates);
  const auto cut = candidates.begin() + count;
  rejected.insert(rejected.end(), cut, candidates.end());
  const auto n = static_cast<std::size_t>(count);
  certain = certain && ranking.certainly_separated(std::span(candidates).first(n), std::span(candidates).subspan(n));
  candidates.erase(cut, candidates.end());
  return candidates;
}

// The greatest key of a group, or the sum of its two greatest. Moving every key by at most r moves the first by r and
// the sum by 2r.
Ball group_score(const RouterSpec& spec, std::span<const Ball> members) {
  const Ranking ranking(members);
  Ids order = indices(0, static_cast<std::int64_t>(members.size()));
  ranking.sort(order);
  double radius = 0;
  for (const Ball& member : members) radius = std::max(radius, member.radius);
  if (radius == kUnknown) return unknown();
  const auto nth = [&](std::size_t i) {
    Ball member = members[static_cast<std::size_t>(order[i])];
    if (is_finite(member)) member.radius = radius;
    return member;
  };
  return spec.selection.group_score == oracle::GroupScore::kTop2Sum ? add(nth(0), nth(1)) : nth(0);
}

void mask_groups(const RouterSpec& spec, Selection& selection) {
  const std::int64_t groups = spec.selection.n_group;
  const auto size = static_cast<std::size_t>(oracle::num_experts(spec) / groups);
  for (std::int64_t g = 0; g < groups; ++g) {
    const auto members = std::span(selection.keys).subspan(static_cast<std::size_t>(g) * size, size);
    selection.group_scores.push_back(group_score(spec, members));
  }
  Ids rejected;
  const Ids kept = first_of(Ranking(selection.group_scores), indices(0, groups), spec.selection.topk_group, rejected,
                            selection.set_is_certain);
  selection.group_kept.assign(static_cast<std::size_t>(groups), 0);
  for (const std::int32_t g : kept) selection.group_kept[static_cast<std::size_t>(g)] = 1;
  for (const std::int32_t g : rejected) {
    for (std::size_t e = static_cast<std::size_t>(g) * size; e < (static_cast<std::size_t>(g) + 1) * size; ++e) {
      if (spec.selection.group_mask == oracle::GroupMask::kZero) {
        selection.keys[e] = exact(0);
      } else {
        selection.excluded[e] = 1;
      }
    }
  }
}

}  // namespace

std::vector<Ball> rank_keys(const RouterSpec& spec, const Row& row, const std::vector<Ball>& logits,
                            const std::vector<Ball>& scores) {
  const std::vector<Ball>& base = spec.selection.rank_by == oracle::RankBy::kLogit ? logits : scores;
  std::vector<Ball> keys(base.begin(), base.begin() + static_cast<std::ptrdiff_t>(oracle::ranked_experts(spec)));
  for (std::size_t e = 0; e < row.selection_bias.size(); ++e) {
    Ball bias = exact(row.selection_bias[e]);
    if (spec.selection.bias == oracle::BiasType::kBf16) bias = rounded(bias, kBf16);
    keys[e] = add(keys[e], bias);
  }
  return keys;
}

Selection select(const RouterSpec& spec, std::vector<Ball> keys) {
  Selection selection;
  selection.keys = std::move(keys);
  selection.excluded.assign(selection.keys.size(), 0);
  if (spec.selection.group_mask != oracle::GroupMask::kNone && spec.selection.n_group > 1) mask_groups(spec, selection);
  const Ranking ranking(selection.keys);
  const std::int64_t k = oracle::top_k(spec);
  Ids rejected;

  if (spec.selection.topk_scope == oracle::TopkScope::kPerGroup) {
    const std::int64_t groups = spec.selection.n_group;
    const std::int64_t size = oracle::num_experts(spec) / groups;
    for (std::int64_t g = 0; g < groups; ++g) {
      const Ids chosen = first_of(ranking, indices(g * size, size), k / groups, rejected, selection.set_is_certain);
      selection.ids.insert(selection.ids.end(), chosen.begin(), chosen.end());
    }
    ranking.sort(selection.ids);
  } else {
    Ids candidates = indices(0, static_cast<std::int64_t>(selection.keys.size()));
    std::erase_if(candidates, [&](std::int32_t e) { return selection.excluded[static_cast<std::size_t>(e)] != 0; });
    selection.ids = first_of(ranking, std::move(candidates), k, rejected, selection.set_is_certain);
    selection.last_chosen = selection.ids.back();
    if (!rejected.empty()) selection.first_rejected = rejected.front();
  }
  for (std::size_t i = 1; i < selection.ids.size(); ++i) {
    if (!ranking.certainly_before(selection.ids[i - 1], selection.ids[i])) selection.order_is_certain = false;
  }
  return selection;
}

}  // namespace samebits::second
