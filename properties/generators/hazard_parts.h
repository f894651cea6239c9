// What the builders of hazards are made of.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "properties/generators/hazards.h"
#include "properties/spec_features.h"

namespace samebits::properties {

inline constexpr std::uint32_t kNaN = 0x7fffffffu;
inline constexpr std::uint32_t kNegativeNaN = 0xffc10001u;  // another sign and payload, also after the cut to bf16
inline constexpr std::uint32_t kInf = 0x7f800000u;
inline constexpr std::uint32_t kNegativeInf = 0xff800000u;
inline constexpr std::uint32_t kOne = 0x3f800000u;
inline constexpr std::uint32_t kNegativeZero = 0x80000000u;
inline constexpr std::uint32_t kLargestBf16 = 0x7f7f0000u;

inline bool always(const oracle::RouterSpec&) {
  return true;
}
inline bool has_bias(const oracle::RouterSpec& spec) {
  return has_selection_bias(spec) || spec.gate.linear_bias != oracle::BiasType::kNone;
}
inline bool has_groups(const oracle::RouterSpec& spec) {
  return spec.selection.n_group > 1;
}

// One of n, by bits that no other choice of the same hazard uses.
inline std::size_t choose(const Draw& draw, int shift, std::size_t n) {
  return ((draw.choices >> shift) & 0xff) % n;
}

inline void bias(CaseDescription& d, BiasFamily family, float offset = 0.0f, float spread = 1.0f) {
  d.selection_bias = family;
  d.linear_bias = family;
  d.bias_offset = offset;
  d.bias_spread = spread;
}

inline void no_bias(CaseDescription& d) {
  bias(d, BiasFamily::kZero);
}

// Offsets and ranges of published checkpoints: GLM-5.3-Flash 11.54 .. 11.96, DeepSeek-V4-Flash about 8.08, others near
// 7, 12 and 35.
inline void large_bias(const Draw& draw, CaseDescription& d) {
  struct Range {
    float offset, spread;
  };
  constexpr std::array<Range, 5> kRanges = {
      {{11.54f, 0.42f}, {7.0f, 1.0f}, {8.03f, 0.1f}, {12.0f, 0.5f}, {35.0f, 2.0f}}};
  const Range range = kRanges[choose(draw, 8, kRanges.size())];
  bias(d, BiasFamily::kUniform, range.offset, range.spread);
}

// A bias as a trained checkpoint may have it, of the size of the scores' differences.
inline void usual_bias(const oracle::RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  if (!has_selection_bias(spec)) return bias(d, BiasFamily::kNormal, 0.0f, 0.5f);
  if (spec.score.func == oracle::ScoreFunc::kSoftmax) {
    return bias(d, BiasFamily::kNormal, 0.0f, 1.0f / static_cast<float>(oracle::ranked_experts(spec)));
  }
  if (choose(draw, 8, 2) == 0) return bias(d, BiasFamily::kUniform, 11.54f, 0.42f);
  bias(d, BiasFamily::kNormal, 0.0f, 0.1f);
}

inline void logits(CaseDescription& d, LogitsFamily family, float offset = 0.0f, float spread = 1.0f) {
  d.logits = family;
  d.logits_offset = offset;
  d.logits_spread = spread;
}

inline void plant(CaseDescription& d, TensorId tensor, std::int64_t row, std::int64_t column, std::uint32_t bits) {
  d.plants.push_back({tensor, row, column, bits});
}

// The finished logit of a row and an expert, in a hazard of stage kLogits: finite values only, because a gate weight
// reaches every row.
inline void plant_logit(CaseDescription& d, std::int64_t row, std::int64_t expert, float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if (d.stage == Stage::kFromLogits) return plant(d, TensorId::kRouterLogits, row, expert, bits);
  plant(d, TensorId::kGateWeight, expert, row, bits);
}

}  // namespace samebits::properties
