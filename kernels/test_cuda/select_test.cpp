// The selection stage on the device against the CPU backend, by bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <vector>

#include "kernels/cpu/logits.h"
#include "kernels/cpu/score.h"
#include "kernels/test_cuda/device_selection.h"

namespace samebits::cuda::test {
namespace {

using cpu::test::CallOptions;
using cpu::test::Routed;
using cpu::test::TestRouter;

using Select = DeviceTest;

constexpr std::int64_t kSpecs = 400, kRowsOfSpec = 256;

// Classes and token ids of the rows, now and then out of range.
SelectOptions draw_options(const samebits_router_spec& spec, std::uint64_t seed, std::int64_t num_rows) {
  SelectOptions options;
  const auto bit = [&](std::uint64_t i) { return (seed >> i & 1) != 0; };
  options.ids_int64 = bit(0);
  options.weights_bf16 = bit(1);
  options.extra_stride = bit(2) ? 3 : 0;
  options.token_ids_int64 = bit(3);
  options.slot_ids = !bit(4) || !bit(5);
  options.router_logits = !bit(6) || !bit(7);
  if (bit(8)) options.num_valid_rows = static_cast<std::int32_t>(num_rows - 11);
  for (std::int64_t t = 0; t < num_rows; ++t) {
    const auto row = static_cast<std::uint64_t>(t);
    if (spec.selection_bias_dtype != SAMEBITS_DTYPE_NONE && bit(9)) {
      const auto variants = static_cast<std::uint64_t>(spec.num_bias_variants);
      options.row_class.push_back(static_cast<std::int32_t>(draw(seed + 1, row) % variants));
      if (row % 37 == 5) options.row_class.back() = row % 2 == 0 ? -1 : spec.num_bias_variants;
    }
    if (spec.selection_method == SAMEBITS_SELECT_HASH_TABLE) {
      const auto vocab = static_cast<std::uint64_t>(spec.hash_vocab_size);
      options.token_ids.push_back(static_cast<std::int64_t>(draw(seed + 2, row) % vocab));
      if (row % 37 == 7) options.token_ids.back() = row % 2 == 0 ? -1 : spec.hash_vocab_size;
    }
  }
  return options;
}

CallOptions cpu_options(const SelectOptions& options) {
  CallOptions out;
  out.token_ids.assign(options.token_ids.begin(), options.token_ids.end());
  out.row_class = options.row_class;
  out.num_valid_rows = options.num_valid_rows;
  out.poison = kPoison;
  return out;
}

bool expect_cpu_bits(const samebits_router_spec& spec, std::uint64_t seed, const std::vector<float>& logits,
                     const SelectOptions& options) {
  const Constants constants = draw_constants(spec, seed);
  const Routed routed = TestRouter(spec, constants).route_from_logits(logits, cpu_options(options));
  const Selected found = DeviceSelection(spec, constants).from_logits(logits, options);
  return expect_same(spec, found, expected_of(spec, routed, options), options);
}

TEST_F(Select, AnySpecFromGivenLogits) {
  for (std::uint64_t seed = 0; seed < kSpecs; ++seed) {
    const samebits_router_spec spec = draw_spec(seed);
    const std::vector<float> logits = draw_logits(spec, seed, kRowsOfSpec);
    const SelectOptions options = draw_options(spec, draw(99, seed), kRowsOfSpec);
    ASSERT_TRUE(expect_cpu_bits(spec, seed, logits, options)) << "seed " << seed << ": " << text_of(spec);
  }
}

// The drawn specs have every value of every enumeration.
TEST(SelectSpecs, CoverTheEnumerations) {
  std::vector<std::set<std::int32_t>> met(spec_fields().size());
  std::set<std::int32_t> experts, top_k;
  for (std::uint64_t seed = 0; seed < kSpecs; ++seed) {
    const samebits_router_spec spec = draw_spec(seed);
    for (std::size_t i = 0; i < met.size(); ++i) met[i].insert(spec.*spec_fields()[i].member);
    experts.insert(spec.num_experts), top_k.insert(spec.top_k);
  }
  for (std::size_t i = 0; i < met.size(); ++i) {
    const std::vector<std::int32_t>& values = spec_fields()[i].values;
    EXPECT_EQ(met[i], std::set<std::int32_t>(values.begin(), values.end())) << spec_fields()[i].name;
  }
  EXPECT_EQ(experts.size(), kExperts.size());
  EXPECT_EQ(top_k.size(), kTopK.size());
}

// Every size with every k: a softmax router, and a sigmoid router with bias that renormalises.
TEST_F(Select, EverySizeAndK) {
  constexpr std::int64_t kRows = 160;
  std::uint64_t seed = 1000;
  for (const std::int32_t num_experts : kExperts) {
    for (const std::int32_t top_k : kTopK) {
      if (top_k > num_experts) continue;
      for (const samebits_router_spec& spec :
           {cpu::test::plain_spec(0, num_experts, top_k), cpu::test::sigmoid_bias_spec(0, num_experts, top_k)}) {
        const std::vector<float> logits = draw_logits(spec, ++seed, kRows);
        ASSERT_TRUE(expect_cpu_bits(spec, seed, logits, draw_options(spec, 0, kRows))) << text_of(spec);
      }
    }
  }
}

// Around the most experts of the kernels for routers without rare features, by a block and by a warp a row.
TEST_F(Select, SizesAtWhichTheKernelChanges) {
  for (const std::int32_t num_experts : {927, 928, 929, 1024}) {
    for (const std::int64_t num_rows : {256, 257}) {
      const samebits_router_spec spec = cpu::test::sigmoid_bias_spec(0, num_experts, 16);
      const auto seed = static_cast<std::uint64_t>(num_experts);
      const std::vector<float> logits = draw_logits(spec, seed, num_rows);
      ASSERT_TRUE(expect_cpu_bits(spec, seed, logits, draw_options(spec, 0, num_rows)))
          << num_experts << " " << num_rows;
    }
  }
}

// What select/row_select.h serves: each score, groups and masks; every number of keys a lane, and experts that do not
// fill the lanes.
TEST_F(Select, ManyRows) {
  using Change = void (*)(samebits_router_spec&);
  const auto in_groups = [](samebits_router_spec& spec, std::int32_t score, std::int32_t mask) {
    spec.n_group = 8, spec.topk_group = 3, spec.group_score = score, spec.group_mask = mask;
  };
  std::vector<samebits_router_spec> specs;
  for (const std::int32_t num_experts : {12, 60, 127, 128, 250, 256, 288, 289, 384, 510, 512, 896, 928}) {
    for (const std::int32_t top_k : {1, 6, 8, 9, 16, 32}) {
      if (top_k > num_experts) continue;
      const samebits_router_spec sigmoid = cpu::test::sigmoid_bias_spec(0, num_experts, top_k);
      for (const Change change : {+[](samebits_router_spec&) {},
                                  +[](samebits_router_spec& spec) {
                                    spec.score_func = SAMEBITS_SCORE_SQRT_SOFTPLUS;
                                    spec.num_bias_variants = 3;
                                  },
                                  +[](samebits_router_spec& spec) { spec.score_func = SAMEBITS_SCORE_SOFTMAX; },
                                  +[](samebits_router_spec& spec) {
                                    spec.score_func = SAMEBITS_SCORE_SOFTMAX;
                                    spec.selection_bias_dtype = SAMEBITS_DTYPE_NONE, spec.num_bias_variants = 0;
                                    spec.weights_dtype = SAMEBITS_BF16;
                                  }}) {
        specs.push_back(sigmoid);
        change(specs.back());
      }
      if (num_experts != 256) continue;
      for (const std::int32_t score : {SAMEBITS_GROUP_SCORE_TOP2_SUM, SAMEBITS_GROUP_SCORE_MAX}) {
        for (const std::int32_t mask : {SAMEBITS_GROUP_MASK_NEG_INF, SAMEBITS_GROUP_MASK_ZERO}) {
          specs.push_back(sigmoid);
          in_groups(specs.back(), score, mask);
        }
      }
    }
  }
  std::uint64_t seed = 5000;
  constexpr std::int64_t kRows = 420;
  for (const samebits_router_spec& spec : specs) {
    if (!is_supported(spec)) continue;
    ++seed;
    const std::vector<float> logits = draw_logits(spec, seed, kRows);
    ASSERT_TRUE(expect_cpu_bits(spec, seed, logits, draw_options(spec, draw(97, seed), kRows)))
        << "seed " << seed << ": " << text_of(spec);
  }
}

// The experts of a group that count in its score, of a row.
struct BestOfGroup {
  std::size_t first;
  double first_key, second_key;
};
BestOfGroup best_of_group(const float* logits, const std::vector<float>& bias, std::size_t begin, std::size_t size) {
  BestOfGroup best{begin, -1e30, -1e30};
  for (std::size_t e = begin; e < begin + size; ++e) {
    const double key = 1.0 / (1.0 + std::exp(-static_cast<double>(logits[e]))) + (bias.empty() ? 0.0 : bias[e]);
    best.second_key = std::max(best.second_key, std::min(best.first_key, key));
    if (key > best.first_key) best.first_key = key, best.first = e;
  }
  return best;
}
// Moves the best logit of the first group that is not kept so that its score is, up to a few roundings, that of the
// last one that is. False: there is no such logit.
bool make_groups_near(const samebits_router_spec& spec, const std::vector<float>& bias, float* logits) {
  const auto groups = static_cast<std::size_t>(spec.n_group),
             size = static_cast<std::size_t>(spec.num_experts) / groups;
  const bool is_sum = spec.group_score == SAMEBITS_GROUP_SCORE_TOP2_SUM;
  const auto score = [&](const BestOfGroup& best) { return best.first_key + (is_sum ? best.second_key : 0.0); };
  std::vector<BestOfGroup> best;
  for (std::size_t g = 0; g < groups; ++g) best.push_back(best_of_group(logits, bias, g * size, size));
  std::sort(best.begin(), best.end(), [&](const auto& a, const auto& b) { return score(a) > score(b); });
  const auto kept = static_cast<std::size_t>(spec.topk_group);
  const BestOfGroup& moved = best.at(kept);
  const double moved_bias = bias.empty() ? 0.0 : bias[moved.first];
  const double wanted = moved.first_key - moved_bias + score(best.at(kept - 1)) - score(moved);
  if (wanted > 0.999) return false;
  logits[moved.first] = static_cast<float>(std::log(wanted / (1.0 - wanted)));
  return true;
}

// Which groups are kept is told by exact keys alone, in most rows.
TEST_F(Select, GroupsThatAreNear) {
  constexpr std::int64_t kRows = 300;
  constexpr struct { std::int32_t groups, kept; } kGroups[] = {{8, 3}, {4, 3}, {2, 1}, {16, 5}, {32, 9}};
  for (std::uint64_t seed = 0; seed < 80; ++seed) {
    samebits_router_spec spec = cpu::test::sigmoid_bias_spec(0, 256, seed % 4 < 2 ? 8 : 12);
    const auto [groups, kept] = kGroups[seed / 4 % std::size(kGroups)];
    spec.n_group = groups, spec.topk_group = kept;
    spec.group_score = seed % 2 == 0 ? SAMEBITS_GROUP_SCORE_TOP2_SUM : SAMEBITS_GROUP_SCORE_MAX;
    spec.group_mask = seed / 20 % 2 == 0 ? SAMEBITS_GROUP_MASK_NEG_INF : SAMEBITS_GROUP_MASK_ZERO;
    if (seed % 7 == 0) spec.selection_bias_dtype = SAMEBITS_DTYPE_NONE, spec.num_bias_variants = 0;
    const std::vector<float> bias = draw_constants(spec, seed).selection_bias;
    std::vector<float> logits;
    std::int64_t near = 0;
    for (std::int64_t t = 0; t < kRows; ++t) {
      for (std::int64_t e = 0; e < 256; ++e) logits.push_back(draw_logit(seed, t * kRowKinds, e));
      near += make_groups_near(spec, bias, logits.data() + t * 256) ? 1 : 0;
    }
    EXPECT_GT(near, kRows / 4) << "seed " << seed;
    ASSERT_TRUE(expect_cpu_bits(spec, seed, logits, draw_options(spec, 0, kRows)))
        << "seed " << seed << ": " << text_of(spec);
  }
}

// The largest sizes that are accepted, groups of one expert included: more shared memory than a block gets unasked.
TEST_F(Select, LargestSizes) {
  samebits_router_spec grouped = cpu::test::sigmoid_bias_spec(0, 2304, 64);
  grouped.n_group = 2304;
  grouped.topk_group = 100;
  grouped.group_score = SAMEBITS_GROUP_SCORE_MAX;
  grouped.group_mask = SAMEBITS_GROUP_MASK_NEG_INF;
  samebits_router_spec shared = cpu::test::sigmoid_bias_spec(0, 2176, 64);
  shared.zero_experts = 128;
  shared.zero_type = SAMEBITS_ZERO_EXPERTS_IDENTITY;
  shared.shared_mode = SAMEBITS_SHARED_IN_GATE;
  shared.shared_experts = 64;
  for (const samebits_router_spec& spec : {grouped, shared}) {
    const std::vector<float> logits = draw_logits(spec, 5, 64);
    ASSERT_TRUE(expect_cpu_bits(spec, 5, logits, draw_options(spec, 0, 64))) << text_of(spec);
  }
}

TEST_F(Select, NumValidRows) {
  constexpr std::int32_t kRows = 33;
  for (const std::int32_t num_valid_rows : {-5, 0, 1, kRows - 1, kRows, kRows + 1, INT32_MAX, INT32_MIN}) {
    const samebits_router_spec spec = cpu::test::sigmoid_bias_spec(0, 60, 8);
    std::vector<float> logits = draw_logits(spec, 3, kRows);
    // What lies in padding rows would be seen: NaN.
    const auto valid = static_cast<std::size_t>(clamp_rows(num_valid_rows, kRows)) * 60;
    std::fill(logits.begin() + static_cast<std::ptrdiff_t>(valid), logits.end(), std::bit_cast<float>(0xffc00001u));
    SelectOptions options = draw_options(spec, 4, kRows);
    options.num_valid_rows = num_valid_rows;
    ASSERT_TRUE(expect_cpu_bits(spec, 3, logits, options)) << "num_valid_rows " << num_valid_rows;
  }
}

// From sums of the parts of each logit, left to right, and what follows them: bias, bf16, temperature, softcap.
bool expect_cpu_bits_of_sums(const samebits_router_spec& spec, std::uint64_t seed, std::int32_t num_sums,
                             std::int64_t num_rows) {
  const Constants constants = draw_constants(spec, seed);
  std::vector<float> bias(constants.linear_bias.size());
  cpu::round_bias(spec.linear_bias_dtype, constants.linear_bias.data(), static_cast<std::int64_t>(bias.size()),
                  bias.data());
  cpu::RouterConstants finish{};
  finish.spec = spec;
  finish.linear_bias = bias.empty() ? nullptr : bias.data();

  const std::int64_t columns = spec.num_experts, padded = round_up(columns, kGateRowPad);
  std::vector<float> sums, logits;
  for (std::int64_t t = 0; t < num_rows; ++t) {
    std::vector<float> row(static_cast<std::size_t>(columns));
    for (std::int32_t p = 0; p < num_sums; ++p) {
      for (std::int64_t e = 0; e < padded; ++e) {
        const float part = canonical(draw_logit(seed * 100 + static_cast<std::uint64_t>(p), t, e));
        sums.push_back(part);
        if (e >= columns) continue;
        float& sum = row[static_cast<std::size_t>(e)];
        sum = p == 0 ? part : canonical(sum + part);
      }
    }
    cpu::finish_logits(finish, row.data());
    logits.insert(logits.end(), row.begin(), row.end());
  }
  SelectOptions options = draw_options(spec, draw(98, seed), num_rows);
  options.router_logits = true;
  const Routed routed = TestRouter(spec, constants).route_from_logits(logits, cpu_options(options));
  const Selected found = DeviceSelection(spec, constants).from_sums(sums, num_sums, options);
  return expect_same(spec, found, expected_of(spec, routed, options), options);
}

TEST_F(Select, FoldsAndFinishesSums) {
  for (std::uint64_t seed = 0; seed < 72; ++seed) {
    samebits_router_spec spec = cpu::test::sigmoid_bias_spec(0, seed % 2 == 0 ? 60 : 384, 8);
    spec.linear_bias_dtype = static_cast<std::int32_t>(seed % 3);
    spec.logits_dtype = seed / 3 % 2 == 0 ? SAMEBITS_FP32 : SAMEBITS_BF16;
    spec.temperature = seed / 6 % 2 == 0 ? 1.0f : 0.7f;
    spec.softcap = seed / 12 % 2 == 0 ? 0.0f : 30.0f;
    const std::int32_t num_sums = seed / 24 == 0 ? 1 : seed / 24 == 1 ? 3 : 28;
    ASSERT_TRUE(expect_cpu_bits_of_sums(spec, seed, num_sums, num_sums == 1 ? 260 : 64))
        << "seed " << seed << ", sums " << num_sums;
  }
}

// A block a row, with an expert a thread and with two; some of the numbers and strides of sums are constants.
TEST_F(Select, FoldsSumsOfAnyNumber) {
  std::uint64_t seed = 300;
  for (const std::int32_t num_experts : {114, 128, 274, 288, 370, 512, 513, 768, 882, 883, 895, 896}) {
    for (const std::int32_t num_sums : {2, 8, 16, 17, 20, 28, 32, 33}) {
      for (const std::int32_t score_func :
           {SAMEBITS_SCORE_SIGMOID, SAMEBITS_SCORE_SQRT_SOFTPLUS, SAMEBITS_SCORE_SOFTMAX}) {
        samebits_router_spec spec = cpu::test::sigmoid_bias_spec(0, num_experts, num_experts > 640 ? 16 : 8);
        spec.score_func = score_func;
        spec.num_bias_variants = 1 + static_cast<std::int32_t>(seed % 2);
        spec.logits_dtype = seed % 3 == 0 ? SAMEBITS_BF16 : SAMEBITS_FP32;
        ++seed;
        ASSERT_TRUE(expect_cpu_bits_of_sums(spec, seed, num_sums, 48)) << "seed " << seed << ": " << text_of(spec);
      }
    }
  }
}

// More rows than blocks, more logits than 2^31: the last rows are the same as alone.
TEST_F(Select, RowsBeyondAllBlocksAnd32Bits) {
  constexpr std::int64_t kRows = (std::int64_t{1} << 20) + 70, kLast = 64;
  const samebits_router_spec spec = cpu::test::sigmoid_bias_spec(0, 2304, 8);
  const Constants constants = draw_constants(spec, 1);
  const std::vector<float> last = draw_logits(spec, 1, kLast);
  const Routed routed = TestRouter(spec, constants).route_from_logits(last);

  const DeviceSelection selection(spec, constants);
  const std::int64_t columns = 2304, first_value = (kRows - kLast) * columns;
  DeviceArray<float> given(static_cast<std::size_t>(kRows * columns));
  given.fill_bytes(0);
  given.write(static_cast<std::size_t>(first_value), last);
  const DeviceArray<std::int32_t> ids(static_cast<std::size_t>(kRows * 8));
  const DeviceArray<float> weights(static_cast<std::size_t>(kRows * 8));
  CallView call{};
  call.num_tokens = kRows;
  call.given_logits = given.data();
  call.given_logits_stride = columns;
  call.topk_ids = ids.data();
  call.topk_weights = weights.data();
  call.ids_stride = call.weights_stride = 8;
  check(launch_select(selection.router(), call, nullptr), "launch_select");
  check(cudaDeviceSynchronize(), "select");
  constexpr auto kFirstSlot = static_cast<std::size_t>((kRows - kLast) * 8),
                 kSlots = static_cast<std::size_t>(kLast * 8);
  EXPECT_EQ(ids.read(kFirstSlot, kSlots), routed.ids);
  EXPECT_TRUE(cpu::test::same_bits(weights.read(kFirstSlot, kSlots), routed.weights));
}

}  // namespace
}  // namespace samebits::cuda::test
