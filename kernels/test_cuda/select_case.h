// Specs, constants and logits that reach every branch of the selection.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "kernels/test/test_router.h"

namespace samebits::cuda::test {

using cpu::test::columns_of;
using cpu::test::Constants;
using cpu::test::draw;
using cpu::test::draw_normal;
using cpu::test::rows_of_gate;

// The enumerations that the selection reads.
struct SpecField {
  const char* name;
  std::int32_t samebits_router_spec::*member;
  std::vector<std::int32_t> values;
};
inline const std::vector<SpecField>& spec_fields() {
  using Spec = samebits_router_spec;
  static const std::vector<SpecField> fields = {
      {"logits_dtype", &Spec::logits_dtype, {SAMEBITS_FP32, SAMEBITS_BF16}},
      {"linear_bias_dtype", &Spec::linear_bias_dtype, {SAMEBITS_DTYPE_NONE, SAMEBITS_FP32, SAMEBITS_BF16}},
      {"score_func", &Spec::score_func, {1, 2, 3, 4}},
      {"score_stage", &Spec::score_stage, {1, 2}},
      {"score_dtype", &Spec::score_dtype, {SAMEBITS_FP32, SAMEBITS_BF16}},
      {"selection_method", &Spec::selection_method, {1, 2, 3}},
      {"rank_by", &Spec::rank_by, {1, 2}},
      {"selection_bias_dtype", &Spec::selection_bias_dtype, {SAMEBITS_DTYPE_NONE, SAMEBITS_FP32, SAMEBITS_BF16}},
      {"group_score", &Spec::group_score, {0, 1, 2}},
      {"group_mask", &Spec::group_mask, {0, 1, 2}},
      {"topk_scope", &Spec::topk_scope, {1, 2}},
      {"sort", &Spec::sort, {1, 2}},
      {"weight_source", &Spec::weight_source, {1, 2}},
      {"renormalize", &Spec::renormalize, {0, 1, 2}},
      {"eps_mode", &Spec::eps_mode, {0, 1, 2}},
      {"scale_stage", &Spec::scale_stage, {1, 2, 3}},
      {"per_expert_scale", &Spec::per_expert_scale, {0, 1}},
      {"global_scale", &Spec::global_scale, {0, 1}},
      {"weights_dtype", &Spec::weights_dtype, {SAMEBITS_FP32, SAMEBITS_BF16}},
      {"shared_mode", &Spec::shared_mode, {0, 1, 3}},
      {"zero_type", &Spec::zero_type, {0, 1, 2}},
  };
  return fields;
}

inline constexpr std::array kExperts = {1, 7, 8, 60, 128, 256, 288, 384, 512, 896, 2304};
inline constexpr std::array kTopK = {1, 2, 8, 10, 22, 64};

inline bool is_supported(const samebits_router_spec& spec) {
  char reason[256];
  return samebits_supports(&spec, reason, sizeof(reason)) == SAMEBITS_OK;
}

// One draw of everything, with what cannot go together removed; may still be unsupported.
inline samebits_router_spec draw_spec_once(std::uint64_t seed) {
  std::uint64_t count = 0;
  const auto pick = [&](const auto& values) { return values[draw(seed, count++) % std::size(values)]; };
  samebits_router_spec spec = cpu::test::plain_spec(0, pick(kExperts), pick(kTopK));
  for (const SpecField& field : spec_fields()) spec.*field.member = pick(field.values);
  if (pick(std::array{0, 1, 2}) != 0) spec.selection_method = SAMEBITS_SELECT_TOPK;

  const bool sparsemixer = spec.selection_method == SAMEBITS_SELECT_SPARSEMIXER;
  if (sparsemixer) {
    spec.score_func = SAMEBITS_SCORE_SOFTMAX;
    spec.rank_by = SAMEBITS_RANK_BY_LOGIT;
    spec.zero_type = SAMEBITS_ZERO_EXPERTS_NONE;
    spec.shared_mode = SAMEBITS_SHARED_OUTSIDE_ROUTER;
    spec.renormalize = spec.renormalize == SAMEBITS_RENORM_NONE ? SAMEBITS_RENORM_NONE : SAMEBITS_RENORM_L1;
    spec.sparsemixer_jitter_eps = pick(std::array{0.01f, 0.3f});
  }
  if (spec.selection_method != SAMEBITS_SELECT_TOPK) {
    spec.score_stage = SAMEBITS_SCORE_BEFORE_TOPK;
    spec.selection_bias_dtype = SAMEBITS_DTYPE_NONE;
    spec.group_score = SAMEBITS_GROUP_SCORE_NONE;
    spec.topk_scope = SAMEBITS_TOPK_GLOBAL;
  }
  if (spec.selection_method == SAMEBITS_SELECT_HASH_TABLE) spec.hash_vocab_size = pick(std::array{1, 50});
  if (spec.score_stage == SAMEBITS_SCORE_AFTER_TOPK) {
    spec.rank_by = SAMEBITS_RANK_BY_LOGIT;
    spec.selection_bias_dtype = SAMEBITS_DTYPE_NONE;
  }
  const bool log_space = spec.renormalize == SAMEBITS_RENORM_LOG_SPACE_L1;
  const bool in_gate = spec.shared_mode == SAMEBITS_SHARED_IN_GATE;
  if (log_space) spec.score_func = SAMEBITS_SCORE_SIGMOID, spec.eps_mode = SAMEBITS_EPS_NONE;
  if (in_gate && spec.score_func == SAMEBITS_SCORE_SOFTMAX) spec.score_func = SAMEBITS_SCORE_IDENTITY;
  const bool no_bias = spec.selection_bias_dtype == SAMEBITS_DTYPE_NONE;
  if (no_bias || log_space || in_gate) spec.weight_source = SAMEBITS_WEIGHT_UNBIASED_SCORE;

  const bool per_group = spec.topk_scope == SAMEBITS_TOPK_PER_GROUP;
  if (per_group || spec.group_score == SAMEBITS_GROUP_SCORE_NONE || spec.group_mask == SAMEBITS_GROUP_MASK_NONE) {
    spec.group_score = SAMEBITS_GROUP_SCORE_NONE;
    spec.group_mask = SAMEBITS_GROUP_MASK_NONE;
  }
  if (per_group || spec.group_score != SAMEBITS_GROUP_SCORE_NONE) {
    spec.n_group = pick(std::array{2, 4, 8, 16, spec.num_experts});
    spec.topk_group = per_group ? spec.n_group : 1 + static_cast<std::int32_t>(draw(seed, count++) % 8);
    spec.zero_type = SAMEBITS_ZERO_EXPERTS_NONE;
  }
  if (spec.zero_type != SAMEBITS_ZERO_EXPERTS_NONE) spec.zero_experts = pick(std::array{1, 5, 128});
  if (spec.shared_mode != SAMEBITS_SHARED_OUTSIDE_ROUTER) spec.shared_experts = pick(std::array{1, 2, 4});
  if (!no_bias) spec.num_bias_variants = pick(std::array{1, 3});
  if (spec.eps_mode != SAMEBITS_EPS_NONE) spec.eps = pick(std::array{1e-20f, 1e-12f, 0.5f});
  spec.routed_scaling_factor = pick(std::array{1.0f, 2.5f, 2.826f, 0.0f, -1.5f, 0x1p+100f});
  spec.temperature = pick(std::array{1.0f, 0.7f});
  spec.softcap = pick(std::array{0.0f, 30.0f, 1.5f});
  return spec;
}

// Supported, and no more experts that compete than the routers on the device take.
inline samebits_router_spec draw_spec(std::uint64_t seed) {
  for (std::uint64_t attempt = 0;; ++attempt) {
    const samebits_router_spec spec = draw_spec_once(draw(seed, attempt));
    if (spec.num_experts + spec.zero_experts <= kExperts.back() && is_supported(spec)) return spec;
  }
}

// As random_constants, but with biases that tie and that make keys negative, and scales of 0, negative and huge.
inline Constants draw_constants(const samebits_router_spec& spec, std::uint64_t seed) {
  Constants constants = cpu::test::random_constants(spec, seed);
  for (std::size_t i = 0; i < constants.selection_bias.size(); ++i) {
    float& bias = constants.selection_bias[i];
    if (seed % 3 == 1) bias = std::round((bias - 11.5f) * 10.0f) * 0.5f;
    if (seed % 3 == 2) bias -= 20.0f;
  }
  for (std::size_t i = 0; i < constants.per_expert_scale.size(); ++i) {
    constexpr float kScales[] = {0.0f, -0.5f, 3e38f, 0x1p-130f};
    if (draw(seed + 6, i) % 8 == 0) constants.per_expert_scale[i] = kScales[draw(seed + 7, i) % 4];
  }
  return constants;
}

inline constexpr int kRowKinds = 16;

// Logit `column` of a row; its kind is row % kRowKinds.
inline float draw_logit(std::uint64_t seed, std::int64_t row, std::int64_t column) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  // NaN of either sign, quiet and signalling; all are one to the contract.
  constexpr std::uint32_t kSpecial[] = {0x7fffffffu, 0xffc01234u, 0x7f800001u, 0x7f800000u, 0xff800000u, 0u,
                                        0x80000000u, 1u,          0x80000003u, 0x7f7fffffu, 0xff7fffffu, 0x00800000u};
  const auto r = static_cast<std::uint64_t>(row);
  const std::uint64_t index = r << 16 | static_cast<std::uint64_t>(column), bits = draw(seed + 1, index);
  const float normal = draw_normal(seed, index), of_row = draw_normal(seed + 2, r);
  const auto special = [&](std::uint64_t n) { return std::bit_cast<float>(kSpecial[n % std::size(kSpecial)]); };
  switch (row % kRowKinds) {
    case 0:
      return normal;
    case 1:
      return 12.0f * normal;
    case 2:  // few values: ties everywhere
      return 0.25f * static_cast<float>(bits % 4);
    case 3:  // all equal
      return of_row;
    case 4:  // a few ulps apart
      return std::bit_cast<float>(std::bit_cast<std::uint32_t>(of_row) + static_cast<std::uint32_t>(bits % 5));
    case 5:
      return bits % 16 == 0 ? special(bits >> 8) : normal;
    case 6:  // nothing but special values
      return special(bits >> 8);
    case 7:  // one special value, everywhere
      return special(draw(seed + 3, r));
    case 8:  // underflow
      return -80.0f - 10.0f * std::fabs(normal);
    case 9:  // saturation
      return 20.0f + 10.0f * std::fabs(normal);
    case 10:  // zeros of both signs, and negative values
      return bits % 3 == 0 ? -std::fabs(normal) : bits % 3 == 1 ? 0.0f : -0.0f;
    case 11:  // few numbers among NaN
      return bits % 32 == 0 ? normal : std::bit_cast<float>(0xffffffffu);
    case 12:  // few numbers among -inf
      return bits % 32 == 0 ? normal : -kInf;
    case 13:  // huge values of both signs
      return 1e38f * normal;
    case 14:  // one far above the rest, at a place of the row's own
      return static_cast<std::uint64_t>(column) == r * 7 % 61 ? 90.0f : normal;
    default:  // tiny values
      return 0x1p-140f * normal;
  }
}

inline std::vector<float> draw_logits(const samebits_router_spec& spec, std::uint64_t seed, std::int64_t num_rows) {
  std::vector<float> logits;
  const std::int64_t columns = rows_of_gate(spec);
  logits.reserve(static_cast<std::size_t>(num_rows * columns));
  for (std::int64_t t = 0; t < num_rows; ++t) {
    for (std::int64_t e = 0; e < columns; ++e) logits.push_back(draw_logit(seed, t, e));
  }
  return logits;
}

}  // namespace samebits::cuda::test
