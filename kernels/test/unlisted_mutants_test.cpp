// Every mutant that is not in the list of known faults differs from the good router on one small call.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "kernels/mutants/mutants.h"
#include "kernels/test/test_router.h"
#include "kernels/test/unlisted_call.h"

namespace samebits::cpu::test {
namespace {

using Spec = samebits_router_spec;
constexpr float kInf = std::numeric_limits<float>::infinity(), kNaN = std::numeric_limits<float>::quiet_NaN();

Spec plain(std::int32_t experts, std::int32_t top_k, void (*edit)(Spec&) = nullptr, std::int32_t hidden_size = 0) {
  Spec spec = plain_spec(hidden_size, experts, top_k);
  if (edit != nullptr) edit(spec);
  return spec;
}
// Sigmoid, selection bias, l1 with eps 1e-20, scale 2.5.
Spec sigmoid(std::int32_t experts, std::int32_t top_k, void (*edit)(Spec&) = nullptr) {
  Spec spec = sigmoid_bias_spec(0, experts, top_k);
  if (edit != nullptr) edit(spec);
  return spec;
}
void two_groups(Spec& s) {
  s.n_group = 2, s.topk_group = 1;
  s.group_score = SAMEBITS_GROUP_SCORE_TOP2_SUM, s.group_mask = SAMEBITS_GROUP_MASK_NEG_INF;
}
void by_logit(Spec& s) {
  s.rank_by = SAMEBITS_RANK_BY_LOGIT, s.score_stage = SAMEBITS_SCORE_AFTER_TOPK;
}
void no_eps(Spec& s) {
  s.eps_mode = SAMEBITS_EPS_NONE, s.eps = 0;
}
void softplus(Spec& s) {
  s.score_func = SAMEBITS_SCORE_SQRT_SOFTPLUS;
}
void softplus_l1(Spec& s) {
  s.score_func = SAMEBITS_SCORE_SQRT_SOFTPLUS, s.renormalize = SAMEBITS_RENORM_L1;
}
void bf16_weights(Spec& s) {
  s.weights_dtype = SAMEBITS_BF16;
}
void bf16_logits(Spec& s) {
  s.logits_dtype = SAMEBITS_BF16;
}
void softcap(Spec& s) {
  s.softcap = 2.0f;
}
void shared(Spec& s) {
  s.score_func = SAMEBITS_SCORE_SIGMOID, s.renormalize = SAMEBITS_RENORM_LOG_SPACE_L1;
  s.shared_experts = 1, s.shared_mode = SAMEBITS_SHARED_IN_GATE;
  s.global_scale = 1;
}
void table(Spec& s) {
  s.selection_method = SAMEBITS_SELECT_HASH_TABLE, s.hash_vocab_size = 2;
}
void norm(Spec& s) {
  s.input_norm = SAMEBITS_INPUT_NORM_RMSNORM_UNWEIGHTED, s.input_norm_eps = 0.01f, s.input_scale_vector = 1;
}

Constants bias(std::vector<float> values) {
  Constants c;
  c.selection_bias = std::move(values);
  return c;
}
Constants zero_bias(std::size_t experts) {
  return bias(std::vector<float>(experts, 0.0f));
}
std::vector<float> normal(std::int64_t n) {
  return normal_fp32(1, n);
}
std::vector<std::uint16_t> bf16(const std::vector<float>& values) {
  std::vector<std::uint16_t> halves;
  for (const float value : values) halves.push_back(upper_half(value));
  return halves;
}
Constants gate(std::vector<float> weight) {
  Constants c;
  c.gate_weight = bf16(weight);
  return c;
}

struct Example {
  const char* mutant;
  Spec spec;
  Constants constants;
  Given call;
};

std::vector<Example> choice_examples() {
  const auto grouped = [](std::vector<float> biases, std::vector<float> logits, const char* name) {
    const auto experts = static_cast<std::int32_t>(biases.size());
    return Example{name, sigmoid(experts, 2, two_groups), bias(std::move(biases)), {.logits = std::move(logits)}};
  };
  return {
      {"truncated_bf16_bias",
       sigmoid(2, 1, [](Spec& s) { s.selection_bias_dtype = SAMEBITS_BF16; }),
       bias({1.0f, 1.006f}),
       {.logits = {0, 0}}},
      grouped({1, 1, 0, 0}, {0, 0, 1, 1}, "groups_by_unbiased_scores"),
      grouped({0, 0, 0, 0}, {0, 0, 0, 0}, "group_ties_to_higher_group"),
      grouped({0, 0, 0, 0, 0, 0}, {kNaN, 5, 5, 0, 0, 0}, "nan_poisons_group"),
      grouped({0, 0, 0, 0}, {2, 2, 3, -50}, "second_best_below_best"),
      grouped({1, 1, 2, 0}, {0, 0, 0, 0}, "group_threshold_keeps_ties"),
      {"mask_by_multiplication",
       plain(4, 2,
             [](Spec& s) {
               two_groups(s);
               s.group_score = SAMEBITS_GROUP_SCORE_MAX, s.group_mask = SAMEBITS_GROUP_MASK_ZERO;
             }),
       {},
       {.logits = {kNaN, -300, 0, -200}}},
      {"negative_keys_reversed", plain(2, 1, by_logit), {}, {.logits = {-1, -2}}},
      {"nan_key_is_largest", plain(2, 1), {}, {.logits = {0, kNaN}}},
      {"negative_nan_is_largest", plain(2, 1), {}, {.logits = {0, -kNaN}}},
      {"expert_tail_dropped", plain(9, 1), {}, {.logits = {0, 0, 0, 0, 0, 0, 0, 0, 1}}},
      {"rank_by_saturated_score",
       plain(2, 1, [](Spec& s) { by_logit(s), s.score_func = SAMEBITS_SCORE_SIGMOID; }),
       {},
       {.logits = {90, 91}}},
      {"ties_after_eight_slots", plain(10, 10), {}, {.logits = std::vector<float>(10, 0.0f)}},
      {"taken_mark_is_finite", plain(2, 2, by_logit), {}, {.logits = {0, -kInf}}},
      {"keys_in_double", sigmoid(2, 1), bias({1e8f, 1e8f}), {.logits = {0, 1}}},
      {"per_group_slots_by_group",
       plain(4, 2, [](Spec& s) { s.n_group = 2, s.topk_group = 2, s.topk_scope = SAMEBITS_TOPK_PER_GROUP; }),
       {},
       {.logits = {0, 0, 1, 0}}},
  };
}

std::vector<Example> score_examples() {
  return {
      {"subnormal_scores_flushed", sigmoid(1, 1), zero_bias(1), {.logits = {-90}}},
      {"sigmoid_by_tanh", sigmoid(1, 1), zero_bias(1), {.logits = {-46}}},
      {"sigmoid_of_overflowing_exp", sigmoid(1, 1), zero_bias(1), {.logits = {-89}}},
      {"softplus_by_log_of_sum", plain(1, 1, softplus), {}, {.logits = {-20}}},
      {"softplus_is_x_above_10", plain(1, 1, softplus), {}, {.logits = {11}}},
      {"truncated_bf16_scores",
       sigmoid(8, 8, [](Spec& s) { s.score_dtype = SAMEBITS_BF16; }),
       zero_bias(8),
       {.logits = normal(8)}},
      {"softmax_by_fast_exp", plain(2, 2), {}, {.logits = {0, -80}}},
      {"softmax_summed_left_to_right", plain(64, 1), {}, {.logits = normal(64)}},
      {"softmax_over_padded_lanes", plain(3, 1), {}, {.logits = {0, 0, 0}}},
      {"softmax_max_starts_at_first", plain(3, 1), {}, {.logits = {kNaN, 0, 0}}},
      {"minus_inf_row_is_nan", plain(2, 1), {}, {.logits = {kNaN, -kInf}}},
      {"chosen_softmax_left_to_right", plain(8, 8, by_logit), {}, {.logits = normal(128)}},
  };
}

std::vector<Example> weight_examples() {
  const auto of_eight = [](const char* name) {
    return Example{name, sigmoid(8, 8), zero_bias(8), {.logits = normal(128)}};
  };
  const auto of_tiny = [](const char* name) {  // sums near eps
    return Example{name, sigmoid(2, 2), zero_bias(2), {.logits = {-46, -46}}};
  };
  Constants scales, factor;
  scales.per_expert_scale = {2, 3}, factor.global_scale = {0.75f};
  return {
      of_eight("product_with_reciprocal"),
      of_eight("scale_over_sum_first"),
      of_tiny("eps_in_every_term"),
      of_tiny("eps_twice"),
      of_tiny("eps_as_floor"),
      of_eight("sum_by_tree"),
      of_eight("sum_in_order_of_ids"),
      {"sum_over_power_of_two", sigmoid(4, 3), zero_bias(4), {.logits = {0, 0, 0, 0}}},
      {"zero_sum_is_uniform", sigmoid(2, 2, no_eps), zero_bias(2), {.logits = {-200, -200}}},
      {"nan_zeroes_row", sigmoid(2, 2), zero_bias(2), {.logits = {0, kNaN}}},
      {"inf_zeroes_row", plain(2, 2, softplus_l1), {}, {.logits = {kInf, 0}}},
      {"first_inf_takes_all", plain(2, 2, softplus_l1), {}, {.logits = {kInf, kInf}}},
      {"truncated_bf16_weights", sigmoid(8, 8, bf16_weights), zero_bias(8), {.logits = normal(128)}},
      {"rounded_before_scale", sigmoid(8, 8, bf16_weights), zero_bias(8), {.logits = normal(128)}},
      {"subnormal_weights_flushed",
       plain(1, 1, [](Spec& s) { s.score_func = SAMEBITS_SCORE_SIGMOID; }),
       {},
       {.logits = {-90}}},
      {"log_space_as_ratio", plain(2, 1, shared), factor, {.logits = {-200, -200, -200}}},
      {"expert_scale_before_sum",
       plain(2, 2, [](Spec& s) { s.renormalize = SAMEBITS_RENORM_L1, s.per_expert_scale = 1; }),
       scales,
       {.logits = {0, 0}}},
      {"global_scale_on_routed_only", plain(2, 1, shared), factor, {.logits = {0, 0, 0}}},
      {"ids_sorted_alone", plain(2, 2, [](Spec& s) { s.sort = SAMEBITS_SORT_BY_INDEX; }), {}, {.logits = {0, 1}}},
      {"remapped_expert_keeps_weight",
       plain(1, 2,
             [](Spec& s) { s.zero_experts = 1, s.zero_type = SAMEBITS_ZERO_EXPERTS_IDENTITY_REMAPPED_TO_ID0_WEIGHT0; }),
       {},
       {.logits = {0, 1}}},
  };
}

std::vector<Example> logit_examples() {
  const auto one = [](std::int32_t hidden_size, void (*edit)(Spec&) = nullptr) {
    return plain(1, 1, edit, hidden_size);
  };
  const auto random = [](const char* name, void (*edit)(Spec&) = nullptr) {
    const Spec spec = plain(8, 1, edit, 1024);
    return Example{name, spec, random_constants(spec, 1), {.hidden_states = normal_bf16(2, 1024)}};
  };
  const std::vector<float> fine = {1.0f + 0x1p-20f};
  Constants biased = gate({1, 1});
  biased.linear_bias = {0.003f};
  std::vector<float> last(4097, 0.0f);
  last[4096] = 1.0f;
  return {
      {"tf32_gate_weight", one(1), {}, {.hidden_states = bf16({1}), .fp32_gate_weight = fine}},
      {"two_part_gate_weight", one(1), {}, {.hidden_states = bf16({1}), .fp32_gate_weight = fine}},
      {"columns_past_4096_ignored", one(4097), gate(last), {.hidden_states = bf16(last)}},
      random("chains_of_128"),
      random("chains_added_backwards"),
      random("fma_chain"),
      {"rounded_before_linear_bias",
       one(2, [](Spec& s) { bf16_logits(s), s.linear_bias_dtype = SAMEBITS_FP32; }),
       biased,
       {.hidden_states = bf16({1, 0x1p-9f})}},
      {"truncated_bf16_logits", one(2, bf16_logits), gate({1, 1}), {.hidden_states = bf16({1, 0x1.8p-8f})}},
      {"subnormal_inputs_flushed", one(1), gate({0x1p100f}), {.hidden_states = {1}}},
      {"subnormal_logits_flushed", one(1), gate({0x1p-30f}), {.hidden_states = bf16({0x1p-100f})}},
      random("division_by_reciprocal", [](Spec& s) { s.temperature = 3.0f; }),
      random("norm_rounded_before_scales", norm),
      random("norm_without_eps", norm),
  };
}

std::vector<Example> call_examples() {
  const auto counted = [](const char* name, std::int32_t count) {
    return Example{name, plain(1, 1), {}, {.logits = {0, 0}, .num_valid_rows = count}};
  };
  const auto with_rows = [](const char* name, std::int32_t rows, Given call, void (*edit)(Spec&) = nullptr) {
    const Spec spec = plain(8, 1, edit, 8);
    call.hidden_states = normal_bf16(2, rows * 8);
    return Example{name, spec, random_constants(spec, 1), std::move(call)};
  };
  const auto looked_up = [](const char* name, std::vector<std::int64_t> tokens) {
    Constants c;
    c.hash_table = {0, 1};
    const std::vector<float> logits(2 * tokens.size(), 0.0f);
    return Example{name, plain(2, 1, table), c, {.logits = logits, .token_ids = std::move(tokens)}};
  };
  return {
      counted("negative_count_is_all", -1),
      counted("count_above_rows_is_none", 3),
      counted("count_rounded_up_to_8", 1),
      counted("zero_count_returns_at_once", 0),
      {"empty_call_returns_at_once", plain(1, 1), {}, {.bookkeeping = true}},
      looked_up("token_id_low_half", {std::int64_t{1} << 32}),
      looked_up("int64_tokens_read_as_int32", {0, 1}),
      {"class_clamped",
       sigmoid(1, 1, [](Spec& s) { s.num_bias_variants = 2; }),
       zero_bias(2),
       {.logits = {0}, .row_class = {2}}},
      with_rows("block_edge_reads_row_before", 65, {}),
      with_rows("misaligned_head_skipped", 1, {.misaligned = true}),
      with_rows("first_inputs_replayed", 1, {.second_hidden_states = normal_bf16(3, 8)}),
      with_rows("logits_output_unfinished", 1, {}, softcap),
      with_rows("bf16_logits_output", 1, {}),
      {"given_logits_finished_again", plain(2, 2, softcap), {}, {.logits = {2, -2}}},
      {"nan_scrubbed_in_place", plain(2, 1), {}, {.logits = {0, kNaN}}},
      with_rows("bf16_logits_unless_wanted", 1, {.wants_logits = false}),
  };
}

std::vector<Example> output_examples() {
  const auto padding = [](const char* name) {
    return Example{name, plain(1, 1), {}, {.logits = {0}, .num_valid_rows = 0, .bookkeeping = true, .wide_ids = true}};
  };
  const auto blocks = [](const char* name) {  // expert 1 of two has one slot of a block of four
    return Example{name, plain(2, 1), {}, {.logits = {0, 1}, .block_size = 4}};
  };
  Constants factor;
  factor.global_scale = {1};
  return {
      {"truncated_bf16_output", plain(8, 8), {}, {.logits = normal(8), .bf16_weights = true}},
      padding("padding_id_zero_extended"),
      {"gap_between_rows_written", plain(3, 3), {}, {.logits = std::vector<float>(6, 0.0f), .gap = 1}},
      {"workspace_overrun", plain(1, 1), {}, {.logits = {0}}},
      {"reversed_without_bookkeeping", plain(2, 2), {}, {.logits = {0, 0}}},
      blocks("post_padded_is_unpadded"),
      blocks("expert_ids_compacted"),
      blocks("last_block_repeats_slot"),
      padding("last_offset_counts_padding"),
      padding("position_of_padding_is_zero"),
      {"counts_in_8_bits", plain(1, 1), {}, {.logits = std::vector<float>(256, 0.0f), .bookkeeping = true}},
      {"shared_experts_not_counted", plain(1, 1, shared), factor, {.logits = {0, 0}, .bookkeeping = true}},
      {"slots_column_by_column", plain(2, 2), {}, {.logits = {1, 0, 0, 1}, .bookkeeping = true}},
  };
}

// One expert, or two of which a constant decides; 2^126 times a subnormal of 2^-128 is a logit of 1/4.
std::vector<Example> constant_examples() {
  constexpr float kSmall = 0x1p-128f;
  const auto linear = [](Spec& s) { s.hidden_size = 1, s.linear_bias_dtype = SAMEBITS_FP32; };
  const auto scaled = [](Spec& s) { s.per_expert_scale = 1; };
  Constants linear_bias = gate({0}), scale;
  linear_bias.linear_bias = {kSmall};
  scale.per_expert_scale = {kSmall};
  const std::vector<std::uint16_t> large = bf16({0x1p126f}), half = bf16({0.5f});
  return {
      {"subnormal_selection_bias_flushed", sigmoid(2, 1), bias({0, kSmall}), {.logits = {-300, -300}}},
      {"nan_selection_bias_is_zero", sigmoid(2, 1), bias({kNaN, 0}), {.logits = {5, 0}}},
      {"subnormal_linear_bias_flushed", plain(1, 1, linear), linear_bias, {.hidden_states = bf16({0})}},
      {"subnormal_expert_scale_flushed", plain(1, 1, scaled), scale, {.logits = {0}}},
      {"subnormal_bf16_gate_weight_flushed", plain(1, 1, nullptr, 1), gate({kSmall}), {.hidden_states = large}},
      {"subnormal_fp32_gate_weight_flushed",
       plain(1, 1, nullptr, 1),
       gate({0}),
       {.hidden_states = large, .fp32_gate_weight = {kSmall}}},
      {"infinite_fp32_gate_weight_clamped",
       plain(1, 1, nullptr, 1),
       gate({0}),
       {.hidden_states = half, .fp32_gate_weight = {kInf}}},
  };
}

TEST(UnlistedMutants, EachChangesSomeByteOfItsExample) {
  std::set<std::string> shown;
  for (const auto list : {choice_examples, score_examples, weight_examples, logit_examples, call_examples,
                          output_examples, constant_examples}) {
    for (const Example& example : list()) {
      const mutants::Mutant* mutant = mutants::find_mutant(example.mutant);
      ASSERT_NE(mutant, nullptr) << example.mutant;
      const auto good = all_bytes(nullptr, example.spec, example.constants, example.call);
      EXPECT_TRUE(good == all_bytes(nullptr, example.spec, example.constants, example.call)) << example.mutant;
      EXPECT_TRUE(good != all_bytes(mutant, example.spec, example.constants, example.call)) << example.mutant;
      shown.insert(example.mutant);
    }
  }
  // No mutant from U10 on is left out, but for U100 to U130: they need many rows, several calls or other outputs, as
  // the command `mutants` makes them.
  for (const mutants::Mutant& mutant : mutants::all_mutants()) {
    const int number = mutant.id[0] == 'U' ? std::atoi(mutant.id + 1) : 0;
    EXPECT_EQ(shown.contains(mutant.name), number >= 10 && (number < 100 || number > 130)) << mutant.name;
  }
}

}  // namespace
}  // namespace samebits::cpu::test
