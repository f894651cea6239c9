// What a valid spec may ask for that is refused, and that everything else is not.
#include "oracle/test/spec_rules.h"

namespace samebits::oracle {
namespace {

TEST(SpecUnsupported, EachIsRefusedByName) {
  RouterSpec fused = minimal();
  fused.special.shared_experts = 1;
  fused.special.shared_mode = SharedMode::kFusedIds;
  EXPECT_TRUE(find_problems(fused).empty());
  EXPECT_THAT(unsupported_reason(fused).value_or(""),
              testing::StartsWith("not implemented: special.shared_mode fused_ids (which id a fused shared expert"));
  RouterSpec padded = minimal();
  padded.outputs.pad_id = -2;
  EXPECT_TRUE(find_problems(padded).empty());
  EXPECT_EQ(unsupported_reason(padded), "not implemented: outputs.pad_id -2 (padding rows get -1); set it to -1");
}

TEST(SpecUnsupported, CapacityIsRefusedByDesignWithTheReason) {
  RouterSpec spec = minimal();
  spec.capacity = Capacity::kBatchDependent;
  EXPECT_THAT(unsupported_reason(spec).value_or(""),
              testing::AllOf(testing::StartsWith("refused by design: capacity: batch_dependent"),
                             testing::HasSubstr("depend on the rows beside it")));
}

TEST(SpecUnsupported, WhatThePipelineCoversIsNotRefused) {
  void (*const changes[])(RouterSpec&) = {
      [](RouterSpec&) {},
      [](RouterSpec& s) { s.score.func = ScoreFunc::kSigmoid; },
      [](RouterSpec& s) { s.score.func = ScoreFunc::kSqrtSoftplus; },
      [](RouterSpec& s) { s.selection.bias = BiasType::kFp32; },
      [](RouterSpec& s) { s.selection.bias = BiasType::kBf16; },
      [](RouterSpec& s) {
        s.selection.bias = BiasType::kFp32;
        s.selection.bias_variants = {"text", "image"};
      },
      [](RouterSpec& s) {
        s.selection.bias_variants = {"text", "image"};
      },  // no bias: one class in effect
      grouped,
      per_group,
      sparsemixer,
      hash_table,
      zero_experts,
      shared_in_the_gate,
      log_space,
      biased,
      [](RouterSpec& s) {
        s.gate.input_norm = InputNorm::kRmsnormUnweighted;
        s.gate.input_norm_eps = 1e-6;
      },
      [](RouterSpec& s) { s.gate.input_scale_vector = true; },
      [](RouterSpec& s) { s.gate.input_scale = 2.0; },
      [](RouterSpec& s) { s.gate.input_scale_kind = InputScale::kRsqrtHiddenSize; },
      [](RouterSpec& s) { s.gate.input_scale_kind = InputScale::kRsqrtHiddenSizeBf16; },
      [](RouterSpec& s) { s.logits.temperature = 0.5; },
      [](RouterSpec& s) { s.logits.softcap = 30.0; },
      [](RouterSpec& s) { s.score.func = ScoreFunc::kIdentity; },
      [](RouterSpec& s) { s.weights.per_expert_scale = true; },
      [](RouterSpec& s) { s.weights.global_scale = true; },
      [](RouterSpec& s) {
        grouped(s);
        s.selection.group_score = GroupScore::kMax;
        s.selection.group_mask = GroupMask::kZero;
      },
      [](RouterSpec& s) { s.selection.rank_by = RankBy::kLogit; },
      [](RouterSpec& s) {
        s.score.stage = ScoreStage::kAfterTopk;
        s.selection.rank_by = RankBy::kLogit;
      },
      [](RouterSpec& s) { s.selection.sort = SlotOrder::kByIndex; },
      [](RouterSpec& s) {
        s.weights.renormalize = Renormalize::kL1;
        s.weights.eps = 1e-20;
        s.weights.eps_mode = EpsMode::kAdd;
      },
      [](RouterSpec& s) { s.weights.scale_stage = ScaleStage::kBeforeDivide; },
      [](RouterSpec& s) { s.weights.scale_stage = ScaleStage::kOnExpertOutput; },
      [](RouterSpec& s) { s.gate.linear_bias = BiasType::kBf16; },
      [](RouterSpec& s) { s.gate.logits_dtype = FloatType::kBf16; },
      [](RouterSpec& s) { s.score.dtype = FloatType::kBf16; },
      [](RouterSpec& s) { s.weights.dtype = FloatType::kBf16; },
      [](RouterSpec& s) { s.weights.apply_to = ApplyTo::kExpertInput; },
      [](RouterSpec& s) {
        s.special.shared_experts = 2;
        s.special.shared_mode = SharedMode::kOutsideRouterSigmoidGate;
      },
      [](RouterSpec& s) { s.hash.layers = {0}; },  // this layer is not one of them
      [](RouterSpec& s) { s.sparsemixer_jitter_eps = 0.01; },
  };
  for (auto* change : changes) {
    RouterSpec spec = minimal();
    change(spec);
    EXPECT_TRUE(find_problems(spec).empty()) << to_yaml(spec);
    EXPECT_EQ(unsupported_reason(spec), std::nullopt) << to_yaml(spec);
  }
}

}  // namespace
}  // namespace samebits::oracle
