// Bookkeeping outputs against their definitions.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "kernels/test/test_router.h"

namespace samebits::cpu::test {
namespace {

using Ids = std::vector<std::int32_t>;

struct Shape {
  std::int64_t num_tokens;
  std::int32_t num_experts, top_k, num_valid_rows, block_size;
};

class Bookkeeping : public ::testing::TestWithParam<Shape> {
 protected:
  static Routed routed() {
    const Shape shape = GetParam();
    const samebits_router_spec spec = plain_spec(0, shape.num_experts, shape.top_k);
    CallOptions options;
    options.num_valid_rows = shape.num_valid_rows;
    options.bookkeeping = true;
    options.block_size = shape.block_size;
    return TestRouter(spec, {}).route_from_logits(normal_fp32(3, shape.num_tokens * shape.num_experts), options);
  }
};

TEST_P(Bookkeeping, CountsOffsetsAndPermutation) {
  const Shape shape = GetParam();
  const Routed r = routed();
  Ids counts, offsets = {0}, slots;
  for (std::int32_t e = 0; e < shape.num_experts; ++e) {
    counts.push_back(static_cast<std::int32_t>(std::count(r.ids.begin(), r.ids.end(), e)));
    offsets.push_back(offsets.back() + counts.back());
    for (std::size_t slot = 0; slot < r.ids.size(); ++slot) {
      if (r.ids[slot] == e) slots.push_back(static_cast<std::int32_t>(slot));
    }
  }
  EXPECT_EQ(offsets.back(), std::clamp<std::int64_t>(shape.num_valid_rows, 0, shape.num_tokens) * shape.top_k);
  Ids positions(r.ids.size(), -1);
  for (std::size_t p = 0; p < slots.size(); ++p)
    positions[static_cast<std::size_t>(slots[p])] = static_cast<std::int32_t>(p);
  slots.resize(r.ids.size(), -1);
  EXPECT_EQ(r.tokens_per_expert, counts);
  EXPECT_EQ(r.expert_offsets, offsets);
  EXPECT_EQ(r.slot_of_position, slots);
  EXPECT_EQ(r.position_of_slot, positions);
}

TEST_P(Bookkeeping, PaddedBlocks) {
  const Shape shape = GetParam();
  const Routed r = routed();
  const auto sentinel = static_cast<std::int32_t>(r.ids.size());
  Ids sorted, experts;
  for (std::int32_t e = 0; e < shape.num_experts; ++e) {
    for (std::size_t slot = 0; slot < r.ids.size(); ++slot) {
      if (r.ids[slot] == e) sorted.push_back(static_cast<std::int32_t>(slot));
    }
    while (sorted.size() % static_cast<std::size_t>(shape.block_size) != 0) sorted.push_back(sentinel);
    experts.resize(sorted.size() / static_cast<std::size_t>(shape.block_size), e);
  }
  EXPECT_EQ(r.num_tokens_post_padded, Ids{static_cast<std::int32_t>(sorted.size())});
  ASSERT_LE(sorted.size(), r.sorted_token_ids.size());
  sorted.resize(r.sorted_token_ids.size(), sentinel);
  experts.resize(r.expert_ids.size(), -1);
  EXPECT_EQ(r.sorted_token_ids, sorted);
  EXPECT_EQ(r.expert_ids, experts);
}

INSTANTIATE_TEST_SUITE_P(Shapes, Bookkeeping,
                         ::testing::Values(Shape{0, 8, 2, 0, 16}, Shape{1, 8, 2, 1, 16}, Shape{37, 8, 2, 37, 1},
                                           Shape{37, 8, 3, 20, 16}, Shape{37, 8, 8, 99, 5}, Shape{5, 300, 4, 5, 64},
                                           Shape{50, 3, 1, -4, 7}, Shape{100, 1, 1, 100, 32}));

}  // namespace
}  // namespace samebits::cpu::test
