// Specs and rows for the tests of the reference: defaults of the schema, changed where a test says so.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <utility>
#include <vector>

#include "oracle/reference/answer.h"

namespace samebits::oracle::test {

using Ids = std::vector<std::int32_t>;

inline RouterSpec spec_of(std::int64_t experts, std::int64_t k, ScoreFunc func, bool renormalize = false) {
  RouterSpec spec;
  spec.shape.num_experts = experts;
  spec.shape.top_k = k;
  spec.score.func = func;
  if (renormalize) {
    spec.weights.renormalize = Renormalize::kL1;
    spec.weights.eps = 1e-20;
    spec.weights.eps_mode = EpsMode::kAdd;
  }
  return spec;
}

inline RouterSpec with_groups(RouterSpec spec, std::int64_t n_group, std::int64_t topk_group, GroupScore score,
                              GroupMask mask) {
  spec.selection.n_group = n_group;
  spec.selection.topk_group = topk_group;
  spec.selection.group_score = score;
  spec.selection.group_mask = mask;
  return spec;
}

// E values: `rest` but for the listed (expert, value) pairs.
inline std::vector<float> row(std::int64_t experts, float rest,
                              std::initializer_list<std::pair<std::size_t, float>> values = {}) {
  std::vector<float> logits(static_cast<std::size_t>(experts), rest);
  for (const auto& [expert, value] : values) logits[expert] = value;
  return logits;
}

inline RowAnswer<float> route(RouterSpec spec, const std::vector<float>& logits, const std::vector<float>& bias = {}) {
  if (!bias.empty() && spec.selection.bias == BiasType::kNone) spec.selection.bias = BiasType::kFp32;
  return route_row(spec, std::span<const float>(logits), {.selection_bias = bias});
}

inline RowAnswer<double> route_fp64(RouterSpec spec, const std::vector<double>& logits,
                                    const std::vector<float>& bias = {}) {
  if (!bias.empty() && spec.selection.bias == BiasType::kNone) spec.selection.bias = BiasType::kFp32;
  return route_row(spec, std::span<const double>(logits), {.selection_bias = bias});
}

}  // namespace samebits::oracle::test
