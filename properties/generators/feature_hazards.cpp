// Hazards of features that only some routers have.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "properties/generators/hazard_parts.h"

namespace samebits::properties {
namespace {

using oracle::RouterSpec;

constexpr std::uint32_t kLeastInt32 = 0x80000000u;
constexpr std::uint32_t kGreatestInt32 = 0x7fffffffu;
constexpr std::uint32_t kLargestFp32 = 0x7f7fffffu;
constexpr std::uint32_t kLeastSubnormal = 0x00000001u;

bool has_softcap(const RouterSpec& spec) {
  return spec.logits.softcap.has_value();
}
bool has_row_classes(const RouterSpec& spec) {
  return has_selection_bias(spec) && spec.selection.bias_variants.size() > 1;
}
bool has_zero_experts(const RouterSpec& spec) {
  return spec.special.zero_experts > 0;
}
bool has_shared_in_gate(const RouterSpec& spec) {
  return oracle::shared_in_gate(spec) > 0;
}
bool has_learned_scale(const RouterSpec& spec) {
  return spec.weights.per_expert_scale || spec.weights.global_scale;
}

// tanh rounds to 1 from 9.01 c on; a ratio of exponentials overflows from 44.4 c or 88.7 c on.
void softcap(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  d.hidden = HiddenFamily::kUnitRows;
  d.weight = WeightFamily::kLogits;
  d.gate_weight_dtype = oracle::FloatType::kFp32;
  constexpr std::array<float, 4> kSpreads = {60.0f, 3.0f, 0.5f, 10.0f};
  logits(d, LogitsFamily::kNormal, 0.0f,
         kSpreads[choose(draw, 16, kSpreads.size())] * static_cast<float>(spec.logits.softcap.value()));
  no_bias(d);
}

void row_classes(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  d.row_classes = RowClassFamily::kEdges;
  const auto classes = static_cast<std::uint32_t>(spec.selection.bias_variants.size());
  const std::array<std::uint32_t, 6> values = {0, classes - 1, classes, 0xffffffffu, kGreatestInt32, kLeastInt32};
  for (std::size_t i = 0; i < values.size(); ++i) {
    plant(d, TensorId::kRowClass, static_cast<std::int64_t>(i), 0, values[i]);
  }
  usual_bias(spec, draw, d);
}

void token_edges(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  d.tokens = TokenFamily::kEdges;
  const auto vocab = static_cast<std::uint32_t>(d.vocab_size);
  const std::array<std::uint32_t, 9> values = {0,           vocab - 1, vocab,     0xffffffffu, kGreatestInt32,
                                               kLeastInt32, vocab / 2, vocab / 2, vocab / 2};
  for (std::size_t i = 0; i < values.size(); ++i) {
    plant(d, TensorId::kTokenIds, static_cast<std::int64_t>(i), 0, values[i]);
  }
  usual_bias(spec, draw, d);
}

// The vocabulary of the spec, up to what takes a second to generate.
void own_vocabulary(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  constexpr std::int64_t kMaxDraws = std::int64_t{1} << 26, kMaxIds = std::int64_t{1} << 22;
  const std::int64_t most = std::min(kMaxDraws / oracle::ranked_experts(spec), kMaxIds / d.top_k);
  d.vocab_size = std::clamp(most, std::int64_t{1}, spec.hash.vocab_size.value());
  plant(d, TensorId::kTokenIds, 0, 0, static_cast<std::uint32_t>(d.vocab_size - 1));
  plant(d, TensorId::kTokenIds, 1, 0, static_cast<std::uint32_t>(d.vocab_size));
  usual_bias(spec, draw, d);
}

// A few experts with a large logit, hardly ever those in the table, whose scores underflow.
void table_underflow(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  logits(d, LogitsFamily::kSparse, -300.0f, 310.0f);
  d.token_ids_int32 = true;
  usual_bias(spec, draw, d);
}

// None, only and half zero experts among the chosen; the other rows as they come.
void zero_experts(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  const std::int64_t all_zero = std::min(d.top_k, d.zero_experts);
  const std::array<std::int64_t, 4> chosen = {0, all_zero, all_zero / 2, 1};
  for (std::size_t row = 0; row < chosen.size(); ++row) {
    for (std::int64_t i = 0; i < d.top_k; ++i) {
      const std::int64_t zero = d.num_experts + (i * 7 + static_cast<std::int64_t>(row)) % d.zero_experts;
      const std::int64_t routed = (i * 5 + static_cast<std::int64_t>(row)) % d.num_experts;
      plant_logit(d, static_cast<std::int64_t>(row), i < chosen[row] ? zero : routed,
                  20.0f - 0.25f * static_cast<float>(i));
    }
  }
  usual_bias(spec, draw, d);
}

// Shared experts that dominate the sum, vanish in it, or are all that is left of it.
void shared_in_gate(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  const std::int64_t first = d.num_experts + d.zero_experts;
  const auto shared = [&](std::int64_t row, float value) {
    for (std::int64_t i = 0; i < d.shared_in_gate; ++i) {
      plant_logit(d, row, first + i, value + 0.5f * static_cast<float>(i));
    }
  };
  shared(0, 30.0f);
  shared(1, -200.0f);
  plant_logit(d, 2, -1, -120.0f);
  shared(2, 30.0f);
  plant_logit(d, 3, -1, -120.0f);
  shared(3, -200.0f);
  plant_logit(d, 4, -1, -1e4f);
  shared(4, -1e30f);
  shared(5, 1e30f);
  usual_bias(spec, draw, d);
}

void learned_scales(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  usual_bias(spec, draw, d);
  const std::array<std::uint32_t, 8> values = {
      0xbfc00000u, kNaN, kInf, kNegativeInf, kNegativeZero, 0x00000000u, kLeastSubnormal, kLargestFp32};
  if (spec.weights.per_expert_scale) {
    const std::int64_t ids = d.num_experts + d.zero_experts + d.shared_in_gate;
    const auto count = static_cast<std::int64_t>(values.size());
    for (std::int64_t i = 0; i < count; ++i) {
      plant(d, TensorId::kPerExpertScale, 0, i * ids / count, values[static_cast<std::size_t>(i)]);
    }
  }
  if (spec.weights.global_scale) plant(d, TensorId::kGlobalScale, 0, 0, values[choose(draw, 16, values.size())]);
}

// Rows whose norm is 0, overflows, underflows or is one value; a scale vector with zeros.
void prepared_input(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  constexpr std::array<std::uint32_t, 6> kRows = {0x00000000u, kNegativeZero, kLargestBf16,
                                                  0x00010000u, 0x1c800000u,   0x5f800000u};
  for (std::size_t i = 0; i < kRows.size(); ++i) {
    plant(d, TensorId::kHiddenStates, static_cast<std::int64_t>(i), -1, kRows[i]);
  }
  plant(d, TensorId::kHiddenStates, 6, d.hidden_size / 2, kLargestBf16);
  usual_bias(spec, draw, d);
  if (!spec.gate.input_scale_vector) return;
  constexpr std::array<std::uint32_t, 5> kScales = {0x00000000u, kNegativeZero, kLeastSubnormal, 0xc0000000u,
                                                    kLargestFp32};
  for (std::size_t i = 0; i < kScales.size(); ++i) {
    plant(d, TensorId::kInputScaleVector, 0, static_cast<std::int64_t>(i) * d.hidden_size / 8, kScales[i]);
  }
}

void non_finite_scale_vector(const RouterSpec& spec, const Draw& draw, CaseDescription& d) {
  constexpr std::array<std::uint32_t, 3> kScales = {kNaN, kInf, kNegativeInf};
  plant(d, TensorId::kInputScaleVector, 0, d.hidden_size / 2, kScales[choose(draw, 16, kScales.size())]);
  plant(d, TensorId::kHiddenStates, 1, d.hidden_size / 2, 0x00000000u);  // Inf * 0
  usual_bias(spec, draw, d);
}

// A logit below t whose distance (t - z) / max(|z|, t) is `steps` fp32 steps from the threshold, for a t near `start`;
// false: none was found.
bool at_threshold(float start, float threshold, int steps, float& t, float& z) {
  float wanted = threshold;
  for (int i = 0; i < std::abs(steps); ++i) wanted = std::nextafter(wanted, steps > 0 ? 1.0f : 0.0f);
  for (int i = 0; i < 4096; ++i) {
    t = start * (1.0f + static_cast<float>(i) * 0x1p-14f);
    const float guess = t > 0.0f ? t - threshold * t : t / (1.0f - threshold);
    const float slack = 4.0f * std::fabs(guess) * 0x1p-23f;
    z = guess - slack;
    while (z <= guess + slack) {
      if ((t - z) / std::max(std::fabs(z), t) == wanted) return true;
      z = std::nextafter(z, std::numeric_limits<float>::infinity());
    }
  }
  return false;
}

// Pairs at the threshold, one step above and one below, met in the first pass (even rows) or in the second.
void sparsemixer_threshold(const RouterSpec& spec, const Draw&, CaseDescription& d) {
  logits(d, LogitsFamily::kNormal, -40.0f, 1.0f);
  const float threshold = 2.0f * static_cast<float>(spec.sparsemixer_jitter_eps.value());
  constexpr std::array<float, 3> kStarts = {1.5f, 11.0f, -3.0f};
  for (std::int64_t row = 0; row < 18; ++row) {
    float t = 0.0f, z = 0.0f;
    const int steps = static_cast<int>(row / 2 % 3) - 1;
    if (!at_threshold(kStarts[static_cast<std::size_t>(row / 6)], threshold, steps, t, z)) continue;
    const std::int64_t first = row % d.num_experts;
    plant_logit(d, row, first, t);
    plant_logit(d, row, (first + 5) % d.num_experts, z);
    if (row % 2 == 1) plant_logit(d, row, (first + 9) % d.num_experts, 50.0f);
  }
  no_bias(d);
}

constexpr std::array kHazards = {
    Hazard{"softcap", HazardStage::kFull, has_softcap, 16, 6, softcap},
    Hazard{"row_classes", HazardStage::kAny, has_row_classes, 24, 6, row_classes},
    Hazard{"token_edges", HazardStage::kAny, has_table, 64, 8, token_edges},
    Hazard{"own_vocabulary", HazardStage::kLogits, has_table, 8, 0, own_vocabulary},
    Hazard{"table_underflow", HazardStage::kLogits, has_table, 16, 6, table_underflow},
    Hazard{"zero_experts", HazardStage::kLogits, has_zero_experts, 12, 6, zero_experts},
    Hazard{"shared_in_gate", HazardStage::kLogits, has_shared_in_gate, 12, 6, shared_in_gate},
    Hazard{"learned_scales", HazardStage::kAny, has_learned_scale, 32, 6, learned_scales},
    Hazard{"prepared_input", HazardStage::kFull, oracle::prepares_input, 10, 6, prepared_input},
    Hazard{"non_finite_scale_vector", HazardStage::kFull,
           [](const RouterSpec& spec) { return spec.gate.input_scale_vector; }, 4, 2, non_finite_scale_vector},
    Hazard{"sparsemixer_threshold", HazardStage::kLogits, is_sparsemixer, 18, 8, sparsemixer_threshold},
};

}  // namespace

std::span<const Hazard> feature_hazards() {
  return kHazards;
}

}  // namespace samebits::properties
