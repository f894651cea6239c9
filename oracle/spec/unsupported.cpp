// What a valid spec may ask for that this program refuses, by name.
#include "oracle/spec/field.h"
#include "oracle/spec/text.h"
#include "oracle/spec/validate.h"

namespace samebits::oracle {
namespace {

std::string hash_table_reason(const RouterSpec& spec) {
  std::string text = "hash_table selection";
  if (spec.hash.layers.empty()) return text;
  std::vector<std::string> layers;
  for (const std::int64_t layer : spec.hash.layers) layers.push_back(std::to_string(layer));
  return text + " (layers " + yaml::join(layers, ", ") + "); choose a top-k layer with --layer";
}

}  // namespace

std::optional<std::string> unsupported_reason(const RouterSpec& spec) {
  if (spec.capacity == Capacity::kBatchDependent) {
    return "refused by design: capacity: batch_dependent makes a row depend on the rows beside it, so no answer for "
           "the "
           "row alone exists; route without a capacity bound (capacity: none)";
  }
  const auto value = [&spec](const char* path) {
    return std::string(path) + " " + yaml::find_field(path)->write(spec);
  };
  std::string what;
  if (spec.selection.method == SelectionMethod::kSparsemixer) {
    what = "sparsemixer";
  } else if (spec.selection.method == SelectionMethod::kHashTable) {
    what = hash_table_reason(spec);
  } else if (spec.gate.input_norm != InputNorm::kNone) {
    what = value("gate.input_norm");
  } else if (spec.gate.input_scale_vector) {
    what = "gate.input_scale_vector";
  } else if (spec.gate.input_scale != 1.0 || spec.gate.input_scale_rsqrt_hidden_size) {
    what = value("gate.input_scale");
  } else if (spec.logits.temperature != 1.0) {
    what = value("logits.temperature");
  } else if (spec.logits.softcap) {
    what = value("logits.softcap");
  } else if (spec.score.func == ScoreFunc::kIdentity) {
    what = "score.func identity";
  } else if (spec.selection.bias != BiasType::kNone && spec.selection.bias_variants.size() > 1) {
    what = value("selection.bias_variants");
  } else if (spec.selection.topk_scope == TopkScope::kPerGroup) {
    what = "selection.topk_scope per_group";
  } else if (spec.weights.source == WeightSource::kBiasedScore) {
    what = "weights.source biased_score";
  } else if (spec.weights.renormalize == Renormalize::kLogSpaceL1) {
    what = "weights.renormalize log_space_l1";
  } else if (spec.weights.per_expert_scale) {
    what = "weights.per_expert_scale";
  } else if (spec.weights.global_scale) {
    what = "weights.global_scale";
  } else if (spec.special.shared_mode == SharedMode::kInGate || spec.special.shared_mode == SharedMode::kFusedIds) {
    what = value("special.shared_mode");
  } else if (spec.special.zero_experts > 0) {
    what = value("special.zero_experts");
  } else if (spec.outputs.pad_id != -1) {
    what = value("outputs.pad_id") + " (padding rows get -1)";
  } else {
    return std::nullopt;
  }
  return "not implemented yet: " + what;
}

}  // namespace samebits::oracle
