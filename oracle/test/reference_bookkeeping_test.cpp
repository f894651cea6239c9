#include <gmock/gmock.h>

#include <algorithm>
#include <random>

#include "oracle/reference/answer.h"

namespace samebits::oracle {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(Bookkeeping, CountsOffsetsAndBothPermutations) {
  const Bookkeeping b = bookkeeping(std::vector<std::int64_t>{2, 0, 0, 2, 2, 3}, 3, 2, 4, 0);
  EXPECT_THAT(b.tokens_per_expert, ElementsAre(2, 0, 3, 1));
  EXPECT_THAT(b.expert_offsets, ElementsAre(0, 2, 2, 5, 6));
  EXPECT_THAT(b.slot_of_position, ElementsAre(1, 2, 0, 3, 4, 5));
  EXPECT_THAT(b.position_of_slot, ElementsAre(2, 0, 1, 3, 4, 5));
  EXPECT_THAT(b.sorted_token_ids, IsEmpty());
  EXPECT_THAT(b.expert_ids, IsEmpty());
  EXPECT_EQ(b.num_tokens_post_padded, 0);
}

TEST(Bookkeeping, PaddingRowsBelongToNobody) {
  const Bookkeeping b = bookkeeping(std::vector<std::int64_t>{1, 0, -1, -1}, 2, 2, 2, 4);
  EXPECT_THAT(b.tokens_per_expert, ElementsAre(1, 1));
  EXPECT_THAT(b.slot_of_position, ElementsAre(1, 0, -1, -1));
  EXPECT_THAT(b.position_of_slot, ElementsAre(1, 0, -1, -1));
  EXPECT_THAT(b.sorted_token_ids, ElementsAre(1, 4, 4, 4, 0, 4, 4, 4));
  EXPECT_THAT(b.expert_ids, ElementsAre(0, 1));
  EXPECT_EQ(b.num_tokens_post_padded, 8);
}

// vllm-xpu-kernels 282: counts {1, 0, 2, 1} in blocks of 4 start at 0, 4, 4, 8 and end at 12.
TEST(Bookkeeping, BlocksOfEachExpertArePadded) {
  const Bookkeeping b = bookkeeping(std::vector<std::int64_t>{0, 2, 2, 3}, 4, 1, 4, 4);
  EXPECT_THAT(b.expert_ids, ElementsAre(0, 2, 3, -1));  // capacity (4 + 4 * 3) / 4
  EXPECT_THAT(b.sorted_token_ids, ElementsAre(0, 4, 4, 4, 1, 2, 4, 4, 3, 4, 4, 4, 4, 4, 4, 4));
  EXPECT_EQ(b.num_tokens_post_padded, 12);
}

// flashinfer 3198: 21 slots, 4 experts, blocks of 8 need (21 + 28) / 8 = 6 blocks, and counts {1, 1, 1, 18} use them.
TEST(Bookkeeping, CapacityIsAttained) {
  std::vector<std::int64_t> ids(21, 3);
  ids[0] = 0;
  ids[1] = 1;
  ids[2] = 2;
  const Bookkeeping b = bookkeeping(ids, 21, 1, 4, 8);
  EXPECT_EQ(b.expert_ids.size(), 6u);
  EXPECT_EQ(b.num_tokens_post_padded, 48);
  EXPECT_THAT(b.expert_ids, ElementsAre(0, 1, 2, 3, 3, 3));
}

TEST(Bookkeeping, FewerSlotsThanExpertsBoundTheCapacity) {
  const Bookkeeping b = bookkeeping(std::vector<std::int64_t>{5, 9}, 1, 2, 64, 16);
  EXPECT_EQ(b.expert_ids.size(), 2u);  // (2 + 2 * 15) / 16
  EXPECT_THAT(b.expert_ids, ElementsAre(5, 9));
}

TEST(Bookkeeping, NoTokens) {
  const Bookkeeping b = bookkeeping({}, 0, 8, 3, 16);
  EXPECT_THAT(b.tokens_per_expert, Each(0));
  EXPECT_THAT(b.expert_offsets, ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(b.sorted_token_ids, IsEmpty());
  EXPECT_EQ(b.num_tokens_post_padded, 0);
}

TEST(Bookkeeping, HoldsItsDefinitionOnRandomIds) {
  std::mt19937 random(9);
  for (int i = 0; i < 200; ++i) {
    const std::int64_t experts = 1 + random() % 9, tokens = random() % 12, k = 1 + random() % 3;
    const std::int32_t block = 1 + static_cast<std::int32_t>(random() % 5);
    std::vector<std::int64_t> ids(static_cast<std::size_t>(tokens * k));
    for (auto& id : ids) id = static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(experts + 1)) - 1;
    const Bookkeeping b = bookkeeping(ids, tokens, k, experts, block);
    std::int32_t padded = 0;
    for (std::size_t e = 0; e < static_cast<std::size_t>(experts); ++e) {
      const std::int32_t count = b.tokens_per_expert[e];
      ASSERT_EQ(count, std::count(ids.begin(), ids.end(), static_cast<std::int64_t>(e)));
      ASSERT_EQ(b.expert_offsets[e + 1] - b.expert_offsets[e], count);
      for (std::int32_t p = b.expert_offsets[e]; p < b.expert_offsets[e + 1]; ++p) {
        const std::int32_t slot = b.slot_of_position[static_cast<std::size_t>(p)];
        ASSERT_EQ(ids[static_cast<std::size_t>(slot)], static_cast<std::int64_t>(e));
        ASSERT_EQ(b.position_of_slot[static_cast<std::size_t>(slot)], p);
        if (p > b.expert_offsets[e]) {
          ASSERT_LT(b.slot_of_position[static_cast<std::size_t>(p - 1)], slot);
        }
        ASSERT_EQ(b.sorted_token_ids[static_cast<std::size_t>(padded + p - b.expert_offsets[e])], slot);
      }
      for (std::int32_t p = 0; p < count; p += block) {
        ASSERT_EQ(b.expert_ids[static_cast<std::size_t>((padded + p) / block)], static_cast<std::int32_t>(e));
      }
      padded += (count + block - 1) / block * block;
    }
    ASSERT_EQ(b.num_tokens_post_padded, padded);
    ASSERT_LE(static_cast<std::size_t>(padded), b.sorted_token_ids.size());
  }
}

}  // namespace
}  // namespace samebits::oracle
