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
