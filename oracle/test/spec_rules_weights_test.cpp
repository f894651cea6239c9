// The rules of weights, shared and zero experts, tables and sparsemixer: a failing example for each.
#include "oracle/test/spec_rules.h"

namespace samebits::oracle {
namespace {

class SpecWeightsRule : public testing::TestWithParam<Rule> {};

TEST_P(SpecWeightsRule, NamesTheField) {
  expect_problems(GetParam());
}

const Rule kRules[] = {
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

INSTANTIATE_TEST_SUITE_P(All, SpecWeightsRule, testing::ValuesIn(kRules),
                         [](const auto& rule) { return rule.param.name; });

}  // namespace
}  // namespace samebits::oracle
