#include "oracle/second/weigh.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

namespace samebits::second {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();

bool is_zero(const Ball& a) {
  return is_exact(a) && mpfr_zero_p(static_cast<mpfr_srcptr>(a.center)) != 0;
}

// Whether an inexact ball reaches 0, so that it is undecided whether the rule for 0 applies.
bool reaches_zero(const Ball& a) {
  return is_unknown(a) || (!is_exact(a) && std::abs(mpfr_get_d(a.center, MPFR_RNDZ)) <= a.radius);
}

// S, fadd(S, eps), or S > eps ? S : eps.
Ball denominator_of(const RouterSpec& spec, const Ball& sum) {
  const Ball eps = exact(static_cast<float>(spec.weights.eps));
  switch (spec.weights.eps_mode) {
    case oracle::EpsMode::kNone:
      break;
    case oracle::EpsMode::kAdd:
      return add(sum, eps);
    case oracle::EpsMode::kClampMin:
      if (is_unknown(sum)) return unknown();
      return is_nan(sum) ? eps : maximum(eps, sum);
  }
  return sum;
}

// s / D and the routed scaling factor in the order of the spec.
Ball scaled_quotient(const RouterSpec& spec, const Ball& value, const Ball& denominator) {
  const Ball scale = exact(static_cast<float>(spec.weights.routed_scaling_factor));
  switch (spec.weights.scale_stage) {
    case oracle::ScaleStage::kAfterRenorm:
      return multiply(divide(value, denominator), scale);
    case oracle::ScaleStage::kBeforeDivide:
      return divide(multiply(value, scale), denominator);
    case oracle::ScaleStage::kOnExpertOutput:
      break;
  }
  return divide(value, denominator);
}

Ball scaled(const RouterSpec& spec, const Ball& value) {
  if (spec.weights.scale_stage == oracle::ScaleStage::kOnExpertOutput) return value;
  return multiply(value, exact(static_cast<float>(spec.weights.routed_scaling_factor)));
}

// Weights before the learned scales, and whether those apply.
struct Unscaled {
  std::vector<Ball> weights;
  bool takes_learned_scales = true;
};

Unscaled all(std::size_t count, const Ball& weight) {
  return {std::vector<Ball>(count, weight), false};
}

Unscaled l1(const RouterSpec& spec, Weighing& weighing) {
  std::vector<Ball> values = weighing.values;
  if (std::any_of(values.begin(), values.end(), is_positive_infinity)) {
    for (Ball& value : values) {
      if (!is_unknown(value)) value = exact(is_positive_infinity(value) ? 1 : 0);
    }
  }
  weighing.sum = left_fold(values);
  weighing.denominator = denominator_of(spec, weighing.sum);
  if (is_zero(weighing.denominator)) return all(values.size(), exact(0));
  if (reaches_zero(weighing.denominator)) return all(values.size(), unknown());
  Unscaled result;
  for (const Ball& value : values) result.weights.push_back(scaled_quotient(spec, value, weighing.denominator));
  return result;
}

Unscaled not_renormalized(const RouterSpec& spec, Weighing& weighing) {
  const std::vector<Ball>& values = weighing.values;
  weighing.sum = left_fold(values);
  weighing.denominator = exact(1);
  // Whether one of them is +Inf decides about all.
  if (std::any_of(values.begin(), values.end(), is_unknown)) return all(values.size(), unknown());
  Unscaled result;
  if (std::any_of(values.begin(), values.end(), is_positive_infinity)) {
    for (const Ball& value : values) {
      result.weights.push_back(exact(is_positive_infinity(value) ? kLargest : 0));
    }
    result.takes_learned_scales = false;
    return result;
  }
  for (const Ball& value : values) result.weights.push_back(scaled(spec, value));
  return result;
}

// exp(l_i - M - log(sum exp(l - M))), l = min(z, 0) - log1p(e^-|z|): a softmax of the log-sigmoids.
Unscaled log_space(const RouterSpec& spec, const Functions& functions, const std::vector<Ball>& logits,
                   Weighing& weighing) {
  std::vector<Ball> logs;
  Ball greatest = exact(-kInfinity);
  bool known = true;
  for (const Ball& z : logits) {
    if (is_nan(z) || is_unknown(z)) {
      known = known && !is_unknown(z);
      logs.push_back(z);
      continue;
    }
    logs.push_back(subtract(minimum(z, exact(0)), functions.log1p(functions.exp(negated(absolute(z))))));
    greatest = maximum(greatest, logs.back());
  }
  if (!known) {
    weighing.sum = weighing.denominator = unknown();
    weighing.values.assign(logits.size(), unknown());
    return all(logits.size(), unknown());
  }
  weighing.values.assign(logits.size(), exact(0));
  weighing.sum = weighing.denominator = exact(0);
  if (is_negative_infinity(greatest)) return all(logits.size(), exact(0));
  std::vector<Ball> distances;
  for (std::size_t i = 0; i < logs.size(); ++i) {
    distances.push_back(is_nan(logs[i]) ? logs[i] : subtract(logs[i], greatest));
    if (!is_nan(logs[i])) weighing.values[i] = functions.exp(distances[i]);
  }
  weighing.sum = weighing.denominator = sum32(weighing.values);
  const Ball log_sum = functions.log(weighing.sum);
  Unscaled result;
  for (const Ball& distance : distances) {
    result.weights.push_back(is_nan(distance) ? exact(0) : scaled(spec, functions.exp(subtract(distance, log_sum))));
  }
  return result;
}

// Learned scales, dtype, and no weight that is not finite.
Ball finished(const RouterSpec& spec, const Row& row, std::int32_t id, bool takes_learned_scales, Ball weight) {
  if (takes_learned_scales) {
    if (!row.per_expert_scale.empty()) {
      weight = multiply(weight, exact(row.per_expert_scale[static_cast<std::size_t>(id)]));
    }
    if (row.global_scale) weight = multiply(weight, exact(*row.global_scale));
  }
  if (spec.weights.dtype == oracle::FloatType::kBf16) weight = rounded(weight, kBf16);
  return is_unknown(weight) || is_finite(weight) ? weight : exact(0);
}

Ball value_of(const RouterSpec& spec, std::int32_t id, const Ball& score, const std::vector<Ball>& unmasked_keys) {
  const bool biased = spec.weights.source == oracle::WeightSource::kBiasedScore;
  const auto e = static_cast<std::size_t>(id);
  const Ball& value = biased && e < unmasked_keys.size() ? unmasked_keys[e] : score;
  return is_nan(value) ? exact(0) : value;
}

void sort_by_id(Weighing& weighing) {
  std::vector<std::size_t> order(weighing.ids.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return weighing.ids[a] < weighing.ids[b]; });
  const Weighing unsorted = weighing;
  for (std::size_t i = 0; i < order.size(); ++i) {
    weighing.ids[i] = unsorted.ids[order[i]];
    weighing.values[i] = unsorted.values[order[i]];
    weighing.weights[i] = unsorted.weights[order[i]];
  }
}

}  // namespace

Weighing weigh(const RouterSpec& spec, const Row& row, const Functions& functions, std::span<const std::int32_t> slots,
               const std::vector<Ball>& logits, const std::vector<Ball>& slot_scores,
               const std::vector<Ball>& unmasked_keys) {
  Weighing weighing;
  weighing.ids.assign(slots.begin(), slots.end());
  Unscaled unscaled;
  if (spec.weights.renormalize == oracle::Renormalize::kLogSpaceL1) {
    std::vector<Ball> slot_logits;
    for (const std::int32_t id : slots) slot_logits.push_back(logits[static_cast<std::size_t>(id)]);
    unscaled = log_space(spec, functions, slot_logits, weighing);
  } else {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      weighing.values.push_back(value_of(spec, slots[i], slot_scores[i], unmasked_keys));
    }
    unscaled =
        spec.weights.renormalize == oracle::Renormalize::kL1 ? l1(spec, weighing) : not_renormalized(spec, weighing);
  }
  for (std::size_t i = 0; i < slots.size(); ++i) {
    weighing.weights.push_back(finished(spec, row, slots[i], unscaled.takes_learned_scales, unscaled.weights[i]));
  }
  if (spec.selection.sort == oracle::SlotOrder::kByIndex) sort_by_id(weighing);
  weighing.expert_ids = weighing.ids;
  if (spec.special.zero_type == oracle::ZeroType::kIdentityRemappedToId0Weight0) {
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const std::int32_t id = weighing.ids[i];
      if (id < oracle::num_experts(spec) || id >= oracle::ranked_experts(spec)) continue;
      weighing.ids[i] = 0;
      weighing.weights[i] = exact(0);
    }
  }
  return weighing;
}

}  // namespace samebits::second
