#include "properties/generators/hazards.h"

#include <algorithm>
#include <array>
#include <vector>

#include "properties/generators/hazard_parts.h"

namespace samebits::properties {

using oracle::RouterSpec;

std::span<const Hazard> all_hazards() {
  static const std::vector<Hazard> all = [] {
    std::vector<Hazard> hazards(general_hazards().begin(), general_hazards().end());
    hazards.insert(hazards.end(), feature_hazards().begin(), feature_hazards().end());
    hazards.insert(hazards.end(), edge_hazards().begin(), edge_hazards().end());
    hazards.insert(hazards.end(), constant_hazards().begin(), constant_hazards().end());
    return hazards;
  }();
  return all;
}

bool possible(const Hazard& hazard, const RouterSpec& spec, const GenerateOptions& options) {
  if (!hazard.applies(spec)) return false;
  if (hazard.stage == HazardStage::kFull) return options.full_stage;
  if (hazard.stage == HazardStage::kGivenOnly) return options.logits_stage;
  if (hazard.stage == HazardStage::kBias) return options.full_stage || has_selection_bias(spec);
  return true;
}

Stage stage_of(const Hazard& hazard, const GenerateOptions& options, const Draw& draw) {
  if (!options.logits_stage) return Stage::kFull;
  if (!options.full_stage) return Stage::kFromLogits;
  switch (hazard.stage) {
    case HazardStage::kFull:
    case HazardStage::kBias:
      return Stage::kFull;
    case HazardStage::kLogits:
      // A few go through the gate weight, so that the whole path meets them too.
      return choose(draw, 32, 16) == 15 ? Stage::kFull : Stage::kFromLogits;
    case HazardStage::kGivenOnly:
      return Stage::kFromLogits;
    case HazardStage::kAny:
      break;
  }
  return choose(draw, 32, 8) == 7 ? Stage::kFromLogits : Stage::kFull;
}

CaseDescription describe(const Hazard& hazard, const RouterSpec& spec, const GenerateOptions& options,
                         const Draw& draw) {
  CaseDescription d;
  d.hazard = hazard.label;
  d.stage = stage_of(hazard, options, draw);
  d.num_tokens = options.max_tokens > 0 ? std::min(draw.num_tokens, options.max_tokens) : draw.num_tokens;
  d.hidden_size = d.stage == Stage::kFull ? oracle::hidden_size(spec) : 0;
  d.num_experts = oracle::num_experts(spec);
  d.top_k = oracle::top_k(spec);
  d.n_group = spec.selection.n_group;
  d.topk_group = spec.selection.topk_group;
  d.zero_experts = spec.special.zero_experts;
  d.shared_in_gate = oracle::shared_in_gate(spec);
  if (has_table(spec)) {
    constexpr std::array<std::int64_t, 4> kVocabularies = {64, 97, 256, 512};
    d.vocab_size = std::min(kVocabularies[choose(draw, 56, kVocabularies.size())], spec.hash.vocab_size.value());
    d.token_ids_int32 = choose(draw, 0, 2) == 1;
  }
  if (choose(draw, 56, 8) == 7) d.row_classes = RowClassFamily::kAbsent;
  if (choose(draw, 0, 4) == 3) d.scales = ScaleFamily::kWideExponent;
  if (d.stage == Stage::kFull) {
    if (hazard.stage == HazardStage::kLogits) {
      d.hidden = HiddenFamily::kUnitRows;
      d.weight = WeightFamily::kLogits;
      d.gate_weight_dtype = oracle::FloatType::kFp32;  // bf16 could not hold steps of one ulp
    } else if (choose(draw, 40, 16) == 15) {
      d.gate_weight_dtype = oracle::FloatType::kFp32;
    }
  }
  hazard.build(spec, draw, d);
  if (options.max_tokens > 0) d.num_tokens = std::min(d.num_tokens, options.max_tokens);
  if (choose(draw, 48, 16) == 15 && !d.num_valid_rows) d.num_valid_rows = static_cast<std::int32_t>(d.num_tokens / 2);
  return d;
}

}  // namespace samebits::properties
