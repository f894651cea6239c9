// The rules of sizes, gate, scores and selection: a failing example for each, and that it names the field.
#include "oracle/test/spec_rules.h"

#include <limits>

namespace samebits::oracle {
namespace {

TEST(SpecRules, AMinimalSpecHasNoProblem) {
  EXPECT_TRUE(find_problems(minimal()).empty());
}

class SpecRule : public testing::TestWithParam<Rule> {};

TEST_P(SpecRule, NamesTheField) {
  expect_problems(GetParam());
}

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

const Rule kRules[] = {
    {"no_name", {"name"}, [](RouterSpec& s) { s.name.clear(); }},
    {"bad_name", {"name"}, [](RouterSpec& s) { s.name = "a b"; }},
    {"no_num_experts", {"shape.num_experts"}, [](RouterSpec& s) { s.shape.num_experts.reset(); }},
    {"no_top_k", {"shape.top_k"}, [](RouterSpec& s) { s.shape.top_k.reset(); }},
    {"no_hidden_size", {}, [](RouterSpec& s) { s.shape.hidden_size.reset(); }},
    {"zero_experts_in_all", {"shape.num_experts"}, [](RouterSpec& s) { s.shape.num_experts = 0; }},
    {"too_many_experts", {"shape.num_experts"}, [](RouterSpec& s) { s.shape.num_experts = 65537; }},
    {"most_experts", {}, [](RouterSpec& s) { s.shape.num_experts = 65536; }},
    {"most_top_k",
     {},
     [](RouterSpec& s) {
       s.shape.num_experts = 65536;
       s.shape.top_k = 1024;
     }},
    {"more_than_most_top_k",
     {"shape.top_k"},
     [](RouterSpec& s) {
       s.shape.num_experts = 65536;
       s.shape.top_k = 1025;
     }},
    {"zero_top_k", {"shape.top_k"}, [](RouterSpec& s) { s.shape.top_k = 0; }},
    {"top_k_is_all", {}, [](RouterSpec& s) { s.shape.top_k = 8; }},
    {"top_k_past_experts", {"shape.top_k"}, [](RouterSpec& s) { s.shape.top_k = 9; }},
    {"zero_hidden_size", {"shape.hidden_size"}, [](RouterSpec& s) { s.shape.hidden_size = 0; }},
    {"more_moe_layers_than_layers",
     {"shape.num_moe_layers"},
     [](RouterSpec& s) {
       s.shape.num_layers = 3;
       s.shape.num_moe_layers = 4;
     }},
    {"enum_out_of_range", {"score.func"}, [](RouterSpec& s) { s.score.func = static_cast<ScoreFunc>(9); }},

    {"groups", {}, grouped},
    {"groups_do_not_divide",
     {"selection.n_group"},
     [](RouterSpec& s) {
       grouped(s);
       s.selection.n_group = 3;
     }},
    {"more_groups_than_experts",
     {"selection.n_group"},
     [](RouterSpec& s) {
       grouped(s);
       s.selection.n_group = 16;
     }},
    {"zero_groups", {"selection.n_group"}, [](RouterSpec& s) { s.selection.n_group = 0; }},
    {"more_kept_groups_than_groups",
     {"selection.topk_group"},
     [](RouterSpec& s) {
       grouped(s);
       s.selection.topk_group = 5;
     }},
    {"kept_groups_without_groups", {"selection.topk_group"}, [](RouterSpec& s) { s.selection.topk_group = 2; }},
    {"kept_groups_too_small",
     {"shape.top_k"},
     [](RouterSpec& s) {
       grouped(s);
       s.shape.top_k = 5;
     }},
    {"kept_groups_exactly_filled",
     {},
     [](RouterSpec& s) {
       grouped(s);
       s.shape.top_k = 4;
     }},
    {"groups_without_score",
     {"selection.group_score"},
     [](RouterSpec& s) {
       grouped(s);
       s.selection.group_score = GroupScore::kNone;
     }},
    {"groups_without_mask",
     {"selection.group_mask"},
     [](RouterSpec& s) {
       grouped(s);
       s.selection.group_mask = GroupMask::kNone;
     }},
    {"score_without_groups",
     {"selection.group_score"},
     [](RouterSpec& s) { s.selection.group_score = GroupScore::kMax; }},
    {"mask_without_groups", {"selection.group_mask"}, [](RouterSpec& s) { s.selection.group_mask = GroupMask::kZero; }},
    {"top2_of_groups_of_one",
     {"selection.group_score"},
     [](RouterSpec& s) {
       grouped(s);
       s.selection.n_group = 8;
     }},
    {"max_of_groups_of_one",
     {},
     [](RouterSpec& s) {
       grouped(s);
       s.selection.n_group = 8;
       s.selection.group_score = GroupScore::kMax;
     }},
    {"per_group", {}, per_group},
    {"per_group_does_not_divide",
     {"selection.n_group"},
     [](RouterSpec& s) {
       per_group(s);
       s.shape.top_k = 3;
     }},
    {"per_group_rejects_a_group",
     {"selection.topk_group"},
     [](RouterSpec& s) {
       per_group(s);
       s.selection.topk_group = 1;
     }},
    {"per_group_with_score_and_mask",
     {"selection.group_score", "selection.group_mask"},
     [](RouterSpec& s) {
       per_group(s);
       s.selection.group_score = GroupScore::kMax;
       s.selection.group_mask = GroupMask::kZero;
     }},

    {"after_topk_by_score", {"selection.rank_by"}, [](RouterSpec& s) { s.score.stage = ScoreStage::kAfterTopk; }},
    {"after_topk_with_bias",
     {"selection.bias"},
     [](RouterSpec& s) {
       s.score.stage = ScoreStage::kAfterTopk;
       s.selection.rank_by = RankBy::kLogit;
       s.selection.bias = BiasType::kFp32;
     }},
    {"before_topk_by_logit", {}, [](RouterSpec& s) { s.selection.rank_by = RankBy::kLogit; }},
    {"norm_without_eps",
     {"gate.input_norm_eps"},
     [](RouterSpec& s) { s.gate.input_norm = InputNorm::kRmsnormUnweighted; }},
    {"input_scale_by_the_hidden_size",
     {},
     [](RouterSpec& s) { s.gate.input_scale_kind = InputScale::kRsqrtHiddenSizeBf16; }},
    {"input_scale_zero", {"gate.input_scale"}, [](RouterSpec& s) { s.gate.input_scale = 0.0; }},
    {"input_scale_is_bf16_and_a_factor",
     {"gate.input_scale"},
     [](RouterSpec& s) {
       s.gate.input_scale = 2.0;
       s.gate.input_scale_kind = InputScale::kRsqrtHiddenSizeBf16;
     }},
    {"norm_with_eps",
     {},
     [](RouterSpec& s) {
       s.gate.input_norm = InputNorm::kRmsnormUnweighted;
       s.gate.input_norm_eps = 1e-6;
     }},
    {"input_scale_is_two_things",
     {"gate.input_scale"},
     [](RouterSpec& s) {
       s.gate.input_scale = 2.0;
       s.gate.input_scale_kind = InputScale::kRsqrtHiddenSize;
     }},
    {"temperature_zero", {"logits.temperature"}, [](RouterSpec& s) { s.logits.temperature = 0.0; }},
    {"temperature_nan", {"logits.temperature"}, [](RouterSpec& s) { s.logits.temperature = kNan; }},
    {"softcap_zero", {"logits.softcap"}, [](RouterSpec& s) { s.logits.softcap = 0.0; }},
    {"no_bias_variant", {"selection.bias_variants"}, [](RouterSpec& s) { s.selection.bias_variants.clear(); }},
    {"repeated_bias_variant",
     {"selection.bias_variants"},
     [](RouterSpec& s) {
       s.selection.bias_variants = {"text", "text"};
     }},
};

INSTANTIATE_TEST_SUITE_P(All, SpecRule, testing::ValuesIn(kRules), [](const auto& rule) { return rule.param.name; });

TEST(SpecRules, AProblemOfTheBaseIsReportedWhereTheFieldIsGiven) {
  EXPECT_THAT(parse_error("name: r\nshape:\n  num_experts: 8\n  top_k: 9\n"),
              testing::StartsWith("f.yaml:4:10: shape.top_k: found 9; allowed: 1 .. 8 (shape.num_experts);"));
}

TEST(SpecRules, AProblemOfAFieldThatIsNotGivenIsReportedAtItsSection) {
  EXPECT_THAT(parse_error(kMinimal + "selection:\n  n_group: 2\n"),
              testing::HasSubstr("f.yaml:5:1: selection.group_score: found none; allowed: max | top2_sum"));
}

}  // namespace
}  // namespace samebits::oracle
