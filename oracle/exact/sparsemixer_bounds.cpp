#include "oracle/exact/sparsemixer_bounds.h"

#include "oracle/exact/score_bounds.h"

namespace samebits::oracle {
namespace {

enum class Part { kIn, kPossibly, kOut };

// Expert j of logit z takes part unless (t - z) / max(|z|, t) > threshold. Subtraction and division are one rounding
// each, the threshold another; a router may also compare t - z with threshold * max: 4 u. A numerator that is not
// above 0 takes part whatever it is divided by, 0 / 0 too.
Part takes_part(Interval t, Interval z, double threshold, const Steps& steps) {
  const Interval distance{t.lower - z.upper, t.upper - z.lower};
  if (distance.upper <= 0.0) return Part::kIn;
  const double least_z = z.lower <= 0.0 && z.upper >= 0.0 ? 0.0 : std::min(std::fabs(z.lower), std::fabs(z.upper));
  const Interval divisor{std::max(least_z, t.lower), std::max(magnitude(z), t.upper)};
  const double error = 8.0 * steps.unit;
  if (distance.lower > threshold * divisor.upper * (1.0 + error) && distance.lower > 0.0) return Part::kOut;
  if (distance.upper <= threshold * divisor.lower * (1.0 - error)) return Part::kIn;
  return Part::kPossibly;
}

}  // namespace

std::vector<Interval> sparsemixer_bounds(double jitter_eps, std::span<const Interval> logits,
                                         std::span<const std::int64_t> ids,
                                         const std::function<bool(std::int64_t, std::int64_t)>& certainly_before,
                                         const Steps& steps) {
  const double threshold = 2.0 * static_cast<double>(static_cast<float>(jitter_eps));
  std::vector<std::uint8_t> chosen(logits.size(), 0);
  for (const std::int64_t id : ids) chosen[static_cast<std::size_t>(id)] = 1;

  std::vector<Interval> scores;
  for (const std::int64_t id : ids) {
    const Interval t = logits[static_cast<std::size_t>(id)];
    // Those that take part for certain and those that may, as softmax_bounds has them: the score is one over the sum of
    // e^(z - t) over all, itself being 1.
    Interval others;
    double argument = 0.0, terms = 1.0;
    for (std::size_t j = 0; j < logits.size(); ++j) {
      const auto expert = static_cast<std::int64_t>(j);
      if (expert == id) continue;
      if (chosen[j] != 0 && certainly_before(expert, id)) continue;
      const Interval z = logits[j];
      Part part = takes_part(t, z, threshold, steps);
      if (part == Part::kOut) continue;
      if (chosen[j] != 0 && !certainly_before(id, expert)) part = Part::kPossibly;
      const Interval term{std::exp(z.lower - t.upper), std::exp(z.upper - t.lower)};
      others.upper += term.upper;
      if (part == Part::kIn) others.lower += term.lower;
      argument = std::max({argument, std::fabs(z.lower - t.upper), std::fabs(z.upper - t.lower)});
      terms += 1.0;
    }
    // Each exp with the largest argument, the sum, the division.
    const double error = 2.0 * exp_error(argument, steps) + 2.0 * terms * steps.unit + division_error(steps);
    if (!(error < 0.5)) {
      scores.push_back({0.0, 1.0 + error});
      continue;
    }
    const Interval exact{1.0 / (1.0 + others.upper), 1.0 / (1.0 + others.lower)};
    scores.push_back(non_negative(widened(exact, error / (1.0 - error), steps.flush)));
  }
  return scores;
}

}  // namespace samebits::oracle
