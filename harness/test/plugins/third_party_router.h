// The arithmetic of third_party.cpp: one row from a hidden state or logits to ids and weights.
#pragma once

#include <samebits/samebits.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <vector>

namespace third_party {

using Row = std::vector<float>;
using Ids = std::vector<int32_t>;

inline float bf16_to_float(uint16_t bits) {
  const uint32_t wide = uint32_t{bits} << 16;
  float value = 0;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

inline uint16_t to_bf16(float value) {
  uint32_t bits = 0;
  std::memcpy(&bits, &value, sizeof(bits));
  if (std::isnan(value)) return 0x7fff;
  return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float rounded(float value, int32_t dtype) {
  return dtype == SAMEBITS_BF16 ? bf16_to_float(to_bf16(value)) : value;
}

inline double element(const samebits_tensor& tensor, int64_t row, int64_t column) {
  const int64_t at = row * tensor.row_stride + column;
  switch (tensor.dtype) {
    case SAMEBITS_BF16:
      return bf16_to_float(static_cast<const uint16_t*>(tensor.data)[at]);
    case SAMEBITS_FP32:
      return static_cast<const float*>(tensor.data)[at];
    case SAMEBITS_INT32:
      return static_cast<const int32_t*>(tensor.data)[at];
    default:
      return std::numeric_limits<double>::quiet_NaN();
  }
}

inline int64_t integer(const samebits_tensor& tensor, int64_t row, int64_t column) {
  const int64_t at = row * tensor.row_stride + column;
  return tensor.dtype == SAMEBITS_INT64 ? static_cast<const int64_t*>(tensor.data)[at]
                                        : static_cast<const int32_t*>(tensor.data)[at];
}

inline Row read(const samebits_tensor& tensor, int32_t rounding = SAMEBITS_FP32) {
  Row values;
  if (tensor.data == nullptr) return values;
  for (int64_t row = 0; row < tensor.rows; ++row) {
    for (int64_t column = 0; column < tensor.cols; ++column) {
      values.push_back(rounded(static_cast<float>(element(tensor, row, column)), rounding));
    }
  }
  return values;
}

// The same column by column.
inline Row read_columns(const samebits_tensor& tensor) {
  Row values;
  if (tensor.data == nullptr) return values;
  for (int64_t column = 0; column < tensor.cols; ++column) {
    for (int64_t row = 0; row < tensor.rows; ++row) {
      values.push_back(static_cast<float>(element(tensor, row, column)));
    }
  }
  return values;
}

// 1 / (1 + e^-x) without overflow and without losing small results.
inline double sigmoid(double x) {
  const double e = std::exp(-std::fabs(x));
  return x < 0 ? e / (1 + e) : 1 / (1 + e);
}

inline double softplus(double x) {
  return std::fmax(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
}

}  // namespace third_party

using third_party::Ids;
using third_party::rounded;
using third_party::Row;
using third_party::sigmoid;
using third_party::softplus;

struct samebits_router {
  samebits_router_spec spec;
  Row gate_columns, linear_bias, selection_bias, scale_vector, per_expert_scale, global_scale;
  std::vector<int64_t> table;

  int32_t ranked() const { return spec.num_experts + spec.zero_experts; }
  int32_t shared() const { return spec.shared_mode == SAMEBITS_SHARED_IN_GATE ? spec.shared_experts : 0; }
  int32_t gate_rows() const { return ranked() + shared(); }
  int32_t columns() const { return spec.top_k + shared(); }

  void prepare(Row& x) const;
  Row logits_of(Row x, bool backwards) const;
  double score_alone(float logit) const;
  Row softmax(const Row& logits, const Ids& members) const;
  Row scores_of(const Row& logits) const;
  Ids choose(Row keys) const;
  Row sparsemixer(const Row& logits, const Ids& ids) const;
  Row weights_of(const Ids& ids, const Row& values, const Row& logits) const;
  void route(const Row& logits, int32_t row_class, int64_t token, Ids& ids, Row& weights) const;
};

inline void samebits_router::prepare(Row& x) const {
  const bool scaled = spec.input_scale_rsqrt_hidden_size != 0 || spec.input_scale != 1.0f;
  if (spec.input_norm == SAMEBITS_INPUT_NORM_NONE && scale_vector.empty() && !scaled) return;
  const auto hidden = static_cast<float>(x.size());
  if (spec.input_norm != SAMEBITS_INPUT_NORM_NONE) {
    float squares = 0;
    for (auto value = x.rbegin(); value != x.rend(); ++value) squares += *value * *value;
    const float norm = 1.0f / std::sqrt(squares / hidden + spec.input_norm_eps);
    for (float& value : x) value *= norm;
  }
  float scale = spec.input_scale;
  if (spec.input_scale_rsqrt_hidden_size != 0) {
    scale = 1.0f / std::sqrt(hidden);
    if (spec.input_scale_rsqrt_hidden_size == 2) scale = rounded(scale, SAMEBITS_BF16);
  }
  for (size_t i = 0; i < x.size(); ++i) {
    if (!scale_vector.empty()) x[i] *= scale_vector[i];
    if (scaled) x[i] *= scale;
    x[i] = rounded(x[i], SAMEBITS_BF16);
  }
}

// One column after another for all experts, so that the sums do not wait for each other.
inline Row samebits_router::logits_of(Row x, bool backwards) const {
  prepare(x);
  const auto experts = static_cast<size_t>(gate_rows());
  Row logits(experts, 0.0f);
  for (size_t i = 0; i < x.size(); ++i) {
    const size_t at = backwards ? x.size() - 1 - i : i;
    const float* w = gate_columns.data() + at * experts;
    float* sums = logits.data();
    for (size_t e = 0; e < experts; ++e) sums[e] += x[at] * w[e];
  }
  for (size_t e = 0; e < experts; ++e) {
    float sum = logits[e];
    if (!linear_bias.empty()) sum += linear_bias[e];
    sum = rounded(sum, spec.logits_dtype);
    if (spec.temperature != 1.0f) sum /= spec.temperature;
    if (spec.softcap != 0.0f) sum = static_cast<float>(spec.softcap * std::tanh(double{sum} / spec.softcap));
    logits[e] = sum;
  }
  return logits;
}

inline double samebits_router::score_alone(float logit) const {
  if (spec.score_func == SAMEBITS_SCORE_SIGMOID) return sigmoid(logit);
  if (spec.score_func == SAMEBITS_SCORE_SQRT_SOFTPLUS) return std::sqrt(softplus(logit));
  return logit;
}

// Of the members alone; the others get 0. A NaN takes no part.
inline Row samebits_router::softmax(const Row& logits, const Ids& members) const {
  Row scores(logits.size(), 0.0f);
  double most = -std::numeric_limits<double>::infinity(), sum = 0;
  for (const int32_t e : members) most = std::fmax(most, logits[static_cast<size_t>(e)]);
  const auto term = [&](int32_t e) {
    const double z = logits[static_cast<size_t>(e)];
    return std::isinf(most) ? (z == most && most > 0 ? 1.0 : 0.0) : std::exp2((z - most) * 1.4426950408889634074);
  };
  for (const int32_t e : members) sum += std::isnan(logits[static_cast<size_t>(e)]) ? 0.0 : term(e);
  for (const int32_t e : members) {
    const float z = logits[static_cast<size_t>(e)];
    scores[static_cast<size_t>(e)] = std::isnan(z) ? z : sum > 0 ? static_cast<float>(term(e) / sum) : 0.0f;
  }
  return scores;
}

// Of every gate row; those of softmax over all that compete.
inline Row samebits_router::scores_of(const Row& logits) const {
  Ids all(static_cast<size_t>(ranked()));
  std::iota(all.begin(), all.end(), 0);
  if (spec.score_func == SAMEBITS_SCORE_SOFTMAX) return softmax(logits, all);
  Row scores;
  for (const float logit : logits) scores.push_back(static_cast<float>(score_alone(logit)));
  return scores;
}

// The chosen of those that compete, best first.
inline Ids samebits_router::choose(Row keys) const {
  const auto better = [&](int32_t a, int32_t b) {
    const float x = keys[static_cast<size_t>(a)], y = keys[static_cast<size_t>(b)];
    if (std::isnan(x) != std::isnan(y)) return std::isnan(y);
    return !std::isnan(x) && x != y ? x > y : a > b;
  };
  Ids open(static_cast<size_t>(ranked()));
  std::iota(open.begin(), open.end(), 0);
  const auto best_first = [&](Ids& ids, int32_t count) {
    std::partial_sort(ids.begin(), ids.begin() + count, ids.end(), better);
  };
  const int32_t size = ranked() / std::max(spec.n_group, 1);
  if (spec.topk_scope == SAMEBITS_TOPK_PER_GROUP) {
    Ids chosen;
    for (int32_t g = 0; g < spec.n_group; ++g) {
      Ids members(open.begin() + g * size, open.begin() + (g + 1) * size);
      best_first(members, spec.top_k / spec.n_group);
      chosen.insert(chosen.end(), members.begin(), members.begin() + spec.top_k / spec.n_group);
    }
    return chosen;
  }
  if (spec.n_group > 1 && spec.group_mask != SAMEBITS_GROUP_MASK_NONE) {
    Row group_keys;
    for (int32_t g = 0; g < spec.n_group; ++g) {
      Ids members(open.begin() + g * size, open.begin() + (g + 1) * size);
      best_first(members, std::min(size, 2));
      float key = keys[static_cast<size_t>(members[0])];
      if (spec.group_score == SAMEBITS_GROUP_SCORE_TOP2_SUM) key += keys[static_cast<size_t>(members[1])];
      group_keys.push_back(key);
    }
    Ids groups(static_cast<size_t>(spec.n_group));
    std::iota(groups.begin(), groups.end(), 0);
    std::sort(groups.begin(), groups.end(), [&](int32_t a, int32_t b) {
      const float x = group_keys[static_cast<size_t>(a)], y = group_keys[static_cast<size_t>(b)];
      if (std::isnan(x) != std::isnan(y)) return std::isnan(y);
      return !std::isnan(x) && x != y ? x > y : a > b;
    });
    Ids kept;
    for (int32_t place = 0; place < spec.n_group; ++place) {
      for (int32_t e = groups[static_cast<size_t>(place)] * size, i = 0; i < size; ++i, ++e) {
        if (place >= spec.topk_group) keys[static_cast<size_t>(e)] = 0.0f;
        if (place < spec.topk_group || spec.group_mask == SAMEBITS_GROUP_MASK_ZERO) kept.push_back(e);
      }
    }
    open = kept;
  }
  best_first(open, spec.top_k);
  open.resize(static_cast<size_t>(spec.top_k));
  return open;
}

inline Row samebits_router::sparsemixer(const Row& logits, const Ids& ids) const {
  Row values;
  std::vector<bool> gone(logits.size(), false);
  for (const int32_t chosen : ids) {
    const float top = logits[static_cast<size_t>(chosen)];
    Ids members;
    for (int32_t e = 0; e < ranked(); ++e) {
      const float z = logits[static_cast<size_t>(e)];
      const bool far = (top - z) / std::fmax(std::fabs(z), top) > 2.0f * spec.sparsemixer_jitter_eps;
      if (!far && !gone[static_cast<size_t>(e)]) members.push_back(e);
    }
    values.push_back(softmax(logits, members)[static_cast<size_t>(chosen)]);
    gone[static_cast<size_t>(chosen)] = true;
  }
  return values;
}

inline Row samebits_router::weights_of(const Ids& ids, const Row& values, const Row& logits) const {
  std::vector<double> v(values.begin(), values.end());
  if (spec.renormalize == SAMEBITS_RENORM_LOG_SPACE_L1) {
    double most = -std::numeric_limits<double>::infinity();
    for (size_t i = 0; i < ids.size(); ++i) {
      v[i] = -softplus(-double{logits[static_cast<size_t>(ids[i])]});
      most = std::fmax(most, v[i]);
    }
    for (double& value : v) value = std::isnan(value) || std::isinf(most) ? 0.0 : std::exp(value - most);
  }
  bool infinite = false;
  for (double& value : v) {
    if (std::isnan(value)) value = 0;
    infinite = infinite || (std::isinf(value) && value > 0);
  }
  double scale = spec.scale_stage == SAMEBITS_SCALE_ON_EXPERT_OUTPUT ? 1.0 : spec.routed_scaling_factor;
  double divisor = 1;
  if (infinite) {
    const bool renormalised = spec.renormalize != SAMEBITS_RENORM_NONE;
    for (double& value : v) {
      value = std::isinf(value) && value > 0 ? (renormalised ? 1.0 : std::numeric_limits<float>::max()) : 0.0;
    }
    if (!renormalised) scale = 1;
  }
  if (spec.renormalize != SAMEBITS_RENORM_NONE) {
    divisor = std::accumulate(v.rbegin(), v.rend(), 0.0);
    if (spec.eps_mode == SAMEBITS_EPS_ADD) divisor += spec.eps;
    if (spec.eps_mode == SAMEBITS_EPS_CLAMP_MIN) divisor = std::fmax(divisor, spec.eps);
  }
  Row weights;
  for (size_t i = 0; i < ids.size(); ++i) {
    double weight = divisor == 0 ? 0.0 : v[i] * scale / divisor;
    if (!per_expert_scale.empty()) weight *= per_expert_scale[static_cast<size_t>(ids[i])];
    if (!global_scale.empty()) weight *= global_scale[0];
    const auto narrow = static_cast<float>(weight);
    weights.push_back(std::isfinite(narrow) ? narrow : 0.0f);
  }
  return weights;
}

inline void samebits_router::route(const Row& logits, int32_t row_class, int64_t token, Ids& ids, Row& weights) const {
  const bool early =
      spec.score_stage == SAMEBITS_SCORE_BEFORE_TOPK && spec.selection_method != SAMEBITS_SELECT_SPARSEMIXER;
  const Row scores = early ? scores_of(logits) : Row();
  const bool by_logit = spec.rank_by == SAMEBITS_RANK_BY_LOGIT || spec.selection_method == SAMEBITS_SELECT_SPARSEMIXER;
  Row keys = by_logit || !early ? logits : scores;
  for (int32_t e = 0; e < ranked() && !selection_bias.empty(); ++e) {
    keys[static_cast<size_t>(e)] += selection_bias[static_cast<size_t>(row_class * ranked() + e)];
  }
  if (spec.selection_method == SAMEBITS_SELECT_HASH_TABLE) {
    const auto first = table.begin() + token * spec.top_k;
    ids.assign(first, first + spec.top_k);
  } else {
    ids = choose(keys);
  }
  for (int32_t e = ranked(); e < gate_rows(); ++e) ids.push_back(e);

  Row values;
  if (spec.selection_method == SAMEBITS_SELECT_SPARSEMIXER) {
    values = sparsemixer(logits, ids);
  } else if (!early && spec.score_func == SAMEBITS_SCORE_SOFTMAX) {
    const Row all = softmax(logits, ids);
    for (const int32_t e : ids) values.push_back(all[static_cast<size_t>(e)]);
  } else {
    for (const int32_t e : ids) {
      const bool biased = spec.weight_source == SAMEBITS_WEIGHT_BIASED_SCORE && e < ranked();
      values.push_back(biased                  ? keys[static_cast<size_t>(e)]
                       : early && e < ranked() ? scores[static_cast<size_t>(e)]
                                               : static_cast<float>(score_alone(logits[static_cast<size_t>(e)])));
    }
  }
  weights = weights_of(ids, values, logits);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (spec.zero_type != SAMEBITS_ZERO_EXPERTS_IDENTITY_REMAPPED_TO_ID0_WEIGHT0) break;
    if (ids[i] < spec.num_experts || ids[i] >= ranked()) continue;
    ids[i] = 0;
    weights[i] = 0;
  }
  if (spec.selection_method == SAMEBITS_SELECT_HASH_TABLE) return;
  // The first of the chosen last: any order but that of the keys.
  std::rotate(ids.begin(), ids.begin() + 1, ids.begin() + spec.top_k);
  std::rotate(weights.begin(), weights.begin() + 1, weights.begin() + spec.top_k);
}
