// The special runs of a router in this process: where tensors lie, calls before the call, wrong calls.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/backend/backend.h"
#include "harness/test/backend_fixture.h"

namespace samebits::harness {
namespace {

using fixture::all_rows;
using fixture::in_process;
using fixture::run_once;
using fixture::small_case;
using fixture::SmallCase;
using properties::Misuse;
using properties::RunRequest;
using properties::RunResult;
using Status = properties::RunResult::Status;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::unique_ptr<properties::Subject> cpu() {
  return open_backend({"cpu", std::nullopt, std::chrono::milliseconds(1000)});
}

// What the router `echo` was given, from the spec of small_case(3) with the changes of `edit`.
template <class Edit>
std::string seen(Edit edit) {
  const SmallCase small = small_case(3);
  RunRequest request = all_rows(small);
  request.want_logits = true;
  edit(request);
  return run_once(*in_process("echo"), small, request).message;
}

TEST(LocalRouterRuns, ALayoutChangesNoValueThatTheRouterReads) {
  const std::string plain = seen([](RunRequest&) {});
  EXPECT_THAT(plain, HasSubstr(" hidden_states[3,16]2:"));
  EXPECT_EQ(seen([](RunRequest& r) { r.layout = {8, 4, false, true, false}; }), plain);
  EXPECT_EQ(seen([](RunRequest& r) { r.layout = {3, 1, true, false, true}; }), plain);
  EXPECT_EQ(seen([](RunRequest& r) { r.constants_gap = 3; }), plain);
  EXPECT_NE(seen([](RunRequest& r) { r.rows = {1, 0, 2}; }), plain);
}

TEST(LocalRouterRuns, OutputsAreReadWhereTheLayoutPutsThem) {
  const SmallCase small = small_case(3);
  const auto router = cpu();
  RunRequest plain = all_rows(small);
  plain.want_logits = true;
  const RunResult expected = run_once(*router, small, plain);
  ASSERT_EQ(expected.status, Status::kOk) << expected.message;
  for (const properties::Layout& layout :
       {properties::Layout{0, 4, false, false, false}, {8, 4, false, true, false}, {3, 1, true, true, false}}) {
    RunRequest request = plain;
    request.layout = layout;
    const RunResult result = run_once(*router, small, request);
    EXPECT_EQ(result.outputs.topk_ids, expected.outputs.topk_ids);
    EXPECT_EQ(result.outputs.topk_weights, expected.outputs.topk_weights);
    EXPECT_EQ(result.outputs.router_logits, expected.outputs.router_logits);
    EXPECT_TRUE(result.gaps_intact && result.guards_intact) << result.damage;
  }
}

TEST(LocalRouterRuns, AWriteBetweenRowsIsDamageOfTheGapAlone) {
  const SmallCase small = small_case(3);
  RunRequest request = all_rows(small);
  request.layout.output_gap = 4;
  const RunResult damaged = run_once(*in_process("write_gap"), small, request);
  EXPECT_EQ(damaged.status, Status::kOk);
  EXPECT_FALSE(damaged.gaps_intact);
  EXPECT_TRUE(damaged.guards_intact);
  EXPECT_THAT(damaged.outputs.topk_ids, ElementsAre(0, 1, 0, 1, 0, 1));
  EXPECT_THAT(damaged.damage, testing::StartsWith("between rows: topk_ids (72 bytes): 4 bytes were changed"));
  EXPECT_TRUE(run_once(*in_process("none"), small, request).gaps_intact);
  request.layout.output_gap = 0;
  EXPECT_TRUE(run_once(*in_process("write_gap"), small, request).gaps_intact) << "no gap, nothing to write";
}

TEST(LocalRouterRuns, AWriteBeforeAShiftedOutputIsDamageOfTheGap) {
  const SmallCase small = small_case(3);
  RunRequest request = all_rows(small);
  request.layout.shifted = true;
  const RunResult result = run_once(*in_process("write_one_before"), small, request);
  EXPECT_FALSE(result.gaps_intact);
  EXPECT_THAT(result.damage, HasSubstr("topk_weights"));
}

TEST(LocalRouterRuns, TheWorkspaceIsKeptFromCallToCallAndNewInEveryRun) {
  const SmallCase small = small_case(3);
  const auto counter = in_process("count_calls");  // in its workspace; the weights are the count
  RunRequest request = all_rows(small);
  EXPECT_THAT(run_once(*counter, small, request).outputs.topk_weights, Each(1.0f));
  request.earlier = {{{0}, {}, std::nullopt}, {{0, 1, 2}, {}, 1}};
  const RunResult third = run_once(*counter, small, request);
  EXPECT_THAT(third.outputs.topk_weights, Each(3.0f));
  EXPECT_EQ(third.outputs.num_tokens, 3);
  request.earlier[1].times = 256;
  EXPECT_THAT(run_once(*counter, small, request).outputs.topk_weights, Each(258.0f));
  request.earlier.clear();
  EXPECT_THAT(run_once(*counter, small, request).outputs.topk_weights, Each(1.0f));
}

TEST(LocalRouterRuns, TheWorkspaceIsMadeForTheLargestCall) {
  const SmallCase small = small_case(3);
  RunRequest request = all_rows(small);
  request.earlier = {{{0, 1, 2, 2, 1}, {}, std::nullopt}, {{0}, {}, std::nullopt}};
  EXPECT_THAT(run_once(*in_process("large_workspace"), small, request).message, HasSubstr(" for 5 tokens; "));
}

TEST(LocalRouterRuns, CallsAtOnceAreMadeByAThreadThatCreatedNoRouter) {
  const SmallCase small = small_case(3);
  const auto router = in_process("thread_of_create");  // the weights are the routers that the calling thread created
  RunRequest request = all_rows(small);
  EXPECT_THAT(run_once(*router, small, request).outputs.topk_weights, Each(1.0f));
  request.other_router = properties::OtherRouter::kAtOnce;
  const RunResult result = run_once(*router, small, request);
  EXPECT_EQ(result.status, Status::kOk) << result.message;
  EXPECT_THAT(result.outputs.topk_weights, Each(0.0f));
  const RunResult failed = run_once(*in_process("error"), small, request);
  EXPECT_EQ(failed.status, Status::kError);
  const RunResult thrown = run_once(*in_process("throws"), small, request);
  EXPECT_EQ(thrown.status, Status::kCrashed) << thrown.message;
}

TEST(LocalRouterRuns, AnEarlierCallThatFailsIsTheResult) {
  const SmallCase small = small_case(4);
  RunRequest request = all_rows(small);
  EXPECT_EQ(run_once(*in_process("error_at_three_tokens"), small, request).status, Status::kOk);
  request.earlier = {{{0, 1, 2}, {}, std::nullopt}};
  const RunResult result = run_once(*in_process("error_at_three_tokens"), small, request);
  EXPECT_EQ(result.status, Status::kError);
  EXPECT_TRUE(result.outputs_untouched) << "the last call was not made";
}

// small_case, or two rows whose experts a table chooses.
SmallCase table_case() {
  SmallCase small = small_case(2);
  small.c.spec.selection.method = oracle::SelectionMethod::kHashTable;
  small.c.spec.selection.bias = oracle::BiasType::kNone;
  small.c.spec.hash.vocab_size = 3;
  small.c.spec.hash.table_dtype = oracle::TableType::kInt32;
  small.inputs.selection_bias.clear();
  small.inputs.hash_table = {0, 1, 7, 2, 3, 4};
  small.inputs.token_ids = {2, 0};
  return small;
}

TEST(LocalRouterRuns, EveryWrongCallIsRefusedByTheCpuRouterBeforeItWrites) {
  const auto router = cpu();
  int made = 0;
  for (int i = 1; i < properties::kNumMisuses; ++i) {
    const auto misuse = static_cast<Misuse>(i);
    if (misuse == Misuse::kTooManyTokens) continue;  // it has no limit
    const bool of_table = misuse == Misuse::kAbsentTokenIds || misuse == Misuse::kTokenIdsDtype ||
                          misuse == Misuse::kTokenIdsColumns || misuse == Misuse::kTableId ||
                          misuse == Misuse::kTableRepeat;
    SmallCase small = of_table ? table_case() : small_case(2);
    if (misuse == Misuse::kRowClassDtype || misuse == Misuse::kRowClassColumns) small.inputs.row_class = {0, 0};
    RunRequest request = all_rows(small);
    ASSERT_EQ(run_once(*router, small, request).status, Status::kOk);
    request.misuse = misuse;
    const RunResult result = run_once(*router, small, request);
    EXPECT_EQ(result.status, Status::kError) << name_of(misuse);
    EXPECT_TRUE(result.refused && result.outputs_untouched) << name_of(misuse) << ": " << result.message;
    EXPECT_THAT(result.message, testing::StartsWith(is_of_create(misuse) ? "samebits_create: " : "samebits_route: "));
    request.misuse = Misuse::kNone;
    EXPECT_EQ(run_once(*router, small, request).status, Status::kOk) << "after " << name_of(misuse);
    ++made;
  }
  EXPECT_EQ(made, properties::kNumMisuses - 2);
}

TEST(LocalRouterRuns, AWrongCallReachesTheRouterAsItIsMeant) {
  const auto wrong = [](Misuse misuse) { return seen([misuse](RunRequest& request) { request.misuse = misuse; }); };
  EXPECT_THAT(wrong(Misuse::kInputColumns), HasSubstr(" hidden_states[3,15]2:"));
  EXPECT_THAT(wrong(Misuse::kAbsentInput), testing::Not(HasSubstr("hidden_states")));
  EXPECT_THAT(wrong(Misuse::kIdsColumns), HasSubstr(" ids[3,1] weights[3,2]"));
  EXPECT_THAT(wrong(Misuse::kIdsRows), HasSubstr(" ids[2,2] weights[3,2]"));
}

// A router that checks nothing: the harness says so, and does not fall over it.
TEST(LocalRouterRuns, AWrongCallThatIsAcceptedIsNoRefusal) {
  const SmallCase small = small_case(2);
  RunRequest request = all_rows(small);
  for (const Misuse misuse : {Misuse::kInputDtype, Misuse::kIdsRows, Misuse::kUnknownScore, Misuse::kTopKTooLarge,
                              Misuse::kGateColumns, Misuse::kAbsentBias}) {
    request.misuse = misuse;
    const RunResult result = run_once(*in_process("none"), small, request);
    EXPECT_EQ(result.status, Status::kOk) << name_of(misuse) << ": " << result.message;
    EXPECT_FALSE(result.refused);
  }
}

TEST(LocalRouterRuns, AnErrorAfterAWriteIsTold) {
  const RunResult result = run_once(*in_process("write_then_error"));
  EXPECT_EQ(result.status, Status::kError);
  EXPECT_FALSE(result.outputs_untouched);
  EXPECT_THAT(result.damage, testing::StartsWith("topk_ids (32 bytes): "));
  EXPECT_TRUE(run_once(*in_process("error")).outputs_untouched);
}

TEST(LocalRouterRuns, HostMemoryHasNoStreams) {
  const SmallCase small = small_case(2);
  RunRequest request = all_rows(small);
  request.launch = properties::Launch::kGraph;
  EXPECT_THROW(run_once(*in_process("none"), small, request), std::invalid_argument);
}

}  // namespace
}  // namespace samebits::harness
