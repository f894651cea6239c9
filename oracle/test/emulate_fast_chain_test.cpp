#include "oracle/emulate/fast_chain.h"

#include <gtest/gtest.h>

#include <bit>
#include <random>

#include "oracle/emulate/gate_weight.h"
#include "oracle/tensors/bf16.h"
#include "oracle/test/emulate_categories.h"

namespace samebits::oracle {
namespace {

using test::Bits16;
using test::Category;

// Rows and kColumns columns of one category in the layout of the kernel.
struct Block {
  int steps;
  Bits16 row;
  std::vector<Bits16> columns;
  std::vector<float> row_values, column_values;
  std::vector<std::int16_t> row_exponents, column_exponents;

  Block(test::Operands& operands, Category category, int num_steps) : steps(num_steps) {
    const std::size_t length = static_cast<std::size_t>(16 * steps);
    columns.resize(fast_chain::kColumns);
    for (Bits16& column : columns) operands.fill(category, length, row, column);  // the last row stays
    for (std::size_t k = 0; k < length; ++k) {
      row_values.push_back(bf16_to_fp32(row[k]));
      row_exponents.push_back(chain_exponent(row[k]));
      for (const Bits16& column : columns) {
        column_values.push_back(bf16_to_fp32(column[k]));
        column_exponents.push_back(chain_exponent(column[k]));
      }
    }
  }
  fast_chain::Operands operands() const {
    return {row_values.data(), row_exponents.data(), column_values.data(), column_exponents.data(), steps};
  }
};

class FastChain : public testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Categories, FastChain, testing::Range(0, test::kNumCategories));

TEST_P(FastChain, EqualsTheDefinitionOnEveryInstructionSet) {
  const auto category = static_cast<Category>(GetParam());
  test::Operands operands(41);
  int valid = 0, total = 0;
  for (int i = 0; i < 120; ++i) {
    const Block block(operands, category, 1 + i % 16);
    std::vector<std::uint32_t> expected;
    for (const Bits16& column : block.columns) expected.push_back(chain(sm90(), 0, block.row, column));
    for (const fast_chain::Isa& isa : fast_chain::available_isas()) {
      float result[fast_chain::kColumns];
      const std::uint32_t invalid = isa.function(block.operands(), result);
      for (std::size_t n = 0; n < expected.size(); ++n) {
        ++total;
        if ((invalid >> n & 1u) != 0) continue;
        ++valid;
        ASSERT_EQ(std::bit_cast<std::uint32_t>(result[n]), expected[n]) << isa.name << " column " << n;
      }
    }
  }
  // The regions that real routers live in must not fall back; elsewhere falling back is right, always doing so only
  // where no chain stays in range.
  if (category == Category::kNormal || category == Category::kWideExponents || category == Category::kCancellation ||
      category == Category::kAlignmentLimit) {
    EXPECT_EQ(valid, total);
  }
}

// Exponents that cross the ends of the range in which floating point can do it.
TEST(FastChain, EqualsTheDefinitionAtTheEndsOfItsRange) {
  std::mt19937 random(45);
  int valid = 0, invalid_lanes = 0;
  for (const int centre : {-108, -104, -100, -96, 112, 116, 120, 124}) {
    for (int i = 0; i < 40; ++i) {
      test::Operands operands(random());
      Block block(operands, Category::kNormal, 1 + i % 4);
      const auto draw = [&](int exponent) {
        const unsigned field = static_cast<unsigned>(127 + exponent) - random() % 4;
        return static_cast<std::uint16_t>((random() % 2 << 15) | (field << 7) | random() % 128);
      };
      for (std::size_t k = 0; k < block.row.size(); ++k) {
        block.row[k] = draw(centre / 2);
        block.row_values[k] = bf16_to_fp32(block.row[k]);
        block.row_exponents[k] = chain_exponent(block.row[k]);
        for (std::size_t n = 0; n < fast_chain::kColumns; ++n) {
          const std::uint16_t w = random() % 2 == 0 ? std::uint16_t{0} : draw(centre - centre / 2);
          block.columns[n][k] = w;
          block.column_values[k * fast_chain::kColumns + n] = bf16_to_fp32(w);
          block.column_exponents[k * fast_chain::kColumns + n] = chain_exponent(w);
        }
      }
      for (const fast_chain::Isa& isa : fast_chain::available_isas()) {
        float result[fast_chain::kColumns];
        const std::uint32_t invalid = isa.function(block.operands(), result);
        for (std::size_t n = 0; n < fast_chain::kColumns; ++n) {
          ((invalid >> n & 1u) != 0 ? invalid_lanes : valid) += 1;
          if ((invalid >> n & 1u) != 0) continue;
          ASSERT_EQ(std::bit_cast<std::uint32_t>(result[n]), chain(sm90(), 0, block.row, block.columns[n]))
              << isa.name << " exponents near " << centre;
        }
      }
    }
  }
  EXPECT_GT(valid, 1000);
  EXPECT_GT(invalid_lanes, 1000);
}

TEST(FastChain, ReportsOperandsThatAreNotFinite) {
  test::Operands operands(42);
  for (const std::uint16_t special : Bits16{0x7f80, 0xff80, 0x7fc0}) {
    for (const std::uint16_t partner : Bits16{0x0000, 0x3f80, 0x7f80}) {
      Block block(operands, Category::kNormal, 2);
      block.row_values[5] = bf16_to_fp32(special);
      block.row_exponents[5] = chain_exponent(special);
      for (std::size_t n = 0; n < fast_chain::kColumns; ++n) {
        block.column_values[5 * fast_chain::kColumns + n] = bf16_to_fp32(partner);
        block.column_exponents[5 * fast_chain::kColumns + n] = chain_exponent(partner);
      }
      for (const fast_chain::Isa& isa : fast_chain::available_isas()) {
        float result[fast_chain::kColumns];
        EXPECT_EQ(isa.function(block.operands(), result), 0xffffffffu) << isa.name;
      }
    }
  }
}

TEST(FastChain, ReportsSumsNearTheIntegerLimit) {
  test::Operands operands(43);
  Block block(operands, Category::kNormal, 1);
  std::fill(block.row_values.begin(), block.row_values.end(), bf16_to_fp32(0x3fff));
  std::fill(block.column_values.begin(), block.column_values.end(), bf16_to_fp32(0x3fff));
  std::fill(block.row_exponents.begin(), block.row_exponents.end(), std::int16_t{0});
  std::fill(block.column_exponents.begin(), block.column_exponents.end(), std::int16_t{0});
  for (const fast_chain::Isa& isa : fast_chain::available_isas()) {
    float result[fast_chain::kColumns];
    EXPECT_EQ(isa.function(block.operands(), result), 0xffffffffu) << isa.name;
  }
}

TEST(FastChain, ZeroColumnsAreValidAndPositiveZero) {
  test::Operands operands(44);
  Block block(operands, Category::kNormal, 3);
  for (std::size_t i = 0; i < block.column_values.size(); ++i) {
    block.column_values[i] = -0.0f;
    block.column_exponents[i] = chain_exponent(0x8000);
  }
  for (const fast_chain::Isa& isa : fast_chain::available_isas()) {
    float result[fast_chain::kColumns];
    EXPECT_EQ(isa.function(block.operands(), result), 0u);
    for (const float r : result) EXPECT_EQ(std::bit_cast<std::uint32_t>(r), 0u);
  }
}

TEST(FastChain, BaselineIsAlwaysThereAndBestComesFirst) {
  ASSERT_FALSE(fast_chain::available_isas().empty());
  EXPECT_STREQ(fast_chain::available_isas().back().name, "baseline");
  EXPECT_EQ(fast_chain::selected(), fast_chain::available_isas().front().function);
  EXPECT_THROW(fast_chain::select_for_test("none"), std::invalid_argument);
}

}  // namespace
}  // namespace samebits::oracle
