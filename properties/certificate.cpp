#include "properties/certificate.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "oracle/tensors/bf16.h"

namespace samebits::properties {
namespace {

using oracle::FloatType;
using oracle::RouterSpec;

// Error budget of the steps after the logits, in fp32 (u is half an ulp, relative):
//   exp        2 ulp, and the rounding of its argument (x - max, x * log2(e) for exp2): an argument error of |x| u is a
//              relative error of |x| u. CUDA's fast __expf is 2 + 1.173 |x| ulp (CUDA C++ Programming Guide, table of
//              intrinsic functions), which is the larger: (4 + 2.4 |x|) u.
//   division   2 ulp for an approximate reciprocal with its product: 4 u
//   one add or one multiplication: u
//   a sum of n terms in any order, online rescaling included: 2 n u
// Results below the smallest normal fp32 may be flushed to zero, so every such result also has that absolute slack.
// A score below half the smallest subnormal is 0 in fp32, flushed or not: this is what makes a sum of scores vanish.
constexpr double kU = 0x1p-24;
constexpr double kDivision = 4.0 * kU;
constexpr double kFlush = 0x1p-126;
constexpr double kCertainlyZero = 0x1p-150;

double exp_error(double x) {
  return (4.0 + 2.4 * std::fabs(x)) * kU;
}

Interval widened(Interval interval, double relative, double absolute) {
  return {interval.lower - std::fabs(interval.lower) * relative - absolute,
          interval.upper + std::fabs(interval.upper) * relative + absolute};
}

Interval non_negative(Interval interval) {
  return {std::max(interval.lower, 0.0), std::max(interval.upper, 0.0)};
}

double below(double value) {
  return std::nextafter(value, -std::numeric_limits<double>::infinity());
}
double above(double value) {
  return std::nextafter(value, std::numeric_limits<double>::infinity());
}

// The fp32 values that rounding can make of an interval. Rounding is monotone, so the ends suffice; a double that
// stands for a sum is moved by one step first, because the sum itself was rounded.
Interval rounded_to_fp32(Interval interval) {
  return {static_cast<double>(static_cast<float>(interval.lower)),
          static_cast<double>(static_cast<float>(interval.upper))};
}
Interval fp32_sum(Interval a, Interval b) {
  const bool exact = a.lower == a.upper && b.lower == b.upper && a.lower + b.lower - a.lower == b.lower &&
                     a.lower + b.lower - b.lower == a.lower;
  if (exact) return rounded_to_fp32({a.lower + b.lower, a.upper + b.upper});
  return rounded_to_fp32({below(a.lower + b.lower), above(a.upper + b.upper)});
}

// Where the spec rounds to bf16, a router that declares a bound may also keep fp32: both ends of both are allowed.
Interval maybe_rounded_to_bf16(Interval interval, FloatType dtype) {
  if (dtype != FloatType::kBf16) return interval;
  const auto bf16 = [](double value) { return static_cast<double>(oracle::round_to_bf16(static_cast<float>(value))); };
  return {std::min(interval.lower, bf16(interval.lower)), std::max(interval.upper, bf16(interval.upper))};
}

double sigmoid(double x) {
  return x >= 0.0 ? 1.0 / (1.0 + std::exp(-x)) : std::exp(x) / (1.0 + std::exp(x));
}
double softplus(double x) {
  return std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
}

// exp enters 1 / (1 + e^-x) with the factor 1 - s; then one add and one division, with a rounding each.
Interval sigmoid_bounds(Interval x) {
  const auto error = [](double v) { return exp_error(v) * (1.0 - sigmoid(v)) + 2.0 * kU + kDivision; };
  if (sigmoid(x.upper) * (1.0 + error(x.upper)) < kCertainlyZero) return {0.0, 0.0};
  return non_negative({widened({sigmoid(x.lower), 0.0}, error(x.lower), kFlush).lower,
                       widened({0.0, sigmoid(x.upper)}, error(x.upper), kFlush).upper});
}

// log1p(e^x) changes at most as much as e^x does, relatively; then log1p (2 ulp), the add of max(x, 0) and the root
// (1 ulp). The flush happens under the root. The root halves what came before it; the whole is kept.
Interval sqrt_softplus_bounds(Interval x) {
  const auto error = [](double v) { return exp_error(std::min(v, 0.0)) + 8.0 * kU; };
  if (std::exp(x.upper / 2.0) * (1.0 + error(x.upper)) < kCertainlyZero) return {0.0, 0.0};  // sqrt(softplus) is less
  const Interval under_root{std::max(softplus(x.lower) - kFlush, 0.0), softplus(x.upper) + kFlush};
  return {std::sqrt(under_root.lower) * (1.0 - error(x.lower)), std::sqrt(under_root.upper) * (1.0 + error(x.upper))};
}

// s_i grows with its own logit and falls with every other one.
std::vector<Interval> softmax_bounds(const std::vector<Interval>& x) {
  const std::size_t n = x.size();
  double max = -std::numeric_limits<double>::infinity();
  for (const Interval& v : x) max = std::max(max, v.upper);

  std::vector<double> low(n), high(n);
  double low_sum = 0.0, high_sum = 0.0, argument = 0.0;
  for (std::size_t i = 0; i < n; ++i) {
    low[i] = std::exp(x[i].lower - max);
    high[i] = std::exp(x[i].upper - max);
    low_sum += low[i];
    high_sum += high[i];
    argument += high[i] * (max - x[i].lower);
  }
  // Of the denominator: each exp with its own argument, weighted by its share, and the sum itself.
  const double sum_error = (4.0 + 2.4 * argument / low_sum + 2.0 * static_cast<double>(n)) * kU;

  std::vector<Interval> scores(n);
  for (std::size_t i = 0; i < n; ++i) {
    const double error = exp_error(max - x[i].lower) + sum_error + kDivision;
    // The differences are sums of the other terms, up to the rounding of doubles (2 n 2^-53, far below `error`).
    const double others_high = std::max(high_sum - high[i], 0.0);
    const double others_low = std::max(low_sum - low[i], 0.0);
    const Interval exact{low[i] / (low[i] + others_high), high[i] / (high[i] + others_low)};
    const bool zero = exact.upper * (1.0 + error) < kCertainlyZero;
    scores[i] = zero ? Interval{0.0, 0.0} : non_negative(widened(exact, error, kFlush));
  }
  return scores;
}

std::vector<Interval> score_bounds(const RouterSpec& spec, const std::vector<Interval>& logits) {
  std::vector<Interval> scores;
  if (spec.score.func == oracle::ScoreFunc::kSoftmax) {
    scores = softmax_bounds(logits);
  } else {
    for (const Interval& x : logits) {
      switch (spec.score.func) {
        case oracle::ScoreFunc::kSigmoid:
          scores.push_back(sigmoid_bounds(x));
          break;
        case oracle::ScoreFunc::kSqrtSoftplus:
          scores.push_back(sqrt_softplus_bounds(x));
          break;
        case oracle::ScoreFunc::kSoftmax:
        case oracle::ScoreFunc::kIdentity:
          scores.push_back(x);
          break;
      }
    }
  }
  for (Interval& score : scores) score = maybe_rounded_to_bf16(score, spec.score.dtype);
  return scores;
}

Interval group_score_bounds(oracle::GroupScore rule, std::span<const Interval> keys) {
  std::vector<double> lower, upper;
  for (const Interval& key : keys) {
    lower.push_back(key.lower);
    upper.push_back(key.upper);
  }
  std::sort(lower.begin(), lower.end(), std::greater<>());
  std::sort(upper.begin(), upper.end(), std::greater<>());
  if (rule != oracle::GroupScore::kTop2Sum || keys.size() < 2) return {lower[0], upper[0]};
  return fp32_sum({lower[0], upper[0]}, {lower[1], upper[1]});
}

std::vector<GroupState> group_states(const RouterSpec& spec, const std::vector<Interval>& keys, TieRule tie_rule) {
  const auto num_groups = static_cast<std::size_t>(spec.selection.n_group);
  const std::size_t group_size = keys.size() / num_groups;
  std::vector<Interval> scores;
  for (std::size_t g = 0; g < num_groups; ++g) {
    scores.push_back(
        group_score_bounds(spec.selection.group_score, std::span(keys).subspan(g * group_size, group_size)));
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

bool finite_in_fp32(const Interval& interval) {
  return interval.lower <= interval.upper && interval.lower >= -static_cast<double>(FLT_MAX) &&
         interval.upper <= static_cast<double>(FLT_MAX);
}

bool grouped(const RouterSpec& spec) {
  return spec.selection.n_group > 1 && spec.selection.group_mask != oracle::GroupMask::kNone;
}
bool rejects_with_neg_inf(const RouterSpec& spec) {
  return spec.selection.group_mask != oracle::GroupMask::kZero;
}

// Whether `winner` ranks before `loser` in every honest router.
bool certainly_before(const BoundedRow& row, std::int64_t winner, std::int64_t loser, TieRule tie_rule) {
  const Interval& w = row.keys[static_cast<std::size_t>(winner)];
  const Interval& l = row.keys[static_cast<std::size_t>(loser)];
  if (w.lower > l.upper) return true;
  if (tie_rule != TieRule::kLowestIndex || winner > loser) return false;
  return w.lower == l.upper || same_key_by_construction(row, winner, loser);
}

std::string name_pair(std::int64_t loser, std::int64_t winner) {
  return "expert " + std::to_string(winner) + " certainly ranks before expert " + std::to_string(loser);
}

}  // namespace

BoundedRow bound_row(const RouterSpec& spec, oracle::LogitBounds logits, bool exact_logits,
                     std::span<const float> selection_bias, TieRule tie_rule) {
  BoundedRow row;
  row.exact_logits = exact_logits;
  const std::size_t num_experts = logits.lower.size();
  for (std::size_t e = 0; e < num_experts; ++e) {
    row.logits.push_back({logits.lower[e], logits.upper[e]});
    if (!finite_in_fp32(row.logits.back())) return row;
  }
  for (const float b : selection_bias) {
    const bool bf16 = spec.selection.bias == oracle::BiasType::kBf16;
    row.bias.push_back(bf16 ? oracle::round_to_bf16(b) : b);
    if (!std::isfinite(row.bias.back())) return row;
  }
  if (spec.score.stage == oracle::ScoreStage::kBeforeTopk) row.scores = score_bounds(spec, row.logits);

  const bool by_logit = spec.selection.rank_by == oracle::RankBy::kLogit || row.scores.empty();
  row.keys = by_logit ? row.logits : row.scores;
  for (std::size_t e = 0; e < row.bias.size(); ++e) {
    const auto b = static_cast<double>(row.bias[e]);
    row.keys[e] = fp32_sum(row.keys[e], {b, b});
  }
  for (const Interval& key : row.keys) {
    if (!finite_in_fp32(key)) return row;
  }
  row.biased = row.keys;

  row.group.assign(num_experts, GroupState::kKept);
  if (grouped(spec)) {
    row.group = group_states(spec, row.keys, tie_rule);
    for (std::size_t e = 0; e < num_experts && !rejects_with_neg_inf(spec); ++e) {
      Interval& key = row.keys[e];
      if (row.group[e] == GroupState::kRejected) key = {0.0, 0.0};
      if (row.group[e] == GroupState::kPossiblyKept) key = {std::min(key.lower, 0.0), std::max(key.upper, 0.0)};
    }
  }
  row.judged = true;
  return row;
}

bool same_key_by_construction(const BoundedRow& row, std::int64_t a, std::int64_t b) {
  const auto i = static_cast<std::size_t>(a);
  const auto j = static_cast<std::size_t>(b);
  const auto is_point = [](const Interval& v) { return v.lower == v.upper; };
  if (is_point(row.keys[i]) && is_point(row.keys[j]) && row.keys[i].lower == row.keys[j].lower) return true;
  return row.exact_logits && row.logits[i].lower == row.logits[j].lower &&
         (row.bias.empty() || row.bias[i] == row.bias[j]) && row.group[i] == GroupState::kKept &&
         row.group[j] == GroupState::kKept;
}

std::optional<Contradiction> selection_contradiction(const RouterSpec& spec, const BoundedRow& row,
                                                     std::span<const std::int64_t> ids, TieRule tie_rule) {
  const bool neg_inf = rejects_with_neg_inf(spec);
  std::vector<std::uint8_t> chosen(row.keys.size(), 0);
  for (const std::int64_t id : ids) chosen[static_cast<std::size_t>(id)] = 1;

  if (grouped(spec) && neg_inf) {
    const std::size_t group_size = row.keys.size() / static_cast<std::size_t>(spec.selection.n_group);
    std::vector<std::int64_t> groups;
    for (const std::int64_t id : ids) {
      if (row.group[static_cast<std::size_t>(id)] == GroupState::kRejected) {
        return Contradiction{id, -1, "the group of expert " + std::to_string(id) + " is certainly rejected"};
      }
      groups.push_back(id / static_cast<std::int64_t>(group_size));
    }
    std::sort(groups.begin(), groups.end());
    groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
    if (static_cast<std::int64_t>(groups.size()) > spec.selection.topk_group) {
      return Contradiction{ids.front(), -1,
                           "experts of " + std::to_string(groups.size()) + " groups were chosen, topk_group is " +
                               std::to_string(spec.selection.topk_group)};
    }
  }

  for (std::size_t e = 0; e < row.keys.size(); ++e) {
    const bool competes = !neg_inf || row.group[e] == GroupState::kKept;
    if (chosen[e] != 0 || !competes) continue;
    const auto rejected = static_cast<std::int64_t>(e);
    for (const std::int64_t id : ids) {
      if (certainly_before(row, rejected, id, tie_rule)) return Contradiction{id, rejected, name_pair(id, rejected)};
    }
  }
  return std::nullopt;
}

std::optional<Contradiction> order_contradiction(const RouterSpec& spec, const BoundedRow& row,
                                                 std::span<const std::int64_t> ids, TieRule tie_rule) {
  for (std::size_t i = 0; i < ids.size(); ++i) {
    for (std::size_t j = i + 1; j < ids.size(); ++j) {
      const bool wrong = spec.selection.sort == oracle::SlotOrder::kByIndex
                             ? ids[j] < ids[i]
                             : certainly_before(row, ids[j], ids[i], tie_rule);
      if (wrong) return Contradiction{ids[i], ids[j], name_pair(ids[i], ids[j])};
    }
  }
  return std::nullopt;
}

namespace {

std::vector<Interval> chosen_scores(const RouterSpec& spec, const BoundedRow& row, std::span<const std::int64_t> ids) {
  std::vector<Interval> chosen;
  if (spec.score.stage == oracle::ScoreStage::kAfterTopk) {
    for (const std::int64_t id : ids) chosen.push_back(row.logits[static_cast<std::size_t>(id)]);
    return score_bounds(spec, chosen);
  }
  const bool biased = spec.weights.source == oracle::WeightSource::kBiasedScore;
  for (const std::int64_t id : ids) {
    chosen.push_back(biased ? row.biased[static_cast<std::size_t>(id)] : row.scores[static_cast<std::size_t>(id)]);
  }
  return chosen;
}

double scale_of(const RouterSpec& spec) {
  return spec.weights.scale_stage == oracle::ScaleStage::kOnExpertOutput
             ? 1.0
             : static_cast<double>(static_cast<float>(spec.weights.routed_scaling_factor));
}

double with_eps(const RouterSpec& spec, double sum) {
  const auto eps = static_cast<double>(static_cast<float>(spec.weights.eps));
  switch (spec.weights.eps_mode) {
    case oracle::EpsMode::kAdd:
      return sum + eps;
    case oracle::EpsMode::kClampMin:
      return std::max(sum, eps);
    case oracle::EpsMode::kNone:
      break;
  }
  return sum;
}

// part / (part + others + eps), and 0 where nothing is divided by nothing.
double share(const RouterSpec& spec, double part, double others) {
  const double denominator = with_eps(spec, part + others);
  return denominator > 0.0 ? part / denominator : 0.0;
}

// The sum of k scores in any order, eps, division and scale, after the scores themselves.
double weight_error(std::size_t k) {
  return (2.0 * static_cast<double>(k) + 4.0) * kU + kDivision;
}

Interval finished(const RouterSpec& spec, Interval weight, std::size_t k) {
  const double scale = scale_of(spec);
  const Interval scaled{std::min(weight.lower * scale, weight.upper * scale),
                        std::max(weight.lower * scale, weight.upper * scale)};
  // What is flushed before the scale is multiplied by it.
  return widened(scaled, weight_error(k), kFlush * (1.0 + std::fabs(scale)));
}

constexpr Interval kUnbounded{-std::numeric_limits<double>::infinity(), std::numeric_limits<double>::infinity()};

}  // namespace

std::vector<Interval> weight_bounds(const RouterSpec& spec, const BoundedRow& row, std::span<const std::int64_t> ids) {
  const std::vector<Interval> scores = chosen_scores(spec, row, ids);
  Interval sum;
  double magnitude = 0.0;
  bool signed_scores = false;
  for (const Interval& s : scores) {
    sum = {sum.lower + s.lower, sum.upper + s.upper};
    magnitude += std::max(std::fabs(s.lower), std::fabs(s.upper));
    signed_scores = signed_scores || s.lower < 0.0;
  }
  // Scores of both signs cancel, so the error of their sum is relative to the sum of their magnitudes.
  if (signed_scores) sum = widened(sum, 0.0, weight_error(ids.size()) * magnitude);

  std::vector<Interval> weights;
  for (const Interval& s : scores) {
    Interval weight = s;
    if (spec.weights.renormalize != oracle::Renormalize::kNone) {
      if (signed_scores) {
        const Interval d{with_eps(spec, sum.lower), with_eps(spec, sum.upper)};
        if (d.lower <= 0.0 && d.upper >= 0.0) {  // the sum may vanish: nothing is claimed
          weights.push_back(kUnbounded);
          continue;
        }
        const auto [low, high] =
            std::minmax({s.lower / d.lower, s.lower / d.upper, s.upper / d.lower, s.upper / d.upper});
        weight = {low, high};
      } else {
        // Grows with its own score, falls with the others.
        weight = {share(spec, s.lower, std::max(sum.upper - s.upper, 0.0)),
                  share(spec, s.upper, std::max(sum.lower - s.lower, 0.0))};
      }
    }
    weights.push_back(maybe_rounded_to_bf16(finished(spec, weight, ids.size()), spec.weights.dtype));
  }
  return weights;
}

Interval weight_sum_bounds(const RouterSpec& spec, const BoundedRow& row, std::span<const std::int64_t> ids) {
  const std::vector<Interval> scores = chosen_scores(spec, row, ids);
  Interval sum;
  for (const Interval& s : scores) {
    if (s.lower < 0.0) return kUnbounded;  // cancellation: the weights law still bounds every weight
    sum = {sum.lower + s.lower, sum.upper + s.upper};
  }
  // S / (S + eps) and S / max(S, eps) grow with S; without eps the quotient is 1 whatever S is.
  Interval total = sum;
  if (spec.weights.renormalize != oracle::Renormalize::kNone) {
    total = {share(spec, sum.lower, 0.0), share(spec, sum.upper, 0.0)};
  }
  Interval bounds = finished(spec, total, ids.size());
  // Every weight has its own flush and, when it is stored as bf16, its own rounding: half an ulp, 2^-8 relative.
  const double per_weight = spec.weights.dtype == FloatType::kBf16 ? 0x1p-8 : 0.0;
  return widened(bounds, per_weight, kFlush * static_cast<double>(ids.size()) * (1.0 + std::fabs(scale_of(spec))));
}

}  // namespace samebits::properties
