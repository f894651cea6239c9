#include "harness/witness/reading.h"

namespace samebits::harness {

using oracle::RouterSpec;

std::vector<WrongReading> wrong_readings(const Reading& right) {
  std::vector<WrongReading> result;
  const auto add = [&](bool applies, const char* rule, const auto& change) {
    if (!applies) return;
    result.push_back({rule, right});
    change(result.back().reading.spec);
  };
  const RouterSpec& spec = right.spec;
  using oracle::Renormalize;
  const bool scores_first = spec.score.stage == oracle::ScoreStage::kBeforeTopk &&
                            spec.selection.method != oracle::SelectionMethod::kSparsemixer;
  add(spec.selection.bias != oracle::BiasType::kNone, "no bias",
      [](RouterSpec& s) { s.selection.bias = oracle::BiasType::kNone; });
  add(spec.gate.linear_bias != oracle::BiasType::kNone, "no linear bias",
      [](RouterSpec& s) { s.gate.linear_bias = oracle::BiasType::kNone; });
  add(spec.weights.renormalize == Renormalize::kL1 && oracle::top_k(spec) > 1, "not renormalised",
      [](RouterSpec& s) { s.weights.renormalize = Renormalize::kNone; });
  add(spec.weights.renormalize == Renormalize::kNone && scores_first, "renormalised",
      [](RouterSpec& s) { s.weights.renormalize = Renormalize::kL1; });
  add(spec.selection.n_group > 1, "no groups", [](RouterSpec& s) {
    s.selection.n_group = s.selection.topk_group = 1;
    s.selection.group_score = oracle::GroupScore::kNone;
    s.selection.group_mask = oracle::GroupMask::kNone;
  });
  add(spec.weights.routed_scaling_factor != 1.0 && spec.weights.scale_stage != oracle::ScaleStage::kOnExpertOutput,
      "no scale", [](RouterSpec& s) { s.weights.routed_scaling_factor = 1.0; });
  add(spec.weights.per_expert_scale, "no scale of the expert",
      [](RouterSpec& s) { s.weights.per_expert_scale = false; });
  add(spec.weights.global_scale, "no global scale", [](RouterSpec& s) { s.weights.global_scale = false; });
  add(spec.logits.softcap.has_value(), "no softcap", [](RouterSpec& s) { s.logits.softcap.reset(); });
  add(spec.sparsemixer_jitter_eps.has_value(), "a threshold ten times as wide",
      [](RouterSpec& s) { *s.sparsemixer_jitter_eps *= 10; });
  add(spec.score.func == oracle::ScoreFunc::kSqrtSoftplus, "sigmoid",
      [](RouterSpec& s) { s.score.func = oracle::ScoreFunc::kSigmoid; });
  add(spec.score.stage == oracle::ScoreStage::kAfterTopk && spec.score.func == oracle::ScoreFunc::kSigmoid, "softmax",
      [](RouterSpec& s) { s.score.func = oracle::ScoreFunc::kSoftmax; });
  add(spec.score.stage == oracle::ScoreStage::kAfterTopk && spec.score.func == oracle::ScoreFunc::kSoftmax,
      "softmax over all", [](RouterSpec& s) { s.score.stage = oracle::ScoreStage::kBeforeTopk; });
  return result;
}

std::vector<WrongReading> wrong_preparations(const Reading& right) {
  std::vector<WrongReading> result;
  if (right.spec.gate.input_norm != oracle::InputNorm::kNone) {
    result.push_back({"no input norm", right});
    result.back().reading.spec.gate.input_norm = oracle::InputNorm::kNone;
  }
  if (right.spec.gate.input_scale_vector) {
    result.push_back({"no vector on the input", right});
    result.back().reading.spec.gate.input_scale_vector = false;
  }
  if (right.spec.gate.input_scale_kind != oracle::InputScale::kFactor || right.spec.gate.input_scale != 1.0) {
    result.push_back({"no factor on the input", right});
    result.back().reading.spec.gate.input_scale_kind = oracle::InputScale::kFactor;
    result.back().reading.spec.gate.input_scale = 1.0;
  }
  return result;
}

}  // namespace samebits::harness
