// Slots by expert on the device against the CPU backend.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <ostream>
#include <vector>

#include "kernels/cpu/bookkeep.h"
#include "kernels/cuda/launch.h"
#include "kernels/dispatch/bookkeep_rows.h"
#include "kernels/test/random_bits.h"
#include "kernels/test_cuda/device_array.h"

namespace samebits::cuda::test {
namespace {

using Ints = std::vector<std::int32_t>;

struct Shape {
  std::int64_t num_tokens;
  std::int32_t columns, gate_rows, block_size;
};

std::ostream& operator<<(std::ostream& out, const Shape& s) {
  return out << "T = " << s.num_tokens << ", K = " << s.columns << ", G = " << s.gate_rows << ", B = " << s.block_size;
}

// How the ids are drawn.
enum class Ids { kUniform, kOneExpert, kNone, kFewWithout };

// distinct: no id comes twice in a row.
Ints draw_ids(const Shape& shape, Ids kind, bool distinct, std::uint64_t seed) {
  Ints ids;
  for (std::int64_t slot = 0; slot < shape.num_tokens * shape.columns; ++slot) {
    const std::uint64_t bits = cpu::test::draw(seed, static_cast<std::uint64_t>(slot));
    const auto id = static_cast<std::int32_t>(bits % static_cast<std::uint64_t>(shape.gate_rows));
    switch (kind) {
      case Ids::kUniform:
        ids.push_back(id);
        break;
      case Ids::kOneExpert:
        ids.push_back(shape.gate_rows - 1);
        break;
      case Ids::kNone:
        ids.push_back(-1);
        break;
      case Ids::kFewWithout:
        ids.push_back((bits >> 40) % 3 == 0 ? -1 : id);
    }
    const auto row = ids.end() - 1 - slot % shape.columns;
    while (distinct && ids.back() >= 0 && std::find(row, ids.end() - 1, ids.back()) != ids.end() - 1)
      ids.back() = (ids.back() + 1) % shape.gate_rows;
  }
  return ids;
}

// What does it: launch_bookkeep by ids alone, or launch_bookkeep_rows with rows or slots as units.
enum class By { kIds, kRows, kSlots };

RouterView router_of(const Shape& shape, By by) {
  RouterView router{};
  router.gate_rows = shape.gate_rows;
  router.columns = shape.columns;
  if (by == By::kSlots) router.spec.zero_type = SAMEBITS_ZERO_EXPERTS_IDENTITY_REMAPPED_TO_ID0_WEIGHT0;
  return router;
}

// All outputs, in the order of BookkeepOutputs.
std::vector<Ints> outputs_of(const Shape& shape, std::int32_t poison) {
  const auto slots = static_cast<std::size_t>(shape.num_tokens * shape.columns);
  const auto experts = static_cast<std::size_t>(shape.gate_rows);
  const std::size_t blocks = shape.block_size == 0
                                 ? 0
                                 : static_cast<std::size_t>(cpu::num_blocks(static_cast<std::int64_t>(slots),
                                                                            shape.gate_rows, shape.block_size));
  const std::size_t sizes[] = {
      experts, experts + 1, slots, slots, blocks * static_cast<std::size_t>(shape.block_size), blocks, 1};
  std::vector<Ints> outputs;
  for (const std::size_t size : sizes) outputs.emplace_back(size, poison);
  return outputs;
}

template <class Pointers>
void point(std::int32_t* const (&to)[7], Pointers& outputs) {
  outputs.tokens_per_expert = to[0];
  outputs.expert_offsets = to[1];
  outputs.slot_of_position = to[2];
  outputs.position_of_slot = to[3];
  outputs.sorted_token_ids = to[4];
  outputs.expert_ids = to[5];
  outputs.num_tokens_post_padded = to[6];
}

constexpr std::int32_t kPoison = 0x55555555;

// wanted: which outputs; the others stay as they were.
std::vector<Ints> cpu_outputs(const Shape& shape, const Ints& ids, unsigned wanted) {
  std::vector<Ints> values = outputs_of(shape, kPoison);
  cpu::RouterConstants constants{};
  constants.spec.num_experts = shape.gate_rows;
  constants.spec.top_k = shape.columns;
  samebits_outputs outputs{};
  outputs.block_size = shape.block_size;
  std::int32_t* to[7];
  for (unsigned i = 0; i < 7; ++i) to[i] = (wanted >> i & 1) != 0 ? values[i].data() : nullptr;
  point(to, outputs);
  Ints scratch(static_cast<std::size_t>(shape.gate_rows));
  cpu::bookkeep_tc256(constants, ids.data(), shape.num_tokens, scratch.data(), outputs);
  return values;
}

std::vector<Ints> device_outputs(const Shape& shape, By by, const Ints& ids, unsigned wanted) {
  std::vector<Ints> values = outputs_of(shape, kPoison);
  std::vector<std::unique_ptr<DeviceArray<std::int32_t>>> arrays;
  std::int32_t* to[7];
  for (unsigned i = 0; i < 7; ++i) {
    Ints guarded = values[i];
    guarded.push_back(kPoison);
    arrays.push_back(std::make_unique<DeviceArray<std::int32_t>>(guarded));
    to[i] = (wanted >> i & 1) != 0 ? arrays.back()->data() : nullptr;
  }
  const RouterView router = router_of(shape, by);
  Ints with_guard = ids;
  with_guard.push_back(kPoison);
  const DeviceArray<std::int32_t> device_ids(with_guard);
  CallView call{};
  call.num_tokens = shape.num_tokens;
  call.slot_ids = device_ids.data();
  BookkeepOutputs outputs{};
  outputs.block_size = shape.block_size;
  point(to, outputs);
  if (by == By::kIds) {
    const std::size_t bytes = bookkeep_scratch_bytes(shape.num_tokens, shape.columns, shape.gate_rows);
    DeviceArray<unsigned char> scratch(bytes + 4);
    scratch.fill_bytes(0x77);
    check(launch_bookkeep(router, call, outputs, scratch.data(), bytes, nullptr), "launch_bookkeep");
    check(cudaDeviceSynchronize(), "bookkeeping");
    EXPECT_EQ(scratch.read(bytes, 4), std::vector<unsigned char>(4, 0x77)) << "written behind the scratch";
  } else {
    DeviceArray<unsigned char> counts(kTileCountBytes + 4);
    counts.fill_bytes(0x77);
    check(launch_bookkeep_rows(router, call, outputs, counts.data(), nullptr), "launch_bookkeep_rows");
    check(cudaDeviceSynchronize(), "bookkeeping");
    EXPECT_EQ(counts.read(kTileCountBytes, 4), std::vector<unsigned char>(4, 0x77)) << "written behind the counts";
  }
  for (unsigned i = 0; i < 7; ++i) {
    values[i] = arrays[i]->read();
    EXPECT_EQ(values[i].back(), kPoison) << "written behind output " << i;
    values[i].pop_back();
  }
  return values;
}

void expect_same(const Shape& shape, Ids kind, unsigned wanted) {
  for (const By by : {By::kIds, By::kRows, By::kSlots}) {
    if (by != By::kIds && !can_bookkeep_rows(router_of(shape, by), shape.num_tokens, shape.block_size)) continue;
    if (by == By::kRows && shape.columns > shape.gate_rows) continue;
    const Ints ids = draw_ids(shape, kind, by == By::kRows, 5);
    const std::vector<Ints> found = device_outputs(shape, by, ids, wanted), right = cpu_outputs(shape, ids, wanted);
    for (std::size_t i = 0; i < 7; ++i) {
      if (found[i] == right[i]) continue;
      const auto at = std::mismatch(found[i].begin(), found[i].end(), right[i].begin());
      ADD_FAILURE() << shape << ", by " << static_cast<int>(by) << ", ids " << static_cast<int>(kind) << ", output "
                    << i << ", place " << at.first - found[i].begin() << ": " << *at.first << ", not " << *at.second;
    }
  }
}

template <class Shapes>
void expect_same_of(const Shapes& shapes) {
  for (const Shape& shape : shapes) {
    const bool blocks = shape.block_size > 0;
    for (const Ids kind : {Ids::kUniform, Ids::kOneExpert, Ids::kNone, Ids::kFewWithout})
      expect_same(shape, kind, blocks ? 0x7f : 0x0f);
  }
}

class BookkeepTest : public DeviceTest {};

TEST_F(BookkeepTest, EqualsTheCpu) {
  const Shape shapes[] = {
      {0, 8, 256, 0},       {0, 8, 256, 64},      {1, 1, 1, 1},        {1, 1, 1, 128},      {1, 8, 256, 64},
      {3, 2, 8, 5},         {128, 8, 288, 128},   {257, 22, 512, 7},   {1000, 1, 3, 16},    {4097, 6, 64, 64},
      {5, 64, 2304, 64},    {999, 320, 2560, 32}, {30000, 9, 1, 3},    {8193, 8, 255, 1},   {16384, 8, 1024, 64},
      {16385, 8, 1024, 64}, {64, 8, 1025, 64},    {300, 10, 512, 16},  {32768, 4, 300, 32}, {32769, 3, 300, 32},
      {8192, 16, 896, 64},  {700, 40, 100, 16},   {17, 8, 288, 64},    {33, 8, 256, 1},     {64, 6, 384, 100000},
      {255, 8, 128, 16},    {256, 8, 288, 64},    {513, 8, 288, 64},   {1024, 8, 256, 64},  {1025, 16, 896, 64},
      {2048, 8, 512, 128},  {4096, 8, 288, 64},   {4096, 16, 896, 64}, {8191, 8, 384, 64}};
  expect_same_of(shapes);
}

// Rows, or slots where an id may come twice in a row, at which the way changes.
TEST_F(BookkeepTest, EqualsTheCpuWhereTheWayChanges) {
  std::vector<Shape> shapes;
  for (const std::int64_t units : {32, 64, 116, 128, 256, 1024, 2048}) {
    for (const std::int64_t more : {0, 1}) {
      for (const std::int32_t gate_rows : {128, 256, 288, 384}) shapes.push_back({units + more, 4, gate_rows, 16});
      shapes.push_back({units + more, 1, 513, 3});
    }
  }
  for (const Shape& shape :
       {Shape{32768, 1, 300, 16}, Shape{32769, 1, 300, 16}, Shape{32768, 4, 64, 0}, Shape{4096, 8, 512, 64},
        Shape{16384, 8, 512, 64}, Shape{2049, 16, 896, 64}, Shape{2048, 16, 896, 64}, Shape{512, 64, 400, 16}})
    shapes.push_back(shape);
  expect_same_of(shapes);
}

// Around the largest block that counts as it is.
TEST_F(BookkeepTest, LargeBlocks) {
  std::vector<Shape> shapes;
  for (const std::int32_t block_size : {65535, 65536, 65537})
    for (const std::int64_t rows : {20, 200}) shapes.push_back({rows, 4, 12, block_size});
  shapes.push_back({70000, 2, 3, 65536});
  expect_same_of(shapes);
}

TEST_F(BookkeepTest, WritesWhatIsWanted) {
  for (unsigned wanted = 0; wanted < 0x80; ++wanted) {
    expect_same({70, 3, 20, 8}, Ids::kFewWithout, wanted);
    expect_same({1100, 3, 20, 8}, Ids::kFewWithout, wanted);
  }
}

TEST_F(BookkeepTest, ManySlots) {
  expect_same({1 << 20, 8, 256, 64}, Ids::kUniform, 0x7f);
}

TEST_F(BookkeepTest, ScratchGrowsWithTheRows) {
  for (const std::int64_t gate_rows : {1, 256, 2560}) {
    std::size_t last = 0;
    for (std::int64_t t = 0; t < (std::int64_t{1} << 27); t += 1 + t / 7) {
      const std::size_t bytes = bookkeep_scratch_bytes(t, 8, gate_rows);
      EXPECT_GE(bytes, last) << "T = " << t << ", G = " << gate_rows;
      last = bytes;
    }
  }
}

}  // namespace
}  // namespace samebits::cuda::test
