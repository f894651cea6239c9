#include "oracle/exact/exact_choice.h"

#include <algorithm>
#include <cmath>
#include <compare>
#include <numeric>
#include <optional>

#include "oracle/exact/exact_logits.h"
#include "oracle/exact/key_bounds.h"
#include "oracle/exact/score_bounds.h"
#include "oracle/reference/answer.h"
#include "oracle/reference/groups.h"

namespace samebits::oracle {
namespace {

using Ids = std::vector<std::int32_t>;

struct Order {
  std::optional<std::strong_ordering> keys;  // nullopt: not known
  DecidedBy how;
  // Whether a comes before b, equal keys by the lower index.
  bool puts_first(std::int32_t a, std::int32_t b) const {
    return keys && (std::is_gt(*keys) || (std::is_eq(*keys) && a < b));
  }
};

// The likeliest ranking: by the known order, else by the middles. Insertion, because a partly known order is no
// ordering; the middles leave little to move.
template <class Middle, class OrderOf>
Ids likeliest(Ids ids, const Middle& middle, const OrderOf& order) {
  std::sort(ids.begin(), ids.end(), [&](std::int32_t a, std::int32_t b) {
    const double x = middle(a), y = middle(b);
    return x != y ? x > y : a < b;
  });
  for (std::size_t i = 1; i < ids.size(); ++i) {
    for (std::size_t j = i; j > 0 && order(ids[j], ids[j - 1]).puts_first(ids[j], ids[j - 1]); --j) {
      std::swap(ids[j], ids[j - 1]);
    }
  }
  return ids;
}

// The keys of one row and their order, as far as it is known.
class Keys {
 public:
  Keys(const RouterSpec& spec, const ExactLogits& logits, std::vector<float> bias)
      : spec_(spec), logits_(logits), bias_(std::move(bias)) {
    const auto ranked = std::span(logits.intervals()).first(static_cast<std::size_t>(ranked_experts(spec)));
    std::vector<Interval> scores;
    if (spec.selection.rank_by == RankBy::kScore) scores = score_bounds(spec.score, ranked, kFormula);
    keys_ = key_bounds(spec, ranked, scores, bias_, kFormula);
    masked_.assign(keys_.size(), 0);
  }

  const Interval& operator[](std::int32_t e) const { return keys_[static_cast<std::size_t>(e)]; }
  std::span<const Interval> all() const { return keys_; }
  double middle(std::int32_t e) const { return (*this)[e].lower + ((*this)[e].upper - (*this)[e].lower) / 2.0; }
  void mask_with_zero(std::int32_t e) {
    keys_[static_cast<std::size_t>(e)] = {0.0, 0.0};
    masked_[static_cast<std::size_t>(e)] = 1;
  }

  // Score functions grow strictly with their logit, so under equal biases keys are ordered as logits are; a score that
  // was rounded to bf16 is only certain to be equal where its logit is.
  Order order(std::int32_t a, std::int32_t b) const {
    const Interval &x = (*this)[a], &y = (*this)[b];
    if (x.lower > y.upper) return {std::strong_ordering::greater, DecidedBy::kErrorBound};
    if (x.upper < y.lower) return {std::strong_ordering::less, DecidedBy::kErrorBound};
    if (x.is_point() && y.is_point()) return {std::strong_ordering::equal, DecidedBy::kTie};
    const auto i = static_cast<std::size_t>(a), j = static_cast<std::size_t>(b);
    if (masked_[i] != 0 || masked_[j] != 0 || (!bias_.empty() && bias_[i] != bias_[j])) {
      return {std::nullopt, DecidedBy::kNothing};
    }
    const auto by_logit = logits_.compare(a, b);
    if (!by_logit) return {std::nullopt, DecidedBy::kNothing};
    if (std::is_eq(*by_logit)) return {by_logit, DecidedBy::kTie};
    const bool rounded = spec_.selection.rank_by == RankBy::kScore && spec_.score.dtype == FloatType::kBf16;
    return rounded ? Order{std::nullopt, DecidedBy::kNothing} : Order{by_logit, DecidedBy::kExactLogits};
  }

  Ids ranked(Ids ids) const {
    return likeliest(
        std::move(ids), [&](std::int32_t e) { return middle(e); },
        [&](std::int32_t a, std::int32_t b) { return order(a, b); });
  }

 private:
  const RouterSpec& spec_;
  const ExactLogits& logits_;
  std::vector<float> bias_;
  std::vector<Interval> keys_;
  std::vector<std::uint8_t> masked_;
};

DecidedBy weaker(DecidedBy a, DecidedBy b) {
  return std::max(a, b);
}

// The first k of the ranking; adds to `choice` them, the nearest cut, and the weakest evidence that was needed.
void take_first(const Keys& keys, Ids candidates, std::int64_t k, ExactChoice& choice) {
  const Ids order = keys.ranked(std::move(candidates));
  const auto cut = order.begin() + k;
  choice.ids.insert(choice.ids.end(), order.begin(), cut);
  if (cut == order.end()) return;

  const Interval &above = keys[*(cut - 1)], &below = keys[*cut];
  const double gap = keys.middle(*(cut - 1)) - keys.middle(*cut);
  if (gap < choice.gap) {
    choice.gap = gap;
    choice.bound = (above.upper - above.lower + below.upper - below.lower) / 2.0;
  }
  double least = above.lower, greatest = below.upper;
  for (auto id = order.begin(); id != cut; ++id) least = std::min(least, keys[*id].lower);
  for (auto id = cut; id != order.end(); ++id) greatest = std::max(greatest, keys[*id].upper);
  if (least > greatest) return;
  for (auto a = order.begin(); a != cut; ++a) {
    if (keys[*a].lower > greatest) continue;
    for (auto b = cut; b != order.end(); ++b) {
      if (keys[*b].upper < least) continue;
      const Order known = keys.order(*a, *b);
      choice.decided_by = weaker(choice.decided_by, known.puts_first(*a, *b) ? known.how : DecidedBy::kNothing);
    }
  }
}

Interval group_score(const RouterSpec& spec, const Keys& keys, const Ids& group) {
  const auto first = static_cast<std::size_t>(*std::min_element(group.begin(), group.end()));
  return group_score_bounds(spec.selection.group_score, keys.all().subspan(first, group.size()), kFormula);
}

// Order of two groups, members ranked: by the bounds of their scores, else member by member.
Order order_of_groups(const RouterSpec& spec, const Keys& keys, const Ids& g, const Ids& h) {
  const Interval x = group_score(spec, keys, g), y = group_score(spec, keys, h);
  if (x.lower > y.upper) return {std::strong_ordering::greater, DecidedBy::kErrorBound};
  if (x.upper < y.lower) return {std::strong_ordering::less, DecidedBy::kErrorBound};
  const std::size_t members = spec.selection.group_score == GroupScore::kTop2Sum ? 2 : 1;
  DecidedBy how = DecidedBy::kTie;
  std::strong_ordering total = std::strong_ordering::equal;
  for (std::size_t m = 0; m < members; ++m) {
    // Known to be the best of its group, or equal to those that might be.
    for (const Ids* group : {&g, &h}) {
      for (std::size_t other = m + 1; other < group->size(); ++other) {
        if (!keys.order((*group)[m], (*group)[other]).keys) return {std::nullopt, DecidedBy::kNothing};
      }
    }
    const Order known = keys.order(g[m], h[m]);
    if (!known.keys || (std::is_neq(total) && std::is_neq(*known.keys) && total != *known.keys)) {
      return {std::nullopt, DecidedBy::kNothing};
    }
    if (std::is_neq(*known.keys)) {
      total = *known.keys;
      how = DecidedBy::kExactLogits;
    }
  }
  return {total, how};
}

// Which groups stay, and by what evidence.
std::vector<std::uint8_t> kept(const RouterSpec& spec, const Keys& keys, const std::vector<Ids>& groups,
                               ExactChoice& choice) {
  Ids ids(groups.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto order = [&](std::int32_t g, std::int32_t h) {
    return order_of_groups(spec, keys, groups[static_cast<std::size_t>(g)], groups[static_cast<std::size_t>(h)]);
  };
  const auto middle = [&](std::int32_t g) {
    const Interval score = group_score(spec, keys, groups[static_cast<std::size_t>(g)]);
    return score.lower + (score.upper - score.lower) / 2.0;
  };
  ids = likeliest(std::move(ids), middle, order);
  const auto cut = ids.begin() + spec.selection.topk_group;
  std::vector<std::uint8_t> result(groups.size(), 0);
  for (auto g = ids.begin(); g != cut; ++g) {
    result[static_cast<std::size_t>(*g)] = 1;
    for (auto h = cut; h != ids.end(); ++h) {
      const Order known = order(*g, *h);
      choice.decided_by = weaker(choice.decided_by, known.puts_first(*g, *h) ? known.how : DecidedBy::kNothing);
    }
  }
  return result;
}

ExactChoice choose(const RouterSpec& spec, Keys keys) {
  ExactChoice choice;
  choice.decided_by = DecidedBy::kErrorBound;
  Ids experts(keys.all().size());
  std::iota(experts.begin(), experts.end(), 0);
  const bool per_group = spec.selection.topk_scope == TopkScope::kPerGroup;
  if (!per_group && !has_groups(spec.selection)) {
    take_first(keys, experts, top_k(spec), choice);
    return choice;
  }

  const std::size_t group_size = experts.size() / static_cast<std::size_t>(spec.selection.n_group);
  std::vector<Ids> groups;
  for (std::size_t first = 0; first < experts.size(); first += group_size) {
    const auto begin = experts.begin() + static_cast<std::ptrdiff_t>(first);
    groups.push_back(keys.ranked({begin, begin + static_cast<std::ptrdiff_t>(group_size)}));
  }
  if (per_group) {
    for (const Ids& group : groups) take_first(keys, group, top_k(spec) / spec.selection.n_group, choice);
    choice.ids = keys.ranked(choice.ids);
    return choice;
  }
  const std::vector<std::uint8_t> stays = kept(spec, keys, groups, choice);
  Ids candidates;
  for (const std::int32_t e : experts) {
    const bool rejected = stays[static_cast<std::size_t>(e) / group_size] == 0;
    if (rejected && spec.selection.group_mask == GroupMask::kZero) keys.mask_with_zero(e);
    if (!rejected || spec.selection.group_mask == GroupMask::kZero) candidates.push_back(e);
  }
  take_first(keys, candidates, top_k(spec), choice);
  return choice;
}

// Sums without error the experts that may be on either side of the cut; all of them where groups are ranked.
void refine_near_the_cut(const RouterSpec& spec, const Keys& keys, ExactLogits& logits) {
  std::vector<double> lower, upper;
  for (const Interval& key : keys.all()) {
    lower.push_back(key.lower);
    upper.push_back(key.upper);
  }
  std::sort(lower.begin(), lower.end(), std::greater<>());
  std::sort(upper.begin(), upper.end(), std::greater<>());
  const auto k = static_cast<std::size_t>(top_k(spec));
  for (std::int32_t e = 0; e < static_cast<std::int32_t>(lower.size()); ++e) {
    const bool near = keys[e].upper >= lower[k - 1] && (k == upper.size() || keys[e].lower <= upper[k]);
    if (near || spec.selection.n_group > 1) logits.refine(e);
  }
}

}  // namespace

ExactChoice exact_choice(const RouterSpec& spec, const RouterInputs& inputs, std::int64_t row) {
  const RowConstants constants = row_constants(spec, inputs, row);
  if (!constants.routable) return {};
  if (spec.selection.method == SelectionMethod::kHashTable) {
    ExactChoice choice;
    choice.decided_by = DecidedBy::kErrorBound;
    choice.ids.assign(constants.table_ids.begin(), constants.table_ids.end());
    return choice;
  }
  const std::vector<float> bias = added_bias(spec.selection, constants.selection_bias);
  ExactLogits logits(spec, inputs, row);
  if (!logits.finite() || !std::all_of(bias.begin(), bias.end(), [](float b) { return std::isfinite(b); })) return {};

  const Keys keys(spec, logits, bias);
  ExactChoice choice = choose(spec, keys);
  if (choice.decided() || inputs.from_logits()) return choice;
  refine_near_the_cut(spec, keys, logits);
  choice = choose(spec, Keys(spec, logits, bias));
  if (choice.decided_by == DecidedBy::kErrorBound) choice.decided_by = DecidedBy::kExactLogits;
  return choice;
}

}  // namespace samebits::oracle
