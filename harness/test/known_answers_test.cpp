// Cases whose right answer is known from outside: the article's figures, and faults that routers shipped with. Their
// answers were worked out by hand or in decimal arithmetic, never copied from this program.
#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "harness/backend/backend.h"
#include "harness/io/case_file.h"
#include "harness/test/engine_differences.h"
#include "harness/test/known_answers.h"
#include "oracle/tensors/bf16.h"
#include "properties/case.h"
#include "properties/run.h"

namespace samebits::harness {
namespace {

namespace fs = std::filesystem;
using oracle::BiasType;
using oracle::FloatType;
using oracle::RouterInputs;
using oracle::RouterOutputs;
using oracle::RouterSpec;
using properties::Case;

RouterOutputs run_backend(const Case& c, const std::string& backend) {
  const RouterInputs inputs = properties::materialize(c);
  const std::unique_ptr<properties::Subject> subject = open_backend({.name = backend, .plugin = std::nullopt});
  if (const auto reason = subject->unsupported(c.spec)) throw std::runtime_error(*reason);
  properties::RunRequest request;
  request.id = "main";
  for (std::int64_t row = 0; row < inputs.num_tokens; ++row) request.rows.push_back(row);
  request.num_valid_rows = inputs.num_valid_rows;
  const std::vector<properties::Run> runs = subject->run(c, inputs, {request});
  if (runs.at(0).result.status != properties::RunResult::Status::kOk) throw std::runtime_error(runs[0].result.message);
  return runs[0].result.outputs;
}

TEST(KnownAnswers, OracleAndCpuBackendGiveThem) {
  const std::vector<fs::path> files = list_case_files(cases_folder());
  ASSERT_GE(files.size(), 15u);
  for (const fs::path& file : files) {
    SCOPED_TRACE(file.filename().string());
    const CaseFile known = read_case_file(file);
    ASSERT_TRUE(known.expected.has_value());
    EXPECT_FALSE(known.expected->rows.empty());
    EXPECT_FALSE(known.expected->source.empty());
    EXPECT_FALSE(known.expected->tolerance_reason.empty());
    EXPECT_EQ(contradiction(*known.expected, run_oracle(known.c)), std::nullopt);
    EXPECT_EQ(contradiction(*known.expected, run_backend(known.c, "cpu")), std::nullopt);
  }
}

// A wrong rule for a case, in one of three forms: a change of the spec, a mutant, or the answer that was reported.
struct WrongRule {
  std::string file;
  std::string rule;
  std::function<void(RouterSpec&)> change;
  std::string mutant;
  std::vector<ExpectedRow> reported;
};

WrongRule change(std::string file, std::string rule, std::function<void(RouterSpec&)> change) {
  return {std::move(file), std::move(rule), std::move(change), "", {}};
}
WrongRule mutant(std::string file, std::string name) {
  return {std::move(file), name, nullptr, name, {}};
}
WrongRule reported(std::string file, std::string rule, std::vector<ExpectedRow> rows) {
  return {std::move(file), std::move(rule), nullptr, "", std::move(rows)};
}

void drop_bias(RouterSpec& spec) {
  spec.selection.bias = BiasType::kNone;
}
void round_bias(RouterSpec& spec) {
  spec.selection.bias = BiasType::kBf16;
}
void drop_scale(RouterSpec& spec) {
  spec.weights.routed_scaling_factor = 1.0;
}
void square_scale(RouterSpec& spec) {
  spec.weights.routed_scaling_factor *= spec.weights.routed_scaling_factor;
}
void renormalize(RouterSpec& spec) {
  spec.weights.renormalize = oracle::Renormalize::kL1;
}
void do_not_renormalize(RouterSpec& spec) {
  spec.weights.renormalize = oracle::Renormalize::kNone;
  spec.weights.eps = 0.0;
  spec.weights.eps_mode = oracle::EpsMode::kNone;
}
void drop_eps(RouterSpec& spec) {
  spec.weights.eps = 0.0;
  spec.weights.eps_mode = oracle::EpsMode::kNone;
}
void weigh_with_bias(RouterSpec& spec) {
  spec.weights.source = oracle::WeightSource::kBiasedScore;
}
void rank_by_logit(RouterSpec& spec) {
  spec.selection.rank_by = oracle::RankBy::kLogit;
}
void raw_logits(RouterSpec& spec) {
  spec.score.func = oracle::ScoreFunc::kIdentity;
}
void round_logits(RouterSpec& spec) {
  spec.gate.logits_dtype = FloatType::kBf16;
}
void round_scores(RouterSpec& spec) {
  spec.score.dtype = FloatType::kBf16;
}
void round_weights(RouterSpec& spec) {
  spec.weights.dtype = FloatType::kBf16;
}
void group_score_max(RouterSpec& spec) {
  spec.selection.group_score = oracle::GroupScore::kMax;
}
void group_mask_zero(RouterSpec& spec) {
  spec.selection.group_mask = oracle::GroupMask::kZero;
}
void keep_all_groups(RouterSpec& spec) {
  spec.selection.topk_group = spec.selection.n_group;
}

std::vector<WrongRule> wrong_rules() {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  const auto fp32_bias = [](RouterSpec& spec) { spec.selection.bias = BiasType::kFp32; };
  return {
      change("article_figure_1", "not renormalised", do_not_renormalize),
      change("article_figure_3", "bias dropped", drop_bias),
      change("article_figure_3", "bias in bf16", round_bias),
      mutant("article_figure_3", "bf16_bias"),
      change("article_figure_3", "bias in the weights", weigh_with_bias),
      change("article_figure_3_bf16_bias", "bias in fp32", fp32_bias),
      change("article_bias_collapse", "bias in bf16", round_bias),
      mutant("article_bias_collapse", "bf16_bias"),
      change("article_bias_collapse_bf16", "bias in fp32", fp32_bias),
      // Ties
      mutant("ties_below_larger_keys", "ties_to_higher_id"),
      reported("ties_below_larger_keys", "copies of the cut value first", {{0, {40, 0, 1}, {}}}),
      mutant("signed_zeros_tie", "ties_to_higher_id"),
      reported("signed_zeros_tie", "-0 below +0", {{0, {1, 0}, {}}}),
      mutant("ties_across_the_cut_with_absorbed_scores", "ties_to_higher_id"),
      change("ties_across_the_cut_with_absorbed_scores", "no epsilon", drop_eps),
      mutant("all_keys_equal", "ties_to_higher_id"),
      // Non-finite input
      reported("nan_row_beside_a_finite_row", "expert 0 in every slot", {{0, {0, 0, 0, 0}, {}}}),
      reported("one_nan_under_softmax", "id E + 1", {{0, {9, 9}, {}}}),
      reported("infinite_logits", "the first infinity twice", {{0, {3, 3, 30, 20}, {}}}),
      reported("no_finite_score", "start value of the winner", {{0, {-1}, {}}}),
      reported("nan_ahead_in_a_lane", "expert 37 hidden", {{0, {13, 0}, {}}}),
      reported("nan_ahead_in_a_lane", "Inf/Inf", {{1, {0, 1}, {kNan, 0.0}}}),
      reported("infinite_members_of_the_chosen_group", "padding has id 0", {{0, {9, 11, 0, 0}, {}}}),
      // Renormalisation and score numerics
      reported("zero_sum_of_scores", "0/0", {{0, {2, 3, 7, 8}, {kNan, kNan, kNan, kNan}}}),
      reported("scores_lost_in_a_large_bias", "(score + bias) - bias",
               {{0, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, std::vector<double>(16, 0.0)}}),
      change("scores_lost_in_a_large_bias", "bias in the weights", weigh_with_bias),
      reported("all_logits_far_below_zero", "0/0", {{0, {3, 4}, {kNan, kNan}}}),
      // Precision
      change("bias_held_in_bf16", "bias in bf16", round_bias),
      mutant("bias_held_in_bf16", "bf16_bias"),
      change("bf16_scores_merge", "scores in bf16", round_scores),
      change("weights_squeezed_through_bf16", "weights in bf16", round_weights),
      change("logits_rounded_to_bf16", "logits in bf16", round_logits),
      // Bias
      change("bias_in_the_weights", "bias in the weights", weigh_with_bias),
      change("bias_in_the_weights", "bias dropped", drop_bias),
      change("bias_in_softmax_weights", "bias in the weights", weigh_with_bias),
      change("bias_before_the_sigmoid", "bias on the logit", rank_by_logit),
      // Score function and flags
      change("softmax_without_renormalisation", "raw logits", raw_logits),
      change("softmax_without_renormalisation", "softmax over the chosen", renormalize),
      change("sigmoid_with_renormalisation", "flag lost", do_not_renormalize),
      change("one_expert_renormalised", "not renormalised", do_not_renormalize),
      change("scale_without_renormalisation", "factor dropped", drop_scale),
      change("scale_with_renormalisation", "factor dropped", drop_scale),
      change("scale_with_renormalisation", "factor twice", square_scale),
      // Groups
      change("group_score_by_maximum", "groups by their best expert", group_score_max),
      change("rejected_groups_filled_with_zero", "mask of zeros", group_mask_zero),
      change("too_many_groups", "all groups", keep_all_groups),
      reported("softmax_over_surviving_groups", "softmax over the group", {{0, {0, 1}, {0.8808, 0.1192}}}),
      change("all_keys_negative", "mask of zeros", group_mask_zero),
      // Shapes and padding
      reported("winners_past_id_256", "first 256 experts", {{0, {0, 1}, {}}}),
      reported("padding_lanes_score_one_half", "padding lanes", {{0, {33, 34, 35, 36}, {}}}),
      reported("padding_rows_are_ignored", "padding routed", {{5, {0, 1}, {}}}),
      // Further entries of docs/faults.md, in its order
      reported("candidates_overflow_a_buffer", "first 16 candidates", {{0, {15, 14, 13, 12, 11, 10, 9, 8}, {}}}),
      reported("nan_in_the_best_group", "the NaN is chosen", {{0, {4, 5, 6}, {}}}),
      reported("nan_in_the_best_group", "one group too few", {{1, {11, 9, 8}, {}}}),
      reported("one_infinite_logit_under_softmax", "the same expert again", {{0, {10, 10, 10, 10}, {}}}),
      reported("one_infinite_logit_under_softmax", "0/0", {{1, {0, 1, 2, 3}, {kNan, kNan, kNan, kNan}}}),
      reported("minus_infinity_beside_padding_lanes", "padding lanes", {{0, {7, 13, 20, 21}, {}}}),
      reported("nan_row_among_512", "-1", {{0, {-1, -1}, {}}}),
      reported("zero_sum_of_scores_in_groups", "0/0", {{0, {4, 5, 14, 15}, {kNan, kNan, kNan, kNan}}}),
      reported("zero_sum_without_a_bias", "0/0", {{0, {0, 1}, {kNan, kNan}}}),
      reported("chosen_keys_below_minus_one", "the same expert again", {{0, {7, 7, 7}, {}}}),
      change("bias_of_one_held_in_bf16", "bias in bf16", round_bias),
      change("bias_narrowed_to_the_output_type", "bias in bf16", round_bias),
      change("sigmoids_that_round_to_one", "by the logit", rank_by_logit),
      mutant("sigmoids_that_round_to_one", "ties_to_higher_id"),
      change("softmax_bias_at_many_rows", "bias in the weights", weigh_with_bias),
      reported("softmax_bias_at_many_rows", "softmax of logit + bias", {{0, {1, 3}, {0.4544, 0.2756}}}),
      change("bias_scale_and_sigmoid", "factor dropped", drop_scale),
      change("bias_scale_and_sigmoid", "bias in the weights", weigh_with_bias),
      change("winners_spread_over_lanes", "not renormalised", do_not_renormalize),
      change("sigmoid_without_renormalisation", "renormalised", renormalize),
      reported("one_expert_of_a_softmax_over_all", "softmax over the chosen", {{0, {0}, {1.0}}}),
      reported("floor_of_minus_one", "floor of -1", {{0, {-1, -1, -1, -1}, {}}}),
      reported("floor_of_minus_one", "the first again", {{0, {6, 6, 6, 6}, {}}}),
      reported("softmax_of_very_negative_logits", "no shift by the maximum", {{1, {0, 1}, {}}}),
      reported("winners_past_id_512", "first 512 experts", {{2, {0}, {}}}),
      reported("as_many_experts_as_threads", "the last expert is not there", {{0, {0}, {}}}),
      reported("more_experts_than_shared_memory_holds", "no launch", {{0, {-1, -1}, {}}}),
      reported("a_shape_without_a_compiled_kernel", "no launch", {{0, {-1, -1, -1, -1, -1, -1, -1, -1}, {}}}),
      reported("k_past_a_fixed_array", "16 of 17",
               {{0, {19, 38, 57, 12, 31, 50, 5, 24, 43, 62, 17, 36, 55, 10, 29, 48, -1}, {}}}),
      reported("k_that_is_no_power_of_two", "one slot stays empty", {{0, {17, 10, 3, 20, 13, 6, -1}, {}}}),
      reported("slots_past_65535", "the last rows are not written", {{8191, {-1, -1, -1, -1, -1, -1, -1, -1}, {}}}),
      reported("rows_past_65535", "the last rows are not written", {{65536, {0}, {}}}),
      reported("rows_past_1024", "another row", {{1024, {0, 1}, {}}}),
      reported("hidden_size_that_is_no_multiple_of_16", "the last 8 columns dropped", {{0, {2, 0}, {}}}),
      reported("inverse_map_of_three_rows", "transposed", {{0, {0, 3}, {}}, {1, {1, 4}, {}}}),
      reported("as_many_rows_as_experts", "expert 3 masked", {{0, {2, 1}, {}}}),
      reported("shared_expert_takes_its_own_column", "in place of the last slot", {{0, {6, 2, 7, 7}, {}}}),
      reported("shared_expert_takes_its_own_column", "the best is overwritten", {{0, {2, 1, 0, 7}, {}}}),
      reported("one_expert_for_all_rows", "no expert", {{1, {-1}, {}}}),
      reported("experts_without_rows", "shifted by one", {{0, {1}, {}}}),
      reported("experts_that_are_no_multiple_of_four", "wrapped", {{4, {0}, {}}}),
      reported("blocks_that_fill_the_bound", "the last slot is lost", {{20, {-1}, {}}}),
      reported("expanded_index_of_two_slots", "by id", {{1, {0, 1}, {}}}),
      reported("few_experts_many_rows", "another expert", {{1, {0, 3}, {}}}),
      reported("token_ids_past_the_table", "wraps around", {{3, {3, 0}, {}}}),
      reported("token_ids_past_the_table", "reads on", {{2, {0, 1}, {}}}),
      reported("weights_of_table_experts", "uniform", {{0, {5, 2}, {0.5, 0.5}}}),
      mutant("weights_of_table_experts", "uniform_hash_weights"),
  };
}

Case changed(Case c, const std::function<void(RouterSpec&)>& change) {
  change(c.spec);
  if (c.spec.selection.bias == BiasType::kNone && c.description.data) c.description.data->selection_bias.clear();
  return c;
}

TEST(KnownAnswers, WrongRulesContradictThem) {
  for (const WrongRule& wrong : wrong_rules()) {
    SCOPED_TRACE(wrong.file + ": " + wrong.rule);
    const CaseFile known = read_case(wrong.file);
    ASSERT_TRUE(known.expected.has_value());
    RouterOutputs outputs;
    if (wrong.change) {
      outputs = run_oracle(changed(known.c, wrong.change));
    } else if (!wrong.mutant.empty()) {
      outputs = run_backend(known.c, "mutant:" + wrong.mutant);
    } else {
      outputs = overwritten(run_oracle(known.c), wrong.reported);
    }
    EXPECT_NE(contradiction(*known.expected, outputs), std::nullopt);
  }
}

TEST(KnownAnswers, EveryCaseHasAWrongRule) {
  std::set<std::string> covered;
  for (const WrongRule& wrong : wrong_rules()) covered.insert(wrong.file);
  for (const EngineDifference& difference : read_engine_differences()) covered.insert(difference.case_name);
  for (const fs::path& file : list_case_files(cases_folder())) EXPECT_TRUE(covered.contains(file.stem())) << file;
}

// The article's section 2.1: the biases of a layer lie between 11.54 and 11.96, and bf16 has 7 values there.
TEST(KnownAnswers, BiasesOfALayerCollapseOntoSevenValues) {
  const CaseFile known = read_case("article_bias_collapse");
  const RouterInputs inputs = properties::materialize(known.c);
  ASSERT_EQ(inputs.selection_bias.size(), 288u);
  std::set<std::uint16_t> rounded;
  for (const float bias : inputs.selection_bias) {
    EXPECT_GE(bias, 11.54f);
    EXPECT_LE(bias, 11.96f);
    rounded.insert(oracle::fp32_to_bf16(bias));
  }
  EXPECT_EQ(rounded.size(), 7u);
  EXPECT_EQ(std::set<float>(inputs.selection_bias.begin(), inputs.selection_bias.end()).size(), 288u);

  const std::vector<std::int64_t> fp32_ids = run_oracle(known.c).topk_ids;
  const std::vector<std::int64_t> bf16_ids = run_oracle(changed(known.c, round_bias)).topk_ids;
  EXPECT_NE(std::set(fp32_ids.begin(), fp32_ids.end()), std::set(bf16_ids.begin(), bf16_ids.end()));
}

}  // namespace
}  // namespace samebits::harness
