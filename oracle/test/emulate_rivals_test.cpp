// The categories of operands tell rival models of a tensor core from the right one: each rival differs from step() as
// often as it differed from an H200, and nowhere else.
//
// The counts are mismatches of each rival among 12,582,912 results of mma.sync.m16n8k16 on an H200 a category: 768
// tiles of 64 rows and 256 columns. step() itself had none.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <string>

#include "oracle/emulate/tc256.h"
#include "oracle/test/emulate_categories.h"

namespace samebits::oracle {
namespace {

using test::Bits16;
using test::Category;
using test::Operands;

enum class Cut { kTowardZero, kFloor, kNearest };

// A step with one thing or another done differently.
struct Rival {
  const char* name;
  int products = 16;
  int fraction_bits = 25;
  int exponent_floor = -133;
  bool zeros_count = false;  // a zero has the exponent of the least subnormal
  Cut addends = Cut::kTowardZero;
  bool final_to_nearest = false;
  bool accumulator_last = false;  // c is added to the finished sum of products
  bool normalised = false;        // a product of significands of 2 or more has the next exponent
};

// m * 2^-drop as an integer, cut as the rival says. drop may be negative.
std::int64_t cut(std::uint64_t magnitude, bool negative, int drop, Cut how) {
  if (drop <= 0) return static_cast<std::int64_t>(magnitude << -drop) * (negative ? -1 : 1);
  const std::uint64_t kept = drop > 62 ? 0 : magnitude >> drop;
  const bool inexact = drop > 62 ? magnitude != 0 : kept << drop != magnitude;
  const bool half = drop <= 62 && (magnitude >> (drop - 1) & 1) != 0;
  const bool away = (how == Cut::kNearest && half) || (how == Cut::kFloor && negative && inexact);
  return (static_cast<std::int64_t>(kept) + (away ? 1 : 0)) * (negative ? -1 : 1);
}

// sum * 2^unit to fp32. A sum of 0 is +0; of those that underflow to 0 only the nearest keeps the sign.
std::uint32_t to_fp32(std::int64_t sum, int unit, bool to_nearest) {
  if (sum == 0) return 0;
  const std::uint32_t sign = sum < 0 ? 0x80000000u : 0u;
  const std::uint64_t magnitude = static_cast<std::uint64_t>(sum < 0 ? -sum : sum);
  const int lead = unit + static_cast<int>(std::bit_width(magnitude)) - 1;
  const int drop = std::max(lead, -126) - 23 - unit;
  std::uint64_t kept = drop <= 0 ? magnitude << -drop : drop > 62 ? 0 : magnitude >> drop;
  if (to_nearest && drop > 0 && drop <= 62) {
    const std::uint64_t rest = magnitude - (kept << drop), half = std::uint64_t{1} << (drop - 1);
    if (rest > half || (rest == half && kept % 2 == 1)) ++kept;
  }
  if (kept == 0) return to_nearest ? sign : 0u;
  // A carry out of the significand raises the exponent field.
  const std::int64_t bits = (std::int64_t{std::max(lead, -126) + 126} << 23) + static_cast<std::int64_t>(kept);
  return sign | (bits >= 0x7f800000 ? 0x7f800000u : static_cast<std::uint32_t>(bits));
}

struct Term {
  std::uint64_t significand;
  int exponent;
  bool negative;
};
Term decoded(std::uint32_t bits, int fraction_bits) {  // bf16 has 7, fp32 has 23
  const std::uint32_t field = bits >> fraction_bits & 0xffu;
  return {(bits & ((1u << fraction_bits) - 1)) | (field != 0 ? 1u << fraction_bits : 0u),
          std::max(static_cast<int>(field), 1) - 127, bits >> (fraction_bits + 8) != 0};
}

std::uint32_t rival_part(const Rival& rival, std::uint32_t c, const std::uint16_t* a, const std::uint16_t* b) {
  std::array<Term, 16> terms;
  const Term addend = decoded(c, 23);
  int emax = rival.exponent_floor;
  for (int k = 0; k < rival.products; ++k) {
    const Term x = decoded(a[k], 7), y = decoded(b[k], 7);
    Term& t = terms[static_cast<std::size_t>(k)];
    t = {x.significand * y.significand, x.exponent + y.exponent, x.negative != y.negative};
    const int exponent = t.exponent + (rival.normalised && t.significand >= 1u << 15 ? 1 : 0);
    if (rival.zeros_count || t.significand != 0) emax = std::max(emax, exponent);
  }
  const bool counts = rival.zeros_count || addend.significand != 0;
  if (counts && !rival.accumulator_last) emax = std::max(emax, addend.exponent);
  std::int64_t sum = 0;
  for (int k = 0; k < rival.products; ++k) {
    const Term& t = terms[static_cast<std::size_t>(k)];
    if (t.significand == 0) continue;
    sum += cut(t.significand, t.negative, emax - t.exponent + 14 - rival.fraction_bits, rival.addends);
  }
  int common = emax;
  if (rival.accumulator_last && addend.significand != 0) common = std::max(common, addend.exponent);
  sum = cut(static_cast<std::uint64_t>(sum < 0 ? -sum : sum), sum < 0, common - emax, Cut::kTowardZero);
  if (addend.significand != 0) {
    sum += cut(addend.significand, addend.negative, common - addend.exponent + 23 - rival.fraction_bits, rival.addends);
  }
  return to_fp32(sum, common - rival.fraction_bits, rival.final_to_nearest);
}

// Finite operands only.
std::uint32_t rival_step(const Rival& rival, std::uint32_t c, const Bits16& a, const Bits16& b) {
  for (std::size_t k = 0; k < 16; k += static_cast<std::size_t>(rival.products)) {
    if ((c & 0x7fffffffu) == 0x7f800000u) return c;  // products of finite operands change no infinity
    c = rival_part(rival, c, &a[k], &b[k]);
  }
  return c;
}

constexpr int kNoFloor = -1000;
constexpr double kTableDots = 12'582'912;
constexpr double kRound = 50'000;  // half of the last digit of a count that is printed in millions

struct Count {
  double count;
  double printed_within = 0;
};
constexpr Count million(double count) {
  return {count * 1e6, kRound};
}

constexpr std::array kCategories = {Category::kNormal,     Category::kWideExponents,   Category::kCancellation,
                                    Category::kSubnormal,  Category::kZerosBesideHuge, Category::kZerosOnly,
                                    Category::kFloorRegion};
struct Row {
  Rival rival;
  std::array<Count, kCategories.size()> counts;
};
const Row kTable[] = {
    {{.name = "zeros count, floor -126", .exponent_floor = -126, .zeros_count = true},
     {{{0}, {0}, {0}, {654'490}, {1'448'840}, {982'035}, {1'771'431}}}},
    {{.name = "floor -126", .exponent_floor = -126}, {{{0}, {0}, {0}, {147'672}, {523}, {295'645}, {1'771'431}}}},
    {{.name = "no floor", .exponent_floor = kNoFloor}, {{{0}, {0}, {0}, {95}, {36}, {3'014}, {1'673}}}},
    {{.name = "24 fraction bits", .fraction_bits = 24},
     {{{575'517}, {2'863'576}, {5'069'657}, million(5.5), {234'647}, {126'611}, million(1.1)}}},
    {{.name = "26 fraction bits", .fraction_bits = 26},
     {{{189'064}, {1'560'918}, {4'446'794}, million(3.7), {142'433}, {62'154}, million(0.5)}}},
    {{.name = "8 products", .products = 8},
     {{{1'312'794}, {3'319'861}, {2'648'987}, million(5.2), {119'907}, {636'415}, million(4.8)}}},
    {{.name = "8 products, 24 fraction bits", .products = 8, .fraction_bits = 24},
     {{{1'494'828}, {3'925'906}, {5'476'464}, million(6.1), {343'063}, {663'587}, million(5.2)}}},
    {{.name = "addends floored", .addends = Cut::kFloor},
     {{{221'256}, million(10.9), million(8.9), {11e6, 10 * kRound}, million(3.7), {474'594}, million(1.8)}}},
    {{.name = "addends to nearest", .addends = Cut::kNearest},
     {{{316'954}, million(2.9), million(4.6), million(5.5), {228'597}, {139'323}, million(1.1)}}},
    {{.name = "result to nearest", .final_to_nearest = true},
     {{{2'473'365}, million(5.0), {394'916}, million(3.7), {924'156}, million(1.5), million(5.5)}}},
    {{.name = "accumulator added last", .accumulator_last = true},
     {{{82'284}, {181'043}, {39'628}, million(1.2), {5'450}, {90'769}, million(0.6)}}},
    {{.name = "products normalised", .normalised = true},
     {{{85'790}, {1'291'709}, {3'137'279}, {196'227}, {102'757}, {0}, {206'468}}}},
};
// Only the floor region was counted for these.
const Row kNearFloors[] = {
    {{.name = "floor -132", .exponent_floor = -132}, {{{0}, {0}, {0}, {0}, {0}, {0}, {3'442}}}},
    {{.name = "floor -134", .exponent_floor = -134}, {{{0}, {0}, {0}, {0}, {0}, {0}, {1'155}}}},
};

// Independent dots of one tile; a tile of the table has as many rows, so its rate of mismatches spreads no more than
// ours, even where a mismatch depends on the row alone.
constexpr int kDotsOfTile = 64;
constexpr std::uint32_t kFirstTile = 1000;  // numbers of the table's tiles

// Mismatches per tile, for each rival.
using Tiles = std::vector<std::vector<int>>;
Tiles count_mismatches(std::span<const Row> rivals, Category category, int rounds) {
  Operands operands(static_cast<std::uint64_t>(category) + 100);
  Tiles tiles(rivals.size());
  Bits16 a, b;
  for (std::uint32_t t = 0; t < Operands::kNumTiles * static_cast<std::uint32_t>(rounds); ++t) {
    operands.start_tile(kFirstTile + t % Operands::kNumTiles);
    for (std::vector<int>& of_rival : tiles) of_rival.push_back(0);
    for (int dot = 0; dot < kDotsOfTile; ++dot) {
      operands.fill_in_tile(category, 16, a, b);
      const std::uint32_t c = operands.accumulator(category);
      const std::uint32_t expected = step(sm90(), c, a, b);
      for (std::size_t r = 0; r < rivals.size(); ++r) {
        tiles[r].back() += rival_step(rivals[r].rival, c, a, b) != expected ? 1 : 0;
      }
    }
  }
  return tiles;
}

// Both rates are means over independent tiles, so their difference has the variance of one tile times the sum of the
// reciprocal numbers of tiles; six of its standard deviations, and what the printed count leaves open.
void expect_rate(const Row& row, std::size_t category, const std::vector<int>& tile_mismatches) {
  const Count& count = row.counts[category];
  const double expected = count.count / kTableDots, num_tiles = static_cast<double>(tile_mismatches.size());
  double sum = 0, squares = 0;
  for (const int mismatches : tile_mismatches) {
    const double rate = mismatches / static_cast<double>(kDotsOfTile);
    sum += rate;
    squares += rate * rate;
  }
  const double rate = sum / num_tiles;
  // Few mismatches are Poisson, and then the sample underestimates their variance.
  const double variance = std::max(squares / num_tiles - rate * rate, expected / kDotsOfTile);
  const double tolerance = 6 * std::sqrt(variance * (1 / num_tiles + 1.0 / Operands::kNumTiles));
  const std::string where =
      std::string(row.rival.name) + ", category " + std::to_string(static_cast<int>(kCategories[category]));
  if (count.count == 0) {
    EXPECT_EQ(sum, 0) << where;
  } else {
    EXPECT_NEAR(rate, expected, tolerance + count.printed_within / kTableDots) << where;
    // Below 15 expected mismatches their absence would not be surprising.
    if (expected * num_tiles * kDotsOfTile >= 15) {
      EXPECT_GT(sum, 0) << where;
    }
  }
}

void expect_rates(std::span<const Row> rivals, std::size_t category, int rounds) {
  const Tiles tiles = count_mismatches(rivals, kCategories[category], rounds);
  for (std::size_t r = 0; r < rivals.size(); ++r) expect_rate(rivals[r], category, tiles[r]);
}

class RivalsByCategory : public testing::TestWithParam<std::size_t> {};
INSTANTIATE_TEST_SUITE_P(All, RivalsByCategory, testing::Range(std::size_t{0}, kCategories.size()));

TEST_P(RivalsByCategory, DifferAsOftenAsFromTheDevice) {
  expect_rates(kTable, GetParam(), 1);
}

TEST(Rivals, FloorsNextToTheRightOneDifferInTheFloorRegion) {
  expect_rates(kNearFloors, kCategories.size() - 1, 4);
  expect_rates(std::span(kTable).subspan(2, 1), kCategories.size() - 1, 4);
  expect_rates(std::span(kTable).subspan(2, 1), kCategories.size() - 2, 2);
}

TEST(Rivals, NoFloorDiffersAmongSubnormalsAndZeros) {
  if (std::getenv("SAMEBITS_EXHAUSTIVE") == nullptr) GTEST_SKIP() << "set SAMEBITS_EXHAUSTIVE=1 (about 10 seconds)";
  expect_rates(std::span(kTable).subspan(1, 2), 3, 42);
  expect_rates(std::span(kTable).subspan(1, 2), 4, 110);
}

// The rival with nothing different is the right model, also where it was not counted.
TEST(Rivals, TheUnchangedOneIsTheStep) {
  const Rival same{.name = "none"};
  for (int category = 0; category < test::kNumCategories; ++category) {
    if (static_cast<Category>(category) == Category::kNonFinite) continue;
    Operands operands(7);
    Bits16 a, b;
    for (int i = 0; i < 5000; ++i) {
      operands.fill(static_cast<Category>(category), 16, a, b);
      const std::uint32_t c = operands.accumulator(static_cast<Category>(category));
      ASSERT_EQ(rival_step(same, c, a, b), step(sm90(), c, a, b)) << category;
    }
  }
}

}  // namespace
}  // namespace samebits::oracle
