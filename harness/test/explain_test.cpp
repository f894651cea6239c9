// What `samebits explain` says about a row.
#include <gmock/gmock.h>

#include "harness/test/cli_child.h"

namespace samebits::harness {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class Explain : public ::testing::Test {
 protected:
  // The output for a case of fixtures/cases.
  std::string explain(const std::string& name, std::vector<std::string> options = {}) const {
    const std::string file = std::string(SAMEBITS_FIXTURES_DIR) + "/cases/" + name + ".yaml";
    return explain_file(file, std::move(options));
  }
  std::string explain_file(const std::string& file, std::vector<std::string> options = {}) const {
    std::vector<std::string> arguments = {"explain", "--case", file};
    arguments.insert(arguments.end(), options.begin(), options.end());
    const ChildResult result = run_program_in(folder_, arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  }
  // The text from `begin` up to the next line that is not indented.
  static std::string section(const std::string& text, const std::string& begin) {
    const std::size_t from = text.find(begin);
    if (from == std::string::npos) return "";
    std::size_t to = text.find('\n', from);
    while (to != std::string::npos && to + 1 < text.size() && text[to + 1] == ' ') to = text.find('\n', to + 1);
    return text.substr(from, to - from);
  }
  TempFolder folder_;
};

TEST_F(Explain, ABf16BiasIsShownAsItIsUsedAndAsItWasGiven) {
  const std::string out = explain("article_figure_3_bf16_bias");
  EXPECT_THAT(out, HasSubstr("key:    score + bias, the bias rounded to bf16 first"));
  EXPECT_THAT(out, HasSubstr("1      0            1.2     0.76852477          8.125       8.893525      0.4659641"
                             "           8.13\n"));
  EXPECT_THAT(out, HasSubstr("cut: expert 2 (key 8.880797) is in, expert 5 (key 8.869891) is out: gap 0.0109062"));
  EXPECT_THAT(out, HasSubstr("  S = 0.76852477 + 0.8807971 = 1.6493218\n"
                             "  D = S + 1e-20 = 1.6493218\n"
                             "  weight = s / D\n"));
  EXPECT_THAT(section(out, "mistakes"), HasSubstr("the selection bias kept in fp32: expert 5 instead of 2\n"
                                                  "    5 = 0.5309344, 0 = 0.46906564\n"));
  EXPECT_THAT(section(out, "nothing would change"), HasSubstr("ties to the higher id"));
  EXPECT_THAT(out, Not(HasSubstr("router weight"))) << "no router was asked";
}

TEST_F(Explain, TheMistakeThatReproducesARouterIsMarked) {
  const std::string out = explain("article_figure_3", {"--backend", "mutant:bf16_bias"});
  EXPECT_THAT(
      section(out, "mutant:bf16_bias returned"),
      AllOf(HasSubstr("0       5 0.5309344 (0x3f07eb51)             0 0.4659641 (0x3eee92d9)       another expert"),
            HasSubstr("2 of 2 slots differ")));
  EXPECT_THAT(section(out, "mistakes"),
              HasSubstr("mistakes that would change this row:\n"
                        "  the selection bias rounded to bf16: expert 2 instead of 5  <- this is what the router "
                        "returned\n    0 = 0.4659641, 2 = 0.5340359\n"));
  EXPECT_EQ(out.find("<- "), out.rfind("<- ")) << "one mistake was planted\n" << out;
}

TEST_F(Explain, EqualKeysAndEveryExpertThatTheRouterChose) {
  const std::string out = explain("nan_row_beside_a_finite_row", {"--backend", "mutant:ties_to_higher_id"});
  EXPECT_THAT(out, HasSubstr("both keys are nan, the lower id wins"));
  EXPECT_THAT(out, HasSubstr("  13     12            nan            nan              -            nan"));
  EXPECT_THAT(out, HasSubstr("  S = nan + nan + nan + nan = 0\n  D = S = 0\n  D is 0: every weight is 0\n"));
  EXPECT_THAT(section(out, "mistakes"), HasSubstr("  ties to the higher id: expert 12, 13, 14, 15 instead of 0, 1, 2, "
                                                  "3  <- this is what the router returned\n"));
  const std::string finite = explain("all_keys_equal", {"--backend", "mutant:ties_to_higher_id"});
  EXPECT_THAT(finite, HasSubstr("cut: expert 2 (key 0.125) is in, expert 3 (key 0.125) is out: equal keys, the lower id"
                                " wins\n"));
  EXPECT_THAT(explain("infinite_logits"), HasSubstr("   1      3            inf              1"));
}

TEST_F(Explain, GroupsAreShownWithTheirScores) {
  const std::string out = explain("rejected_groups_filled_with_zero", {"--backend", "cpu"});
  EXPECT_THAT(out, HasSubstr("group 0 (experts 0 to 1): score 0.3, kept\n"));
  EXPECT_THAT(out, HasSubstr("group 3 (experts 6 to 7): score -2, not kept\n"));
  EXPECT_THAT(out, HasSubstr("excluded: group not kept"));
  EXPECT_THAT(out, HasSubstr("every slot has the contract's bits"));
  EXPECT_THAT(section(out, "mistakes"),
              HasSubstr("rejected groups masked with 0 instead of -inf: expert 4 instead of 1\n"));
  EXPECT_THAT(out, Not(HasSubstr("<- ")));
}

TEST_F(Explain, RoundingsAndTheScaleAreSpelledOut) {
  folder_.write("case.yaml",
                "samebits_case: 1\n"
                "spec:\n"
                "  spec_version: 1\n"
                "  name: rounded\n"
                "  shape: {hidden_size: 64, num_experts: 8, top_k: 2}\n"
                "  gate: {logits_dtype: bf16}\n"
                "  score: {func: sigmoid, dtype: bf16}\n"
                "  weights: {renormalize: l1, eps: 1.0e-9, eps_mode: clamp_min, routed_scaling_factor: 2.5,\n"
                "            scale_stage: before_divide, dtype: bf16}\n"
                "description: {num_tokens: 2, data_key: 7}\n");
  const std::string out = explain_file("case.yaml", {"--row", "1", "--backend", "cpu"});
  EXPECT_THAT(out, HasSubstr("logits: 64 products each, summed in the order of tc256, rounded to bf16\n"));
  EXPECT_THAT(out, HasSubstr("score:  sigmoid(logit), rounded to bf16\n"));
  EXPECT_THAT(out, HasSubstr("  D = max(S, 1e-09) = "));
  EXPECT_THAT(out, HasSubstr("  weight = s * 2.5 / D, rounded to bf16\n"));
  EXPECT_THAT(out, HasSubstr("logits: all 8 have the bits of the contract"));
  EXPECT_THAT(out, HasSubstr("the logits kept in fp32")) << "the harness has them before their rounding";
  EXPECT_THAT(out, HasSubstr("... 3 more; --all shows them"));
  EXPECT_THAT(explain_file("case.yaml", {"--all"}), Not(HasSubstr("--all shows them")));
}

TEST_F(Explain, ALogitThatDiffersOnlyInALargerRunIsFound) {
  folder_.write("case.yaml",
                "samebits_case: 1\n"
                "spec:\n"
                "  spec_version: 1\n"
                "  name: split\n"
                "  shape: {hidden_size: 300, num_experts: 8, top_k: 2}\n"
                "  score: {func: sigmoid}\n"
                "description: {num_tokens: 1, data_key: 3, hidden: order_sensitive, weight: order_sensitive}\n");
  const std::string out = explain_file("case.yaml", {"--backend", "mutant:row_dependent_split"});
  EXPECT_THAT(section(out, "mutant:row_dependent_split returned (run tiled/"),
              AllOf(HasSubstr("of 8 differ; the first is expert"), HasSubstr("ulp apart")));
  EXPECT_THAT(section(out, "mistakes"), AllOf(HasSubstr("the right steps on the router's own logits"),
                                              HasSubstr("<- this is what the router returned")));
}

// The description of a case of a small spec, whose text is the rest of a YAML file.
std::string small(const std::string& spec, const std::string& tensors) {
  return "samebits_case: 1\nspec:\n  spec_version: 1\n  name: small\n" + spec + tensors;
}

TEST_F(Explain, APreparedInputAndASoftcapHaveTheirValues) {
  folder_.write("case.yaml",
                small("  shape: {hidden_size: 4, num_experts: 2, top_k: 1}\n"
                      "  gate: {input_norm: rmsnorm_unweighted, input_norm_eps: 0.5, "
                      "input_scale: rsqrt_hidden_size, input_scale_vector: true}\n"
                      "  logits: {softcap: 30}\n",
                      "tensors:\n"
                      "  hidden_states: {dtype: bf16, shape: [1, 4], values: [[2, 0, 2, 0]]}\n"
                      "  gate_weight: {dtype: bf16, shape: [2, 4], values: [[1, 0, 0, 0], [0, 0, 32, 0]]}\n"
                      "  input_scale_vector: {dtype: fp32, shape: [4], values: [1, 1, 3, 1]}\n"));
  const std::string out = explain_file("case.yaml", {"--backend", "cpu"});
  // mean square 2, so r = 2.5^-1/2 = 0.632455...; 2 r / 2 = 0.632455... is 0.6328125 in bf16, three times it 1.8984375.
  EXPECT_THAT(out, HasSubstr("  input:  x * r * input_scale_vector * 0.5 (hidden_size^-1/2), rounded to bf16\n"
                             "          r = 1 / sqrt(2 + 0.5) = 0.6324555, 2 being the mean square of x\n"
                             "          2 -> 0.6328125, 0 -> 0, 2 -> 1.8984375, 0 -> 0\n"));
  EXPECT_THAT(out, HasSubstr("order of tc256, then z becomes 30 * tanh(z / 30)\n"));
  EXPECT_THAT(out, HasSubstr("before softcap\n"));
  EXPECT_THAT(out, HasSubstr("          60.75\n")) << "32 times 1.8984375";
  EXPECT_THAT(out, HasSubstr("every slot has the contract's bits"));
}

TEST_F(Explain, ARowOfATableAndATokenWithoutOne) {
  folder_.write("case.yaml",
                small("  shape: {hidden_size: 4, num_experts: 4, top_k: 2}\n"
                      "  score: {func: sigmoid}\n"
                      "  selection: {method: hash_table}\n"
                      "  hash: {vocab_size: 2, table_dtype: int32}\n",
                      "tensors:\n"
                      "  router_logits: {dtype: fp32, shape: [2, 4], values: [[0, 0, 0, 0], [0, 0, 0, 0]]}\n"
                      "  hash_table: {dtype: int32, shape: [2, 2], values: [[0, 1], [3, 1]]}\n"
                      "  token_ids: {dtype: int64, shape: [2], values: [1, 2]}\n"));
  const std::string out = explain_file("case.yaml", {"--backend", "cpu"});
  EXPECT_THAT(out, HasSubstr("choice: row 1 of the table, the row's token id: experts 3, 1\n"));
  EXPECT_THAT(out, HasSubstr("   -      3              0            0.5              -              -            0.5"));
  EXPECT_THAT(out, Not(HasSubstr("cut")));
  EXPECT_THAT(out, HasSubstr("answer: ids 3, 1; weights 0.5, 0.5\n"));
  EXPECT_THAT(out, HasSubstr("every slot has the contract's bits"));
  EXPECT_THAT(explain_file("case.yaml", {"--row", "1", "--backend", "cpu"}),
              AllOf(HasSubstr("choice: by the table of 2 rows, which has none for token id 2\n"),
                    HasSubstr("no answer exists for this row: every id is -1, every weight 0\n"),
                    HasSubstr("answer: ids -1, -1; weights 0, 0\n"), HasSubstr("every slot has the contract's bits")));
}

TEST_F(Explain, ARowClassHasItsOwnBias) {
  folder_.write("case.yaml", small("  shape: {hidden_size: 4, num_experts: 2, top_k: 1}\n"
                                   "  score: {func: sigmoid}\n"
                                   "  selection: {bias: fp32, bias_variants: [text, image]}\n",
                                   "tensors:\n"
                                   "  router_logits: {dtype: fp32, shape: [2, 2], values: [[0, 0], [0, 0]]}\n"
                                   "  selection_bias: {dtype: fp32, shape: [2, 2], values: [[1, 0], [0, 7]]}\n"
                                   "  row_class: {dtype: int32, shape: [2], values: [1, 2]}\n"));
  EXPECT_THAT(explain_file("case.yaml", {"--backend", "cpu"}),
              AllOf(HasSubstr("key:    score + bias; the bias is that of row class 1 (image)\n"),
                    HasSubstr("   1      1              0            0.5              7            7.5            0.5"),
                    HasSubstr("every slot has the contract's bits")));
  EXPECT_THAT(explain_file("case.yaml", {"--row", "1"}),
              AllOf(HasSubstr("row class 2 is none of 0 to 1\n"), HasSubstr("no answer exists for this row")));
}

TEST_F(Explain, PassesOfSparsemixer) {
  folder_.write("case.yaml", small("  shape: {hidden_size: 4, num_experts: 4, top_k: 2}\n"
                                   "  selection: {method: sparsemixer, rank_by: logit}\n"
                                   "  sparsemixer: {jitter_eps: 0.01}\n",
                                   "tensors:\n"
                                   "  router_logits: {dtype: fp32, shape: [1, 4], values: [[1, 1, 0.5, 0.25]]}\n"));
  EXPECT_THAT(
      explain_file("case.yaml", {"--backend", "cpu"}),
      AllOf(HasSubstr("pass 0: t = 1 of expert 0; with (t - z) / max(|z|, t) <= 0.02 taking part: 2; score 0.5\n"
                      "pass 1: t = 1 of expert 1; with (t - z) / max(|z|, t) <= 0.02 taking part: 1; score 1\n"),
            HasSubstr("answer: ids 0, 1; weights 0.5, 1\n"), HasSubstr("every slot has the contract's bits")));
}

TEST_F(Explain, LogSpaceSharedExpertsAndLearnedScales) {
  folder_.write("case.yaml",
                small("  shape: {hidden_size: 4, num_experts: 2, top_k: 1}\n"
                      "  score: {func: sigmoid}\n"
                      "  weights: {renormalize: log_space_l1, per_expert_scale: true, global_scale: true}\n"
                      "  special: {shared_experts: 1, shared_mode: in_gate}\n",
                      "tensors:\n"
                      "  router_logits: {dtype: fp32, shape: [1, 3], values: [[-1, 0, 0]]}\n"
                      "  per_expert_scale: {dtype: fp32, shape: [3], values: [8, 3, 5]}\n"
                      "  global_scale: {dtype: fp32, shape: [1], values: [2]}\n"));
  const std::string out = explain_file("case.yaml", {"--backend", "cpu"});
  EXPECT_THAT(out, HasSubstr("shared: experts 2 to 2 take the last slots of every row\n"));
  EXPECT_THAT(out, HasSubstr("weight: e^((l - M) - log(D)) * per_expert_scale * global_scale\n"));
  EXPECT_THAT(out, HasSubstr("  l = -0.6931472, -0.6931472; M = -0.6931472\n"
                             "  D = 1 + 1 = 2, the sum of e^(l - M); log(D) = 0.6931472\n"
                             "  per_expert_scale of expert 1: 3, 2: 5\n"
                             "  global_scale is 2\n"));
  EXPECT_THAT(out, HasSubstr("answer: ids 1, 2; weights 3, 5\n"));
  EXPECT_THAT(out, HasSubstr("every slot has the contract's bits"));
}

TEST_F(Explain, AZeroExpertIsRenamedAtTheEnd) {
  folder_.write("case.yaml", small("  shape: {hidden_size: 4, num_experts: 2, top_k: 2}\n"
                                   "  score: {func: identity}\n"
                                   "  special: {zero_experts: 1, zero_type: identity_remapped_to_id0_weight0}\n",
                                   "tensors:\n"
                                   "  router_logits: {dtype: fp32, shape: [1, 3], values: [[1, 0, 2]]}\n"));
  const std::string out = explain_file("case.yaml", {"--backend", "cpu"});
  EXPECT_THAT(out, HasSubstr("zero:   experts 2 to 2 compute nothing and are returned as id 0 with weight 0\n"));
  EXPECT_THAT(out, HasSubstr("  slot 0: zero expert 2 is returned as id 0 with weight 0\n"));
  EXPECT_THAT(out, HasSubstr("answer: ids 0, 0; weights 0, 1\n"));
  EXPECT_THAT(out, HasSubstr("every slot has the contract's bits"));
}

TEST_F(Explain, EveryGroupHasItsOwnCut) {
  folder_.write("case.yaml", small("  shape: {hidden_size: 4, num_experts: 4, top_k: 2}\n"
                                   "  score: {func: sigmoid}\n"
                                   "  selection: {n_group: 2, topk_group: 2, topk_scope: per_group}\n",
                                   "tensors:\n"
                                   "  router_logits: {dtype: fp32, shape: [1, 4], values: [[3, 2, 0, 0]]}\n"));
  EXPECT_THAT(
      explain_file("case.yaml", {"--backend", "cpu"}),
      AllOf(HasSubstr("choice: the largest key of each of the 2 groups; of equal keys the lower id\n"),
            HasSubstr("nearest cut of a group: expert 2 (key 0.5) is in, expert 3 (key 0.5) is out: equal keys"),
            HasSubstr("answer: ids 0, 2;"), HasSubstr("every slot has the contract's bits")));
}

}  // namespace
}  // namespace samebits::harness
