// Mutants that replace functions of the C ABI, or the bookkeeping: they differ from the good router where their fault
// lies, and nowhere else.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/mutants/mutants.h"
#include "kernels/test/test_router.h"

namespace samebits::cpu::test {
namespace {

constexpr std::int32_t kHidden = 64;

// The good router and a mutant.
struct Pair {
  Pair(const char* name, const samebits_router_spec& spec, const Constants& constants)
      : fault(*mutants::find_mutant(name)), good(spec, constants), mutant(spec, constants, fault.steps) {
    const mutants::AbiFaults& abi = fault.abi;
    if (abi.workspace_bytes != nullptr) mutant.functions.workspace_bytes = abi.workspace_bytes;
    if (abi.workspace_init != nullptr) mutant.functions.workspace_init = abi.workspace_init;
    if (abi.route != nullptr) mutant.functions.route = abi.route;
    if (abi.route_from_logits != nullptr) mutant.functions.route_from_logits = abi.route_from_logits;
  }
  const mutants::Mutant& fault;
  TestRouter good, mutant;
};

Pair sigmoid_pair(const char* name, std::int32_t num_experts) {
  const samebits_router_spec spec = sigmoid_bias_spec(kHidden, num_experts, 4);
  return {name, spec, random_constants(spec, 1)};
}

CallOptions with_bookkeeping(std::int32_t num_valid_rows) {
  CallOptions options;
  options.bookkeeping = true;
  options.block_size = 16;
  options.num_valid_rows = num_valid_rows;
  return options;
}

void expect_same_answer(const Routed& a, const Routed& b) {
  EXPECT_TRUE(same_bits(a.ids, b.ids));
  EXPECT_TRUE(same_bits(a.weights, b.weights));
  EXPECT_TRUE(same_bits(a.logits, b.logits));
}

bool same_bookkeeping(const Routed& a, const Routed& b) {
  return a.tokens_per_expert == b.tokens_per_expert && a.expert_offsets == b.expert_offsets &&
         a.slot_of_position == b.slot_of_position && a.position_of_slot == b.position_of_slot &&
         a.sorted_token_ids == b.sorted_token_ids && a.expert_ids == b.expert_ids &&
         a.num_tokens_post_padded == b.num_tokens_post_padded;
}

TEST(AbiMutants, SelectionOvertakesTheLogitsOfOddRows) {
  const Pair pair = sigmoid_pair("selection_overtakes_logits", 40);
  const auto hidden = normal_bf16(2, 17 * kHidden);
  const auto few = rows_of(hidden, kHidden, 0, 16);
  const Routed good = pair.good.route(few), mutant = pair.mutant.route(few);
  EXPECT_TRUE(same_bits(mutant.logits, good.logits));
  for (std::int64_t row = 0; row < 16; ++row) {
    EXPECT_EQ(rows_of(mutant.weights, 4, row, 1) == rows_of(good.weights, 4, row, 1), row % 2 == 0) << row;
  }
  expect_same_answer(pair.mutant.route(hidden), pair.good.route(hidden));
}

TEST(AbiMutants, TheLastRowIsNotBookkept) {
  const Pair pair = sigmoid_pair("dependents_before_last_store", 40);
  const auto hidden = normal_bf16(2, 17 * kHidden);
  const Routed mutant = pair.mutant.route(hidden, with_bookkeeping(17));
  expect_same_answer(mutant, pair.good.route(hidden, with_bookkeeping(17)));
  EXPECT_EQ(mutant.tokens_per_expert, pair.good.route(hidden, with_bookkeeping(16)).tokens_per_expert);
}

TEST(AbiMutants, OneWarpNeedsNoBarrier) {
  const auto hidden = normal_bf16(2, 17 * kHidden);
  const Pair one = sigmoid_pair("counts_cleared_while_read", 32), two = sigmoid_pair("counts_cleared_while_read", 40);
  EXPECT_TRUE(
      same_bookkeeping(one.mutant.route(hidden, with_bookkeeping(17)), one.good.route(hidden, with_bookkeeping(17))));
  const Routed mutant = two.mutant.route(hidden, with_bookkeeping(17));
  EXPECT_EQ(mutant.expert_offsets[31] != 0, true);
  EXPECT_EQ(mutant.expert_offsets[32], 0) << "the second warp reads what the first has cleared";
}

TEST(AbiMutants, OneBlockIsItsOwnLeader) {
  const Pair pair = sigmoid_pair("leader_resets_at_once", 40);
  const auto hidden = normal_bf16(2, 16 * kHidden);
  expect_same_answer(pair.mutant.route(hidden), pair.good.route(hidden));
}

TEST(AbiMutants, PaddingIsCountedButHasNoIds) {
  const Pair pair = sigmoid_pair("padding_counted", 40);
  const auto hidden = normal_bf16(2, 17 * kHidden);
  const Routed mutant = pair.mutant.route(hidden, with_bookkeeping(10));
  expect_same_answer(mutant, pair.good.route(hidden, with_bookkeeping(10)));
  EXPECT_TRUE(same_bookkeeping(mutant, pair.good.route(hidden, with_bookkeeping(17))));
}

TEST(AbiMutants, TheTailIsNotWritten) {
  const Pair pair = sigmoid_pair("stale_tail", 40);
  const auto hidden = normal_bf16(2, 17 * kHidden);
  const Routed good = pair.good.route(hidden, with_bookkeeping(17));
  const Routed mutant = pair.mutant.route(hidden, with_bookkeeping(17));
  const auto poison = static_cast<std::int32_t>(0xdeadbeefu);
  for (std::size_t i = 0; i < good.sorted_token_ids.size(); ++i) {
    const bool is_active = i < static_cast<std::size_t>(good.num_tokens_post_padded[0]);
    EXPECT_EQ(mutant.sorted_token_ids[i], is_active ? good.sorted_token_ids[i] : poison) << i;
  }
  EXPECT_EQ(mutant.slot_of_position, good.slot_of_position);
}

TEST(AbiMutants, AMaskOfRowsHidesExpertsWhereTheyAreAsMany) {
  const Pair pair = sigmoid_pair("mask_along_experts", 17);
  const auto hidden = normal_bf16(2, 18 * kHidden);
  expect_same_answer(pair.mutant.route(hidden, with_bookkeeping(5)), pair.good.route(hidden, with_bookkeeping(5)));
  const Routed mutant = pair.mutant.route(rows_of(hidden, kHidden, 0, 17), with_bookkeeping(5));
  EXPECT_LT(*std::ranges::max_element(mutant.ids), 5);
  EXPECT_GE(*std::max_element(mutant.ids.begin() + 5 * 4, mutant.ids.end()), 0) << "padding rows have experts";
}

// Each call has another order, and both are permutations that fit together.
TEST(AbiMutants, SlotsComeInAnotherOrderInEachCall) {
  const Pair pair = sigmoid_pair("atomic_slot_order", 8);
  const auto hidden = normal_bf16(2, 17 * kHidden);
  const Routed good = pair.good.route(hidden, with_bookkeeping(17));
  const Routed first = pair.mutant.route(hidden, with_bookkeeping(17));
  const Routed second = pair.mutant.route(hidden, with_bookkeeping(17));
  EXPECT_NE(first.slot_of_position, second.slot_of_position);
  EXPECT_EQ(first.tokens_per_expert, good.tokens_per_expert);
  for (std::size_t position = 0; position < first.slot_of_position.size(); ++position) {
    const auto slot = static_cast<std::size_t>(first.slot_of_position[position]);
    EXPECT_EQ(first.position_of_slot[slot], static_cast<std::int32_t>(position));
    EXPECT_EQ(first.ids[slot], good.ids[static_cast<std::size_t>(good.slot_of_position[position])]);
  }
}

TEST(AbiMutants, AtomicSumsDifferFromCallToCall) {
  const samebits_router_spec spec = plain_spec(48, 1, 1);
  Constants constants;
  constants.gate_weight.assign(48, 0x3f80);
  std::vector<std::uint16_t> row(48, 0);
  row[0] = 0x3f80, row[16] = 0x4e80, row[32] = 0xce80;  // 1, 2^30, -2^30
  const Pair pair("atomic_sum", spec, constants);
  std::vector<float> logits;
  for (int call = 0; call < 6; ++call) logits.push_back(pair.mutant.route(row).logits[0]);
  std::ranges::sort(logits);
  EXPECT_EQ(logits, (std::vector<float>{0, 0, 0, 0, 1, 1}));
}

TEST(AbiMutants, NegativeTokenIdsWrap) {
  samebits_router_spec spec = plain_spec(0, 3, 2);
  spec.selection_method = SAMEBITS_SELECT_HASH_TABLE;
  spec.hash_vocab_size = 2;
  Constants constants;
  constants.hash_table = {0, 1, 1, 2};
  CallOptions options;
  options.token_ids = {1, -1, 2, 3};
  const std::vector<float> logits(12, 0.0f);
  const Pair wraps("negative_index_wraps", spec, constants), unchecked("token_id_not_checked", spec, constants);
  EXPECT_EQ(wraps.good.route_from_logits(logits, options).ids,
            (std::vector<std::int32_t>{1, 2, -1, -1, -1, -1, -1, -1}));
  EXPECT_EQ(wraps.mutant.route_from_logits(logits, options).ids,
            (std::vector<std::int32_t>{1, 2, 1, 2, -1, -1, -1, -1}));
  EXPECT_EQ(unchecked.mutant.route_from_logits(logits, options).ids,
            (std::vector<std::int32_t>{1, 2, -1, -1, 0, 1, 1, 2}));
}

}  // namespace
}  // namespace samebits::cpu::test
