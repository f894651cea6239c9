// Plug-ins in this process: what the buffers catch, and how errors are reported.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "harness/backend/abi_adapter.h"
#include "harness/backend/backend.h"
#include "harness/backend/worker_router.h"
#include "harness/test/backend_fixture.h"

namespace samebits::harness {
namespace {

using properties::RunRequest;
using properties::RunResult;
using Status = properties::RunResult::Status;
using fixture::all_rows;
using fixture::in_process;
using fixture::run_once;
using fixture::small_case;
using fixture::SmallCase;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LocalRouter, OutputsOfAWellBehavedRouterAreRead) {
  const auto subject = in_process("none");
  EXPECT_EQ(subject->claims().name, "faulty");
  EXPECT_EQ(subject->claims().version, "1.2");
  const RunResult result = run_once(*subject, 3);
  EXPECT_EQ(result.status, Status::kOk) << result.message;
  EXPECT_EQ(result.outputs.num_tokens, 3);
  EXPECT_EQ(result.outputs.top_k, 2);
  EXPECT_THAT(result.outputs.topk_ids, ElementsAre(0, 1, 0, 1, 0, 1));
  EXPECT_THAT(result.outputs.topk_weights, ElementsAre(0.5f, 0.5f, 0.5f, 0.5f, 0.5f, 0.5f));
  EXPECT_TRUE(result.outputs.router_logits.empty());
  EXPECT_EQ(result.kernel_name, "constant");
  EXPECT_TRUE(result.guards_intact);
  EXPECT_TRUE(result.inputs_intact);
  EXPECT_EQ(result.damage, "");
}

TEST(LocalRouter, NumValidRowsReachesTheRouterAndPaddingIsWidened) {
  const auto subject = in_process("none");
  const SmallCase small = small_case(3);
  RunRequest request = all_rows(small);
  request.num_valid_rows = 1;
  const RunResult result = run_once(*subject, small, request);
  EXPECT_THAT(result.outputs.topk_ids, ElementsAre(0, 1, -1, -1, -1, -1));
  EXPECT_THAT(result.outputs.topk_weights, ElementsAre(0.5f, 0.5f, 0.0f, 0.0f, 0.0f, 0.0f));
}

TEST(LocalRouter, ZeroTokensAreACall) {
  const auto subject = in_process("none");
  const RunResult result = run_once(*subject, 0);
  EXPECT_EQ(result.status, Status::kOk) << result.message;
  EXPECT_TRUE(result.outputs.topk_ids.empty());
}

TEST(LocalRouter, WhatTheRouterDoesNotWriteIsThePoison) {
  const auto subject = in_process("write_nothing");
  const SmallCase small = small_case(2);
  RunRequest request = all_rows(small);
  request.poison = 0x7fc00000u;
  request.want_logits = true;
  request.want_bookkeeping = true;
  request.block_size = 4;
  const RunResult result = run_once(*subject, small, request);
  EXPECT_EQ(result.status, Status::kOk);
  EXPECT_THAT(result.outputs.topk_ids, ::testing::Each(0x7fc00000));
  EXPECT_EQ(result.outputs.topk_ids.size(), 4u);
  for (const float weight : result.outputs.topk_weights) EXPECT_TRUE(std::isnan(weight));
  EXPECT_EQ(result.outputs.router_logits.size(), 16u);
  for (const float logit : result.outputs.router_logits) EXPECT_TRUE(std::isnan(logit));
  const oracle::Bookkeeping& books = result.outputs.bookkeeping;
  EXPECT_EQ(books.tokens_per_expert.size(), 8u);
  EXPECT_EQ(books.expert_offsets.size(), 9u);
  EXPECT_EQ(books.slot_of_position.size(), 4u);
  EXPECT_EQ(books.position_of_slot.size(), 4u);
  EXPECT_EQ(books.expert_ids.size(), 4u);  // floor((4 + min(8, 4) * 3) / 4)
  EXPECT_EQ(books.sorted_token_ids.size(), 16u);
  EXPECT_EQ(books.num_tokens_post_padded, 0x7fc00000);
  EXPECT_THAT(books.sorted_token_ids, ::testing::Each(0x7fc00000));
}

TEST(LocalRouter, AWritePastTheEndIsDamage) {
  const RunResult result = run_once(*in_process("write_after"));
  EXPECT_EQ(result.status, Status::kOk);
  EXPECT_FALSE(result.guards_intact);
  EXPECT_TRUE(result.inputs_intact);
  EXPECT_EQ(result.damage,
            "topk_ids (32 bytes): 4 of 4096 guard bytes after it were overwritten, the first 0 bytes after");
}

TEST(LocalRouter, AWriteFarPastTheEndIsDamage) {
  const RunResult result = run_once(*in_process("write_far_after"));
  EXPECT_EQ(result.status, Status::kOk);
  EXPECT_EQ(result.damage,
            "topk_ids (32 bytes): 4 of 4096 guard bytes after it were overwritten, the first 80 bytes after");
}

TEST(LocalRouter, AWriteBeforeTheStartIsDamage) {
  const RunResult result = run_once(*in_process("write_before"));
  EXPECT_FALSE(result.guards_intact);
  EXPECT_EQ(result.damage,
            "topk_weights (32 bytes): 4 of 4096 guard bytes before it were overwritten, the first 8 bytes before");
}

TEST(LocalRouter, AnOverrunOfTheWorkspaceIsDamage) {
  const RunResult result = run_once(*in_process("overrun_workspace"));
  EXPECT_FALSE(result.guards_intact);
  EXPECT_EQ(result.damage,
            "workspace, of a HostRouter x, logits, ids and weights of a row (16 bytes): 1 of 4096 guard bytes after it "
            "were overwritten, the first 3 bytes after");
}

TEST(LocalRouter, AChangedInputIsDamage) {
  const RunResult result = run_once(*in_process("change_input"));
  EXPECT_TRUE(result.guards_intact);
  EXPECT_FALSE(result.inputs_intact);
  EXPECT_EQ(result.damage, "hidden_states (128 bytes): 1 bytes were changed, the first at offset 4");
}

TEST(LocalRouter, AChangedConstantIsAnError) {
  const RunResult result = run_once(*in_process("change_constant"));
  EXPECT_EQ(result.status, Status::kError);
  EXPECT_THAT(result.message, HasSubstr("samebits_create changed its constants: selection_bias (32 bytes): "));
  EXPECT_THAT(result.message, HasSubstr("2 bytes were changed, the first at offset 6"));
}

TEST(LocalRouter, ConstantsThatWereNotCopiedAreNoLongerThere) {
  const RunResult result = run_once(*in_process("keep_constant"));
  EXPECT_EQ(result.status, Status::kOk);
  for (const float weight : result.outputs.topk_weights) EXPECT_TRUE(std::isnan(weight));
}

TEST(LocalRouter, AnErrorCarriesFunctionStatusAndText) {
  const auto message = [](const char* fault) {
    const RunResult result = run_once(*in_process(fault));
    EXPECT_EQ(result.status, Status::kError) << fault;
    EXPECT_TRUE(result.outputs.topk_ids.empty()) << fault;
    return result.message;
  };
  EXPECT_EQ(message("error"), "samebits_route: unsupported (2): the text of the plug-in");
  EXPECT_EQ(message("error_without_text"), "samebits_route: unknown status 42: samebits_last_error has no text");
  EXPECT_EQ(message("error_in_create"), "samebits_create: out of memory (3): the text of the plug-in");
  EXPECT_EQ(message("error_in_init"), "samebits_workspace_init: invalid argument (1): the text of the plug-in");
  EXPECT_EQ(message("no_router"), "samebits_create returned ok (0), but no router");
  EXPECT_EQ(message("refuses"), "samebits_supports refuses the case: top_k is 2; this router does 1000");
  EXPECT_EQ(message("wrong_columns"), "samebits_topk_columns is 3; expected is 2");
  EXPECT_EQ(message("unknown_support"),
            "samebits_supports returned unknown status 77; allowed are ok (0), and unsupported (2) with a reason");
  EXPECT_EQ(message("large_workspace"),
            "samebits_workspace_bytes is 1073741825 for 4 tokens; allowed are at most 1073741824 (1 GiB)");
  EXPECT_THAT(message("huge_workspace"), HasSubstr("samebits_workspace_bytes is 18446744073709551615 for 4 tokens"));
}

TEST(LocalRouter, AnExceptionAcrossTheAbiIsACrash) {
  const RunResult result = run_once(*in_process("throws"));
  EXPECT_EQ(result.status, Status::kCrashed);
  EXPECT_EQ(result.message, "samebits_route threw a C++ exception across the C ABI: an exception of the plug-in");
}

TEST(LocalRouter, RefusalsNameTheLimit) {
  SmallCase small = small_case();
  EXPECT_EQ(in_process("none")->unsupported(small.c.spec), std::nullopt);
  EXPECT_EQ(in_process("unknown_support")->unsupported(small.c.spec), std::nullopt);  // a fault is no refusal
  EXPECT_EQ(in_process("refuses")->unsupported(small.c.spec), "top_k is 2; this router does 1000");
  small.c.spec.shape.num_experts = 65;
  EXPECT_EQ(in_process("none")->unsupported(small.c.spec), "the number of gate rows is 65; the router's limit is 64");
  small.c.spec.shape.num_experts = 60;
  small.c.spec.special.zero_experts = 4;
  small.c.spec.special.zero_type = oracle::ZeroType::kIdentity;
  EXPECT_EQ(in_process("none")->unsupported(small.c.spec), std::nullopt);
  small.c.spec.special.zero_experts = 5;
  EXPECT_EQ(in_process("none")->unsupported(small.c.spec), "the number of gate rows is 65; the router's limit is 64");
  small.c.spec.special = {.shared_experts = 5, .shared_mode = oracle::SharedMode::kInGate};
  EXPECT_EQ(in_process("none")->unsupported(small.c.spec), "the number of gate rows is 65; the router's limit is 64");
  small.c.spec.shape.num_experts = std::int64_t{1} << 40;
  EXPECT_THAT(in_process("none")->unsupported(small.c.spec).value(), HasSubstr("does not fit the C ABI"));
}

TEST(LocalRouter, ClaimsComeFromTheDescription) {
  const properties::Claims claims = in_process("claims_tc256")->claims();
  EXPECT_TRUE(claims.bit_exact());
  EXPECT_EQ(claims.determinism, properties::Determinism::kBatchInvariant);
  EXPECT_TRUE(claims.returns_logits);
  EXPECT_TRUE(claims.returns_bookkeeping);
  EXPECT_EQ(claims.max_tokens, 77);
}

TEST(AbiTable, BadPlugInsAreNamed) {
  const auto load_error = [](const char* fault) {
    try {
      LocalRouter router(load_table(fixture::plugin(fault)));
    } catch (const AbiError& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(load_error("wrong_version"),
              HasSubstr("built for version 7 of the C ABI, this program expects version 1"));
  EXPECT_THAT(load_error("missing_symbol"), HasSubstr("samebits_route_from_logits is missing"));
  EXPECT_THAT(load_error("does_not_exist"), HasSubstr("does_not_exist.so"));
  EXPECT_EQ(
      load_error("unknown_arithmetic"),
      "samebits_describe: arithmetic is \"fp16\"; allowed are tc256, fp32-any-order, bf16-logits, fp32-depth:D with "
      "D from 1 to 1048576");
  EXPECT_EQ(load_error("unterminated_name"), "samebits_describe: name has no terminating zero in its 64 bytes");
  EXPECT_EQ(load_error("no_memory_kind"),
            "samebits_describe: memory_kinds is 0x0; allowed are 1 (host), 2 (device) and 3 (both)");
  EXPECT_THAT(load_error("wrong_struct_size"), HasSubstr("samebits_describe: struct_size is 12; version 1 of the ABI"));
  EXPECT_EQ(load_error("huge_struct_size"), "samebits_describe: struct_size is 4294967295; version 1 of the ABI has " +
                                                std::to_string(sizeof(samebits_info)));
  for (const char* fault : {"info_overrun", "long_info"}) {
    EXPECT_THAT(load_error(fault), HasSubstr("samebits_describe wrote past the struct_size")) << fault;
  }
  EXPECT_EQ(load_error("describe_fails"), "samebits_describe returned internal error (5)");
#ifndef SAMEBITS_HAVE_CUDA
  EXPECT_THAT(load_error("device_only"), HasSubstr("works in device memory only, and this program was built without"));
#else
  EXPECT_THAT(load_error("device_only"),
              testing::AnyOf("", HasSubstr("works in device memory only, and no device can be used")));
#endif
}

// One-hot hidden states: the logits of row r are column r of the gate weight, here {0, 2, 1, 2} and {-1, 0, 0, -2}.
SmallCase one_hot_case() {
  SmallCase small;
  oracle::RouterSpec& spec = small.c.spec;
  spec.shape.hidden_size = 2;
  spec.shape.num_experts = 4;
  spec.shape.top_k = 2;
  spec.score.func = oracle::ScoreFunc::kSigmoid;
  spec.weights.renormalize = oracle::Renormalize::kL1;
  spec.weights.routed_scaling_factor = 2.0;
  small.inputs.num_tokens = 2;
  small.inputs.hidden_size = 2;
  small.inputs.gate_rows = 4;
  constexpr std::uint16_t kOne = 0x3f80, kTwo = 0x4000, kMinusOne = 0xbf80, kMinusTwo = 0xc000;
  small.inputs.hidden_states = {kOne, 0, 0, kOne};
  small.inputs.gate_weight_bf16 = {0, kMinusOne, kTwo, 0, kOne, 0, kTwo, kMinusTwo};
  return small;
}

TEST(OpenBackend, TheEmbeddedRouterGivesTheAnswerThatFollowsByHand) {
  const auto cpu = open_backend({"cpu", std::nullopt, std::chrono::milliseconds(1000)});
  EXPECT_TRUE(cpu->claims().bit_exact());
  SmallCase small = one_hot_case();
  EXPECT_EQ(cpu->unsupported(small.c.spec), std::nullopt);
  RunRequest request = all_rows(small);
  request.want_logits = true;
  request.want_bookkeeping = true;
  const RunResult result = run_once(*cpu, small, request);
  ASSERT_EQ(result.status, Status::kOk) << result.message;
  EXPECT_THAT(result.outputs.topk_ids, ElementsAre(1, 3, 1, 2));
  EXPECT_THAT(result.outputs.topk_weights, ElementsAre(1.0f, 1.0f, 1.0f, 1.0f));
  EXPECT_THAT(result.outputs.router_logits, ElementsAre(0.0f, 2.0f, 1.0f, 2.0f, -1.0f, 0.0f, 0.0f, -2.0f));
  EXPECT_THAT(result.outputs.bookkeeping.tokens_per_expert, ElementsAre(0, 2, 1, 1));
  EXPECT_THAT(result.outputs.bookkeeping.position_of_slot, ElementsAre(0, 3, 1, 2));
  EXPECT_TRUE(result.guards_intact && result.inputs_intact) << result.damage;

  small.inputs.router_logits = result.outputs.router_logits;
  small.inputs.hidden_size = 0;
  small.inputs.hidden_states.clear();
  small.inputs.gate_weight_bf16.clear();
  request.want_logits = false;
  const RunResult from_logits = run_once(*cpu, small, request);
  ASSERT_EQ(from_logits.status, Status::kOk) << from_logits.message;
  EXPECT_EQ(from_logits.outputs.topk_ids, result.outputs.topk_ids);
  EXPECT_EQ(from_logits.outputs.topk_weights, result.outputs.topk_weights);
}

TEST(OpenBackend, AMutantRunsWithItsFault) {
  const auto mutant = open_backend({"mutant:ties_to_higher_id", std::nullopt, std::chrono::milliseconds(1000)});
  const SmallCase small = one_hot_case();
  const RunResult result = run_once(*mutant, small, all_rows(small));
  ASSERT_EQ(result.status, Status::kOk) << result.message;
  EXPECT_THAT(result.outputs.topk_ids, ElementsAre(3, 1, 2, 1));
}

TEST(OpenBackend, EveryListedBackendOpens) {
  const std::vector<BackendListing> listings = list_backends();
  ASSERT_GE(listings.size(), 4u);
  EXPECT_EQ(listings.front().name, "cpu");
  for (const BackendListing& listing : listings) {
    if (listing.name == "cuda") continue;  // needs a device
    EXPECT_NE(open_backend({listing.name, std::nullopt, std::chrono::milliseconds(1000)}), nullptr) << listing.name;
    EXPECT_FALSE(listing.description.empty()) << listing.name;
  }
}

TEST(OpenBackend, CudaOpensOrSaysWhatIsMissing) {
  const BackendOptions cuda{"cuda", std::nullopt, std::chrono::milliseconds(20000)};
#ifdef SAMEBITS_HAVE_CUDA
  set_worker_program(SAMEBITS_PROGRAM);
  try {
    EXPECT_EQ(open_backend(cuda)->claims().name, "samebits-cuda");
  } catch (const BackendError& error) {
    EXPECT_THAT(error.what(), HasSubstr("no device can be used"));
  }
  set_worker_program("/usr/bin/env");
  EXPECT_THAT([&] { open_backend(cuda); },
              ::testing::ThrowsMessage<BackendError>(HasSubstr("/usr/bin/libsamebits_cuda.so is not there")));
  set_worker_program("/proc/self/exe");
#else
  EXPECT_THAT([&] { open_backend(cuda); }, ::testing::ThrowsMessage<BackendError>(HasSubstr("built without CUDA")));
#endif
}

TEST(OpenBackend, UnknownNamesAreRefusedWithSuggestions) {
  const auto message = [](const char* name) {
    try {
      open_backend({name, std::nullopt, std::chrono::milliseconds(1000)});
    } catch (const UnknownBackend& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(message("cpi"), HasSubstr("unknown backend \"cpi\"; did you mean cpu"));
  EXPECT_THAT(message("mutant:nonsense_that_is_near_to_nothing"), HasSubstr("allowed are cpu"));
  EXPECT_THAT(message(""), HasSubstr("unknown backend \"\""));
}

}  // namespace
}  // namespace samebits::harness
