// The rules between fields: a failing example for each, and that it names the field.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "oracle/spec/validate.h"
#include "oracle/test/spec_testing.h"

namespace samebits::oracle {
namespace {

RouterSpec minimal() {
  return parse_spec(kMinimal, "f.yaml").base;
}

std::vector<std::string> paths_of(const std::vector<Problem>& problems) {
  std::vector<std::string> paths;
  paths.reserve(problems.size());
  for (const Problem& problem : problems) paths.push_back(problem.path);
  return paths;
}

TEST(SpecRules, AMinimalSpecHasNoProblem) {
  EXPECT_TRUE(find_problems(minimal()).empty());
}

struct Rule {
  const char* name;
  std::vector<std::string> paths;  // of the problems, in order; empty: valid
  void (*change)(RouterSpec&);     // of minimal(): E = 8, k = 2
};

void PrintTo(const Rule& rule, std::ostream* stream) {
  *stream << rule.name;
}

class SpecRule : public testing::TestWithParam<Rule> {};

TEST_P(SpecRule, NamesTheField) {
  RouterSpec spec = minimal();
  GetParam().change(spec);
  const std::vector<Problem> problems = find_problems(spec);
  EXPECT_EQ(paths_of(problems), GetParam().paths);
  for (const Problem& problem : problems) {
    EXPECT_THAT(problem.message, testing::MatchesRegex("found .*; allowed: .*; .+")) << problem.path;
  }
}

void grouped(RouterSpec& s) {
  s.selection.n_group = 4;
  s.selection.topk_group = 2;
  s.selection.group_score = GroupScore::kTop2Sum;
  s.selection.group_mask = GroupMask::kNegInf;
}

void per_group(RouterSpec& s) {
  s.selection.n_group = 2;
  s.selection.topk_group = 2;
  s.selection.topk_scope = TopkScope::kPerGroup;
}

void sparsemixer(RouterSpec& s) {
  s.selection.method = SelectionMethod::kSparsemixer;
  s.selection.rank_by = RankBy::kLogit;
  s.sparsemixer_jitter_eps = 0.01;
}

void hash_table(RouterSpec& s) {
  s.selection.method = SelectionMethod::kHashTable;
  s.hash.vocab_size = 100;
  s.hash.table_dtype = TableType::kInt32;
}

void zero_experts(RouterSpec& s) {
  s.special.zero_experts = 4;
  s.special.zero_type = ZeroType::kIdentity;
}

void shared_in_the_gate(RouterSpec& s) {
  s.score.func = ScoreFunc::kSigmoid;
  s.special.shared_experts = 2;
  s.special.shared_mode = SharedMode::kInGate;
}

void log_space(RouterSpec& s) {
  s.score.func = ScoreFunc::kSigmoid;
  s.weights.renormalize = Renormalize::kLogSpaceL1;
}

void biased(RouterSpec& s) {
  s.selection.bias = BiasType::kFp32;
  s.weights.source = WeightSource::kBiasedScore;
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

    {"eps_without_mode", {"weights.eps"}, [](RouterSpec& s) { s.weights.eps = 1e-20; }},
    {"mode_without_eps", {"weights.eps"}, [](RouterSpec& s) { s.weights.eps_mode = EpsMode::kClampMin; }},
    {"eps_negative", {"weights.eps"}, [](RouterSpec& s) { s.weights.eps = -1e-20; }},
    {"eps_zero_in_fp32",
     {"weights.eps"},
     [](RouterSpec& s) {
       s.weights.eps = 1e-46;
       s.weights.eps_mode = EpsMode::kAdd;
     }},
    {"eps_subnormal_in_fp32",
     {},
     [](RouterSpec& s) {
       s.weights.eps = 1e-44;
       s.weights.eps_mode = EpsMode::kAdd;
     }},
    {"scale_zero", {}, [](RouterSpec& s) { s.weights.routed_scaling_factor = 0.0; }},
    {"scale_minus_zero",
     {"weights.routed_scaling_factor"},
     [](RouterSpec& s) { s.weights.routed_scaling_factor = -0.0; }},
    {"scale_negative",
     {"weights.routed_scaling_factor"},
     [](RouterSpec& s) { s.weights.routed_scaling_factor = -1.0; }},
    {"scale_infinite_in_fp32",
     {"weights.routed_scaling_factor"},
     [](RouterSpec& s) { s.weights.routed_scaling_factor = 1e39; }},
    {"biased_score_without_bias",
     {"weights.source"},
     [](RouterSpec& s) { s.weights.source = WeightSource::kBiasedScore; }},
    {"log_space_of_softmax",
     {"weights.renormalize"},
     [](RouterSpec& s) { s.weights.renormalize = Renormalize::kLogSpaceL1; }},
    {"biased_score", {}, biased},
    {"log_space", {}, log_space},
    {"log_space_of_identity",
     {"weights.renormalize"},
     [](RouterSpec& s) {
       log_space(s);
       s.score.func = ScoreFunc::kIdentity;
     }},
    {"log_space_with_bias",
     {},
     [](RouterSpec& s) {
       log_space(s);
       s.selection.bias = BiasType::kFp32;
     }},
    {"log_space_of_biased_scores",
     {"weights.source"},
     [](RouterSpec& s) {
       log_space(s);
       biased(s);
     }},
    {"log_space_with_eps",
     {"weights.eps_mode"},
     [](RouterSpec& s) {
       log_space(s);
       s.weights.eps_mode = EpsMode::kAdd;
       s.weights.eps = 1e-20;
     }},

    {"shared_mode_without_shared",
     {"special.shared_mode"},
     [](RouterSpec& s) { s.special.shared_mode = SharedMode::kFusedIds; }},
    {"in_gate_without_shared",
     {"special.shared_mode"},
     [](RouterSpec& s) { s.special.shared_mode = SharedMode::kInGate; }},
    {"in_gate", {}, shared_in_the_gate},
    {"in_gate_sqrt_softplus",
     {},
     [](RouterSpec& s) {
       shared_in_the_gate(s);
       s.score.func = ScoreFunc::kSqrtSoftplus;
     }},
    {"in_gate_identity",
     {},
     [](RouterSpec& s) {
       shared_in_the_gate(s);
       s.score.func = ScoreFunc::kIdentity;
     }},
    {"in_gate_softmax",
     {"score.func"},
     [](RouterSpec& s) {
       shared_in_the_gate(s);
       s.score.func = ScoreFunc::kSoftmax;
     }},
    {"in_gate_softmax_after_topk",
     {"score.func"},
     [](RouterSpec& s) {
       shared_in_the_gate(s);
       s.score.func = ScoreFunc::kSoftmax;
       s.score.stage = ScoreStage::kAfterTopk;
       s.selection.rank_by = RankBy::kLogit;
     }},
    {"in_gate_with_biased_scores",
     {"weights.source"},
     [](RouterSpec& s) {
       shared_in_the_gate(s);
       biased(s);
     }},
    {"outside_with_softmax", {}, [](RouterSpec& s) { s.special.shared_experts = 2; }},
    {"zero_experts", {}, zero_experts},
    {"zero_experts_remapped",
     {},
     [](RouterSpec& s) {
       zero_experts(s);
       s.special.zero_type = ZeroType::kIdentityRemappedToId0Weight0;
     }},
    {"zero_experts_may_fill_top_k",
     {},
     [](RouterSpec& s) {
       zero_experts(s);
       s.shape.top_k = 12;
     }},
    {"top_k_past_the_zero_experts",
     {"shape.top_k"},
     [](RouterSpec& s) {
       zero_experts(s);
       s.shape.top_k = 13;
     }},
    {"top_k_past_experts_with_shared_in_gate",
     {"shape.top_k"},
     [](RouterSpec& s) {
       shared_in_the_gate(s);
       s.shape.top_k = 9;
     }},
    {"zero_experts_with_groups",
     {"special.zero_experts"},
     [](RouterSpec& s) {
       zero_experts(s);
       grouped(s);
     }},
    {"zero_experts_with_per_group",
     {"special.zero_experts"},
     [](RouterSpec& s) {
       zero_experts(s);
       per_group(s);
     }},
    {"pad_id_is_a_zero_expert",
     {"outputs.pad_id"},
     [](RouterSpec& s) {
       zero_experts(s);
       s.outputs.pad_id = 11;
     }},
    {"pad_id_past_the_zero_experts",
     {},
     [](RouterSpec& s) {
       zero_experts(s);
       s.outputs.pad_id = 12;
     }},
    {"pad_id_is_a_shared_expert_in_the_gate",
     {"outputs.pad_id"},
     [](RouterSpec& s) {
       shared_in_the_gate(s);
       s.outputs.pad_id = 9;
     }},
    {"zero_type_without_zero_experts",
     {"special.zero_type"},
     [](RouterSpec& s) { s.special.zero_type = ZeroType::kIdentity; }},
    {"zero_experts_without_zero_type", {"special.zero_type"}, [](RouterSpec& s) { s.special.zero_experts = 4; }},
    {"pad_id_is_an_expert", {"outputs.pad_id"}, [](RouterSpec& s) { s.outputs.pad_id = 7; }},
    {"pad_id_past_the_experts", {}, [](RouterSpec& s) { s.outputs.pad_id = 8; }},

    {"hash_table", {}, hash_table},
    {"hash_table_without_table",
     {"hash.vocab_size", "hash.table_dtype"},
     [](RouterSpec& s) { s.selection.method = SelectionMethod::kHashTable; }},
    {"hash_table_with_bias",
     {"selection.bias"},
     [](RouterSpec& s) {
       hash_table(s);
       s.selection.bias = BiasType::kFp32;
     }},
    {"hash_table_with_groups",
     {"selection.n_group"},
     [](RouterSpec& s) {
       hash_table(s);
       grouped(s);
     }},
    {"hash_layer_repeated",
     {"hash.layers"},
     [](RouterSpec& s) {
       s.hash.layers = {1, 1};
     }},
    {"hash_layer_past_the_model",
     {"hash.layers"},
     [](RouterSpec& s) {
       s.shape.num_layers = 3;
       s.hash.layers = {3};
     }},
    {"sparsemixer", {}, sparsemixer},
    {"sparsemixer_without_eps",
     {"sparsemixer.jitter_eps"},
     [](RouterSpec& s) {
       sparsemixer(s);
       s.sparsemixer_jitter_eps.reset();
     }},
    {"sparsemixer_by_score",
     {"selection.rank_by"},
     [](RouterSpec& s) {
       sparsemixer(s);
       s.selection.rank_by = RankBy::kScore;
     }},
    {"hash_table_without_vocab",
     {"hash.vocab_size"},
     [](RouterSpec& s) {
       hash_table(s);
       s.hash.vocab_size.reset();
     }},
    {"hash_table_after_topk",
     {"score.stage"},
     [](RouterSpec& s) {
       hash_table(s);
       s.selection.rank_by = RankBy::kLogit;
       s.score.stage = ScoreStage::kAfterTopk;
     }},
    {"hash_table_with_zero_experts",
     {},
     [](RouterSpec& s) {
       hash_table(s);
       zero_experts(s);
     }},
    {"hash_table_with_shared_in_gate",
     {},
     [](RouterSpec& s) {
       hash_table(s);
       shared_in_the_gate(s);
     }},
    {"hash_table_with_per_group",
     {"selection.n_group"},
     [](RouterSpec& s) {
       hash_table(s);
       per_group(s);
     }},
    {"hash_table_with_classes_but_no_bias",
     {},
     [](RouterSpec& s) {
       hash_table(s);
       s.selection.bias_variants = {"text", "image"};
     }},
    {"sparsemixer_with_bias",
     {"selection.bias"},
     [](RouterSpec& s) {
       sparsemixer(s);
       s.selection.bias = BiasType::kFp32;
     }},
    {"sparsemixer_with_groups",
     {"selection.n_group"},
     [](RouterSpec& s) {
       sparsemixer(s);
       grouped(s);
     }},
    {"sparsemixer_of_sigmoids",
     {"score.func"},
     [](RouterSpec& s) {
       sparsemixer(s);
       s.score.func = ScoreFunc::kSigmoid;
     }},
    {"sparsemixer_with_zero_experts",
     {"special.zero_experts"},
     [](RouterSpec& s) {
       sparsemixer(s);
       zero_experts(s);
     }},
    {"sparsemixer_of_more_than_two",
     {},
     [](RouterSpec& s) {
       sparsemixer(s);
       s.shape.top_k = 3;
     }},
    {"sparsemixer_after_topk",
     {"score.stage"},
     [](RouterSpec& s) {
       sparsemixer(s);
       s.score.stage = ScoreStage::kAfterTopk;
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
  EXPECT_EQ(unsupported_reason(padded), "not implemented: outputs.pad_id -2 (padding rows get -1)");
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
