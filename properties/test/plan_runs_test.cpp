#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "laws_fake_router.h"
#include "oracle/tensors/bf16.h"

namespace samebits::properties {
namespace {

using testing::Contains;
using testing::Each;

const RunRequest* find(const std::vector<RunRequest>& plan, const std::string& id) {
  const auto found = std::find_if(plan.begin(), plan.end(), [&](const RunRequest& run) { return run.id == id; });
  return found == plan.end() ? nullptr : &*found;
}

TEST(PlanRuns, MainHoldsAllRowsAndRepeatHasAnotherPoison) {
  Case c = small_case(small_spec(), 20);
  c.description.num_valid_rows = 18;
  const auto plan = plan_runs(c, contract_claims());
  ASSERT_GE(plan.size(), 2u);
  EXPECT_EQ(plan[0].id, "main");
  EXPECT_EQ(plan[0].rows.size(), 20u);
  EXPECT_EQ(plan[0].num_valid_rows, 18);
  EXPECT_TRUE(plan[0].want_logits && plan[0].want_bookkeeping);
  EXPECT_GT(plan[0].block_size, 0);
  EXPECT_EQ(plan[1].id, "repeat");
  EXPECT_EQ(plan[1].rows, plan[0].rows);
  EXPECT_EQ(plan[1].block_size, plan[0].block_size);
  EXPECT_NE(plan[1].poison, plan[0].poison);
  for (const RunRequest& run : plan) {
    EXPECT_EQ(run.poison >> 16, run.poison & 0xffffu) << "a 16-bit output must show the poison too";
  }
}

TEST(PlanRuns, InvarianceUsesValidRowsOnly) {
  for (const std::int32_t valid : {1, 2, 5, 17, 40}) {
    Case c = small_case(small_spec(), 40);
    c.description.num_valid_rows = valid;
    for (const RunRequest& run : plan_runs(c, contract_claims())) {
      if (run.id == "main" || run.id == "repeat" || run.num_valid_rows) continue;
      EXPECT_THAT(run.rows, Each(testing::Lt(valid))) << run.id;
    }
  }
}

TEST(PlanRuns, PermutedMovesEveryRow) {
  for (const std::int64_t num_tokens : {2, 3, 16, 100, 512, 1025}) {
    for (std::uint64_t key = 0; key < 20; ++key) {
      const auto plan = plan_runs(small_case(small_spec(), num_tokens, key), contract_claims());
      const RunRequest* permuted = find(plan, "permuted");
      ASSERT_NE(permuted, nullptr);
      EXPECT_EQ(std::set(permuted->rows.begin(), permuted->rows.end()).size(), permuted->rows.size());
      for (std::size_t r = 0; r < permuted->rows.size(); ++r) {
        EXPECT_NE(permuted->rows[r], static_cast<std::int64_t>(r)) << "T = " << num_tokens << ", key " << key;
      }
    }
  }
}

TEST(PlanRuns, LoudNeighboursSharesItsRowsWithAQuietRun) {
  for (const std::int64_t num_tokens : {1, 2, 7, 40, 600}) {
    const auto plan = plan_runs(small_case(small_spec(), num_tokens), contract_claims());
    const RunRequest* loud = find(plan, "loud_neighbours");
    ASSERT_NE(loud, nullptr) << num_tokens;
    const bool has_quiet = std::any_of(plan.begin(), plan.end(), [&](const RunRequest& run) {
      return run.replace.empty() && run.rows == loud->rows && run.num_valid_rows == loud->num_valid_rows;
    });
    EXPECT_TRUE(has_quiet) << num_tokens;
    EXPECT_THAT(loud->replace, Contains(RowReplacement::kKeep));
    EXPECT_THAT(loud->replace, Contains(RowReplacement::kNaN));
  }
}

TEST(PlanRuns, PaddingIsLoudAndNeverKept) {
  Case c = small_case(small_spec(), 12);
  c.description.num_valid_rows = 8;
  const auto plan = plan_runs(c, contract_claims());
  const RunRequest* loud = find(plan, "loud_neighbours");
  ASSERT_NE(loud, nullptr);
  for (std::size_t r = 8; r < 12; ++r) EXPECT_NE(loud->replace[r], RowReplacement::kKeep);
}

TEST(PlanRuns, ExtraRowsStayBoundedForManyRows) {
  for (const std::int64_t num_tokens : {512, 1024, 8192}) {
    std::int64_t extra = 0;
    for (const RunRequest& run : plan_runs(small_case(small_spec(), num_tokens), contract_claims())) {
      if (run.id != "main") extra += static_cast<std::int64_t>(run.rows.size());
    }
    EXPECT_LE(extra, num_tokens * 3 / 2 + 300) << num_tokens;
  }
}

TEST(PlanRuns, RouterWithoutInvarianceGetsFewRuns) {
  Claims claims = contract_claims();
  claims.determinism = Determinism::kRunToRun;
  std::vector<std::string> ids;
  for (const RunRequest& run : plan_runs(small_case(small_spec(), 40), claims)) ids.push_back(run.id);
  EXPECT_THAT(ids, testing::IsSupersetOf({"main", "repeat", "empty", "loud_neighbours", "history/many_one_many"}));
  for (const std::string& id : ids) {
    for (const char* other_rows : {"alone/", "prefix/", "tiled/", "permuted", "layout/", "history/one_after_many"}) {
      EXPECT_FALSE(id.starts_with(other_rows)) << id;
    }
  }
}

TEST(PlanRuns, RowLimitOfTheRouterIsKept) {
  Claims claims = contract_claims();
  claims.max_tokens = 16;
  for (const RunRequest& run : plan_runs(small_case(small_spec(), 3), claims)) EXPECT_LE(run.rows.size(), 16u);
}

TEST(PlanRuns, WithoutAValidRowNoRunHasOne) {
  Case c = small_case(small_spec(), 4);
  c.description.num_valid_rows = -3;
  for (const RunRequest& run : plan_runs(c, contract_claims())) {
    EXPECT_TRUE(run.rows.empty() || run.num_valid_rows.value_or(1) <= 0) << run.id;
  }
  EXPECT_EQ(plan_runs(small_case(small_spec(), 0), contract_claims()).size(), 3u);
}

TEST(PlanRuns, CountsOfValidRowsAtAndOutsideBothEnds) {
  const auto plan = plan_runs(small_case(small_spec(), 20), contract_claims());
  std::set<std::int32_t> counts;
  for (const RunRequest& run : plan) {
    if (!run.id.starts_with("count/")) continue;
    EXPECT_EQ(run.rows.size(), 3u);
    EXPECT_TRUE(run.want_bookkeeping && is_ordinary(run));
    counts.insert(run.num_valid_rows.value());
  }
  EXPECT_THAT(counts, testing::ElementsAre(-3, 0, 1, 2, 3, 8));
  ASSERT_NE(find(plan, "count/0_again"), nullptr);
  EXPECT_NE(find(plan, "count/0_again")->poison, find(plan, "count/0")->poison);
}

TEST(PlanRuns, OneRowFillsItsExpertsPast1023Slots) {
  const auto plan = plan_runs(small_case(small_spec(), 1), contract_claims());
  const RunRequest* crowd = find(plan, "crowd");
  ASSERT_NE(crowd, nullptr);
  EXPECT_GT(crowd->rows.size(), 1023u);
  EXPECT_THAT(crowd->rows, Each(0));
  EXPECT_TRUE(crowd->want_bookkeeping);
}

std::vector<RunRequest> runs_of_many_keys(const std::string& prefix) {
  std::vector<RunRequest> found;
  for (std::uint64_t key = 0; key < 200; ++key) {
    for (const RunRequest& run : plan_runs(small_case(small_spec(), 6, key), contract_claims())) {
      if (run.id.starts_with(prefix)) found.push_back(run);
    }
  }
  return found;
}

template <class Predicate>
bool any(const std::vector<RunRequest>& runs, Predicate predicate) {
  return std::any_of(runs.begin(), runs.end(), predicate);
}

TEST(PlanRuns, ManyRowsMeetEveryKindOfCall) {
  const auto plain = runs_of_many_keys("wide/");
  for (const std::size_t from : {33u, 65u, 257u}) {
    for (const bool wanted : {false, true}) {
      EXPECT_TRUE(any(plain, [&](const RunRequest& run) {
        return run.rows.size() >= from && run.want_logits == wanted && run.want_bookkeeping;
      })) << from;
    }
  }
  for (const std::size_t rows : {80u, 96u, 112u}) {
    EXPECT_TRUE(any(plain, [&](const RunRequest& run) { return run.rows.size() == rows; })) << rows;
  }
  for (const std::int32_t block : {1, 8, 16, 32, 64, 128}) {
    EXPECT_TRUE(any(plain, [&](const RunRequest& run) { return run.block_size == block; })) << block;
  }
  for (int output = 0; output < 7; ++output) {
    EXPECT_TRUE(any(plain, [&](const RunRequest& run) { return (run.omitted_books >> output & 1) != 0; })) << output;
  }
  EXPECT_FALSE(any(plain, [](const RunRequest& run) { return run.omitted_books >= 127; }));
  for (const std::size_t from : {4u, 40u, 257u}) {
    EXPECT_TRUE(any(plain, [&](const RunRequest& run) { return run.rows.size() >= from && run.num_valid_rows < 0; }));
    EXPECT_TRUE(any(plain, [&](const RunRequest& run) {
      return run.rows.size() >= from && run.num_valid_rows > static_cast<std::int32_t>(run.rows.size());
    }));
  }
  EXPECT_TRUE(any(plain, [](const RunRequest& run) {
    return run.num_valid_rows > 256 && run.num_valid_rows < static_cast<std::int32_t>(run.rows.size());
  }));
}

TEST(PlanRuns, LayoutsOfManyRowsMixTypesGapsAndCounts) {
  const auto layouts = runs_of_many_keys("layout/wide");
  EXPECT_FALSE(any(layouts, is_ordinary));
  for (const std::size_t from : {33u, 257u}) {
    EXPECT_TRUE(any(layouts, [&](const RunRequest& run) {
      return run.rows.size() >= from && run.layout.input_gap >= 64 && run.layout.ids_int64 && run.layout.weights_bf16;
    })) << from;
    EXPECT_TRUE(any(layouts, [&](const RunRequest& run) {
      return run.rows.size() >= from && run.num_valid_rows && run.want_bookkeeping && run.layout.ids_int64;
    })) << from;
  }
}

TEST(PlanRuns, HistoriesOfManyRowsAndOtherRouters) {
  const auto histories = runs_of_many_keys("history/wide");
  EXPECT_FALSE(histories.empty());
  for (const RunRequest& run : histories) {
    EXPECT_GE(run.earlier.size(), 4u);
    EXPECT_GT(run.rows.size(), 32u);
    EXPECT_EQ(run.earlier.front().rows, run.rows);
    EXPECT_EQ(std::count_if(run.earlier.begin(), run.earlier.end(), [](const auto& call) { return call.given_logits; }),
              1);
  }
  const auto others = runs_of_many_keys("history/other_router");
  for (const OtherRouter other : {OtherRouter::kBefore, OtherRouter::kBeside, OtherRouter::kAtOnce}) {
    EXPECT_TRUE(any(others, [&](const RunRequest& run) { return run.other_router == other; }));
  }
}

// So that the first three of them, in any 24 cases, make the run the call number 256, 257 and 258, and 255, 256 and 257
// calls after one of as many rows.
TEST(PlanRuns, EveryEighthCaseMakesHundredsOfCalls) {
  std::vector<std::int32_t> shorts;
  for (std::uint64_t index = 0; index < 24; ++index) {
    for (const bool invariant : {true, false}) {
      Case c = small_case(small_spec(), 9);
      c.description.index = index;
      Claims claims = contract_claims();
      if (!invariant) claims.determinism = Determinism::kRunToRun;
      const auto plan = plan_runs(c, claims);
      const RunRequest* many = find(plan, "history/many_calls");
      ASSERT_EQ(many != nullptr, index % 8 == 5) << index;
      if (many == nullptr) continue;
      EXPECT_EQ(many->rows, plan.front().rows);
      ASSERT_EQ(many->earlier.size(), 2u);
      EXPECT_EQ(many->earlier[0].rows, many->rows);
      EXPECT_THAT(many->earlier[1].rows, testing::ElementsAre(0));
      if (invariant) shorts.push_back(many->earlier[1].times);
    }
  }
  EXPECT_THAT(shorts, testing::UnorderedElementsAre(254, 255, 256));
}

TEST(PlanRuns, BareWantsIdsAndWeightsAlone) {
  const auto plan = plan_runs(small_case(small_spec(), 9), contract_claims());
  const RunRequest* bare = find(plan, "bare");
  ASSERT_NE(bare, nullptr);
  EXPECT_EQ(bare->rows, plan.front().rows);
  EXPECT_FALSE(bare->want_logits || bare->want_bookkeeping);
}

TEST(PlanRuns, ALayoutHasAPaddingRow) {
  for (std::uint64_t key = 0; key < 8; ++key) {
    const auto plan = plan_runs(small_case(small_spec(), 30, key), contract_claims());
    const RunRequest* shifted = find(plan, "layout/shifted");
    ASSERT_NE(shifted, nullptr);
    EXPECT_LT(shifted->num_valid_rows.value(), static_cast<std::int64_t>(shifted->rows.size()));
  }
}

TEST(PlanRuns, GivenLogitsAreAskedForInOneOfFourCases) {
  Case c = logits_case(small_spec(), {std::vector<float>(16, 1.0f)}, std::vector<float>(16, 0.0f));
  int asked = 0;
  for (std::uint64_t key = 0; key < 64; ++key) {
    c.description.data_key = key;
    const auto plan = plan_runs(c, contract_claims());
    asked += plan.front().want_logits ? 1 : 0;
    EXPECT_EQ(find(plan, "bare") != nullptr, plan.front().want_logits);
    for (const RunRequest& run : plan) EXPECT_TRUE(run.variation == Variation::kNone || !run.want_logits);
  }
  EXPECT_GT(asked, 8);
  EXPECT_LT(asked, 32);
}

TEST(PlanRuns, IdsAreUnique) {
  for (std::uint64_t key = 0; key < 20; ++key) {
    std::set<std::string> ids;
    const auto plan = plan_runs(small_case(grouped_spec(), 20, key), contract_claims());
    for (const RunRequest& run : plan) ids.insert(run.id);
    EXPECT_EQ(ids.size(), plan.size());
  }
}

TEST(PlanRuns, OnlyADeviceGetsStreams) {
  Claims device = contract_claims();
  device.device_memory = true;
  const auto launches = [](const Claims& claims) {
    std::set<Launch> found;
    for (const RunRequest& run : plan_runs(small_case(small_spec(), 8), claims)) found.insert(run.launch);
    return found;
  };
  EXPECT_THAT(launches(contract_claims()), testing::ElementsAre(Launch::kDirect));
  EXPECT_THAT(launches(device), testing::ElementsAre(Launch::kDirect, Launch::kGraph, Launch::kLateInput));
}

// A bounded router may compute another shape in another order.
TEST(PlanRuns, ABoundedRouterIsAskedForOtherWeightsOnly) {
  std::set<Variation> found;
  for (std::uint64_t key = 0; key < 20; ++key) {
    for (const RunRequest& run : plan_runs(small_case(small_spec(), 8, key), bounded_claims())) {
      found.insert(run.variation);
    }
  }
  EXPECT_THAT(found, testing::ElementsAre(Variation::kNone, Variation::kDoubledScale, Variation::kOtherScale,
                                          Variation::kBf16Weights));
}

TEST(SelectRows, CopiesAndReplacesWholeRows) {
  const oracle::RouterInputs inputs = materialize(small_case(small_spec(), 3));
  RunRequest request;
  request.rows = {2, 0, 1, 2};
  request.replace = {RowReplacement::kKeep, RowReplacement::kNaN, RowReplacement::kInf, RowReplacement::kHuge};
  request.num_valid_rows = 3;
  const oracle::RouterInputs selected = select_rows(inputs, request);
  EXPECT_EQ(selected.num_tokens, 4);
  EXPECT_EQ(selected.num_valid_rows, 3);
  EXPECT_EQ(selected.gate_weight_bf16, inputs.gate_weight_bf16);
  for (std::size_t h = 0; h < 64; ++h) {
    EXPECT_EQ(selected.hidden_states[h], inputs.hidden_states[2 * 64 + h]);
    EXPECT_TRUE(std::isnan(oracle::bf16_to_fp32(selected.hidden_states[64 + h])));
    EXPECT_TRUE(std::isinf(oracle::bf16_to_fp32(selected.hidden_states[2 * 64 + h])));
    EXPECT_GT(std::fabs(oracle::bf16_to_fp32(selected.hidden_states[3 * 64 + h])), 1e38f);
  }
}

TEST(SelectRows, GivenLogitsAreReplacedToo) {
  const Case c = logits_case(small_spec(), {std::vector<float>(16, 1.0f), std::vector<float>(16, 2.0f)}, {});
  RunRequest request;
  request.rows = {1, 0};
  request.replace = {RowReplacement::kKeep, RowReplacement::kNaN};
  const oracle::RouterInputs selected = select_rows(*c.description.data, request);
  EXPECT_EQ(selected.router_logits[0], 2.0f);
  EXPECT_TRUE(std::isnan(selected.router_logits[16]));
}

TEST(SelectRows, RefusesRowsOutsideTheCase) {
  const oracle::RouterInputs inputs = materialize(small_case(small_spec(), 3));
  RunRequest request;
  request.id = "alone/3";
  request.rows = {3};
  EXPECT_THROW(select_rows(inputs, request), std::invalid_argument);
  request.rows = {0, 1};
  request.replace = {RowReplacement::kKeep};
  EXPECT_THROW(select_rows(inputs, request), std::invalid_argument);
}

}  // namespace
}  // namespace samebits::properties
