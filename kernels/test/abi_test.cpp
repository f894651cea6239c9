// The C ABI: arguments, sizes of structs, padding rows, strides, limits.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "kernels/common/bits.h"
#include "kernels/test/test_router.h"

namespace samebits::cpu::test {
namespace {

constexpr std::int32_t kHidden = 20, kExperts = 9, kTopK = 2;
constexpr std::int64_t kRows = 5;

// A call that works; each test changes one thing.
struct GoodCall {
  GoodCall() {
    inputs.struct_size = sizeof(inputs);
    inputs.num_tokens = kRows;
    inputs.hidden_states = tensor(hidden, kRows, kHidden, SAMEBITS_BF16);
    inputs.router_logits = tensor(logits, kRows, kExperts, SAMEBITS_FP32);
    outputs.struct_size = sizeof(outputs);
    outputs.topk_ids = tensor(ids, kRows, kTopK, SAMEBITS_INT32);
    outputs.topk_weights = tensor(weights, kRows, kTopK, SAMEBITS_FP32);
    workspace.resize(samebits_workspace_bytes(router.get(), kRows));
    EXPECT_EQ(samebits_workspace_init(router.get(), workspace.data(), workspace.size(), nullptr), SAMEBITS_OK);
  }
  samebits_status route() { return samebits_route(router.get(), &inputs, &outputs, workspace.data(), nullptr); }
  samebits_status route_from_logits() {
    return samebits_route_from_logits(router.get(), &inputs, &outputs, workspace.data(), nullptr);
  }
  std::string error() const { return samebits_last_error(router.get()); }

  samebits_router_spec spec = sigmoid_bias_spec(kHidden, kExperts, kTopK);
  TestRouter router{spec, random_constants(spec, 1)};
  std::vector<std::uint16_t> hidden = normal_bf16(2, kRows* kHidden);
  std::vector<float> logits = normal_fp32(3, kRows*kExperts), weights = std::vector<float>(kRows * kTopK);
  std::vector<std::int32_t> ids = std::vector<std::int32_t>(kRows * kTopK);
  std::vector<unsigned char> workspace;
  samebits_inputs inputs{};
  samebits_outputs outputs{};
};

void set_rows(GoodCall& call, std::int64_t rows) {
  call.inputs.num_tokens = call.inputs.hidden_states.rows = call.outputs.topk_ids.rows =
      call.outputs.topk_weights.rows = rows;
}

struct BadCall {
  const char* text;  // part of the error
  std::function<void(GoodCall&)> change;
};

const BadCall kBadCalls[] = {
    {"inputs.struct_size: found 0", [](GoodCall& c) { c.inputs.struct_size = 0; }},
    {"outputs.struct_size: found 0", [](GoodCall& c) { c.outputs.struct_size = 0; }},
    {"num_tokens: found -1", [](GoodCall& c) { c.inputs.num_tokens = -1; }},
    {"hidden_states: found shape [5, 20], allowed [4, 20]", [](GoodCall& c) { c.inputs.num_tokens = 4; }},
    {"hidden_states: found dtype 1 (fp32), allowed 2 (bf16)",
     [](GoodCall& c) { c.inputs.hidden_states.dtype = SAMEBITS_FP32; }},
    {"hidden_states: data is null", [](GoodCall& c) { c.inputs.hidden_states.data = nullptr; }},
    {"hidden_states: found row_stride 19, allowed at least cols, 20",
     [](GoodCall& c) { c.inputs.hidden_states.row_stride = 19; }},
    {"topk_ids: data is null", [](GoodCall& c) { c.outputs.topk_ids.data = nullptr; }},
    {"topk_ids: found dtype 2 (bf16), allowed 3 (int32), 4 (int64)",
     [](GoodCall& c) { c.outputs.topk_ids.dtype = SAMEBITS_BF16; }},
    {"topk_ids: found shape [5, 3], allowed [5, 2]", [](GoodCall& c) { c.outputs.topk_ids.cols = 3; }},
    {"topk_weights: found dtype 0 (none), allowed 1 (fp32), 2 (bf16)",
     [](GoodCall& c) { c.outputs.topk_weights.dtype = 0; }},
    {"topk_weights: data is not aligned",
     [](GoodCall& c) { c.outputs.topk_weights.data = static_cast<char*>(c.outputs.topk_weights.data) + 1; }},
    {"outputs.router_logits: found shape",
     [](GoodCall& c) { c.outputs.router_logits = tensor(c.logits, kRows, kExperts - 1, SAMEBITS_FP32); }},
    {"block_size: found -1", [](GoodCall& c) { c.outputs.block_size = -1; }},
    {"block_size: found 0, allowed 1 or more", [](GoodCall& c) { c.outputs.num_tokens_post_padded = c.ids.data(); }},
    {"num_tokens: found 5, but bookkeeping", [](GoodCall& c) { c.outputs.block_size = INT32_MAX; }},
    {"hidden_states: found 9223372036854775807 rows of 20, allowed at most 230584300921369395 rows",
     [](GoodCall& c) { set_rows(c, INT64_MAX); }},
    {"pass fewer rows at a time", [](GoodCall& c) { set_rows(c, std::int64_t{1} << 60); }},
    {"hidden_states: found row_stride 9223372036854775807, allowed at most 1152921504606846970 elements with 5 rows",
     [](GoodCall& c) { c.inputs.hidden_states.row_stride = INT64_MAX; }},
    {"count the stride in elements",
     [](GoodCall& c) { c.inputs.hidden_states.row_stride = (std::int64_t{1} << 62) + 64; }},
    {"topk_ids: found row_stride", [](GoodCall& c) { c.outputs.topk_ids.row_stride = std::int64_t{1} << 60; }},
    {"topk_weights: found row_stride", [](GoodCall& c) { c.outputs.topk_weights.row_stride = INT64_MAX; }},
    {"workspace: found", [](GoodCall& c) { set_rows(c, std::int64_t{1} << 56); }},  // as large as tensors go
    {"workspace: not initialised",
     [](GoodCall& c) { std::fill(c.workspace.begin(), c.workspace.end(), static_cast<unsigned char>(0)); }},
};

TEST(Abi, BadCallsHaveClearErrors) {
  for (const BadCall& bad : kBadCalls) {
    GoodCall call;
    ASSERT_EQ(call.route(), SAMEBITS_OK);
    const std::vector<std::int32_t> before = call.ids;
    bad.change(call);
    EXPECT_EQ(call.route(), SAMEBITS_INVALID_ARGUMENT) << bad.text;
    EXPECT_NE(call.error().find(bad.text), std::string::npos) << bad.text << "\nfound: " << call.error();
    EXPECT_EQ(call.ids, before) << "outputs are untouched: " << bad.text;
  }
}

TEST(Abi, NullArguments) {
  GoodCall call;
  samebits_router* router = call.router.get();
  EXPECT_EQ(samebits_route(nullptr, &call.inputs, &call.outputs, call.workspace.data(), nullptr),
            SAMEBITS_INVALID_ARGUMENT);
  EXPECT_EQ(samebits_route(router, nullptr, &call.outputs, call.workspace.data(), nullptr), SAMEBITS_INVALID_ARGUMENT);
  EXPECT_EQ(samebits_route(router, &call.inputs, nullptr, call.workspace.data(), nullptr), SAMEBITS_INVALID_ARGUMENT);
  EXPECT_EQ(samebits_route(router, &call.inputs, &call.outputs, nullptr, nullptr), SAMEBITS_INVALID_ARGUMENT);
  int stream = 0;
  EXPECT_EQ(samebits_route(router, &call.inputs, &call.outputs, call.workspace.data(), &stream),
            SAMEBITS_INVALID_ARGUMENT);
  EXPECT_EQ(samebits_create(&call.spec, nullptr, &router), SAMEBITS_INVALID_ARGUMENT);
  EXPECT_EQ(router, nullptr);
  EXPECT_STREQ(samebits_last_error(nullptr), "constants is null");
  EXPECT_EQ(samebits_create(nullptr, nullptr, &router), SAMEBITS_INVALID_ARGUMENT);
  EXPECT_EQ(samebits_create(&call.spec, nullptr, nullptr), SAMEBITS_INVALID_ARGUMENT);
  EXPECT_EQ(samebits_describe(nullptr), SAMEBITS_INVALID_ARGUMENT);
  EXPECT_EQ(samebits_workspace_bytes(nullptr, 1), 0u);
  EXPECT_EQ(samebits_topk_columns(nullptr), 0);
  samebits_destroy(nullptr);
}

TEST(Abi, WorkspaceTooSmallForTheRows) {
  GoodCall call;
  const std::size_t small = samebits_workspace_bytes(call.router.get(), 0);
  ASSERT_EQ(samebits_workspace_init(call.router.get(), call.workspace.data(), small, nullptr), SAMEBITS_OK);
  call.inputs.num_tokens = 4096;
  call.inputs.hidden_states.rows = call.outputs.topk_ids.rows = call.outputs.topk_weights.rows = 4096;
  EXPECT_EQ(call.route(), SAMEBITS_INVALID_ARGUMENT);
  EXPECT_NE(call.error().find("workspace: found"), std::string::npos) << call.error();
  EXPECT_EQ(samebits_workspace_init(call.router.get(), call.workspace.data(), 10, nullptr), SAMEBITS_INVALID_ARGUMENT);
}

TEST(Abi, NoWorkspaceForMoreRowsThanMemoryHolds) {
  GoodCall call;
  const samebits_router* router = call.router.get();
  constexpr std::int64_t kMost = (std::int64_t{1} << 62) / (kTopK * 4);
  EXPECT_GE(samebits_workspace_bytes(router, kMost), std::size_t{1} << 62);
  for (const std::int64_t rows :
       {kMost + 1, std::int64_t{1} << 60, INT64_MAX - 1, INT64_MAX, std::int64_t{-1}, INT64_MIN}) {
    EXPECT_EQ(samebits_workspace_bytes(router, rows), 0u) << rows;
  }
}

TEST(Abi, TheStrideOfOneRowMeansNothing) {
  GoodCall call;
  ASSERT_EQ(call.route(), SAMEBITS_OK);
  const std::vector<std::int32_t> first(call.ids.begin(), call.ids.begin() + kTopK);
  set_rows(call, 1);
  for (const std::int64_t stride : {std::int64_t{0}, INT64_MAX}) {
    std::fill(call.ids.begin(), call.ids.end(), -7);
    call.inputs.hidden_states.row_stride = call.outputs.topk_ids.row_stride = stride;
    EXPECT_EQ(call.route(), SAMEBITS_OK) << call.error();
    EXPECT_TRUE(std::equal(first.begin(), first.end(), call.ids.begin())) << stride;
  }
}

TEST(Abi, ErrorsBelongToRouterAndThread) {
  GoodCall first, second;
  first.inputs.num_tokens = -1;
  second.inputs.num_tokens = -2;
  first.route(), second.route();
  EXPECT_NE(first.error().find("-1"), std::string::npos);
  EXPECT_NE(second.error().find("-2"), std::string::npos);
  std::string elsewhere = "not called";
  std::thread([&] { elsewhere = first.error(); }).join();
  EXPECT_EQ(elsewhere, "");
}

TEST(Abi, FieldsBeyondTheStructSizeAreZero) {
  GoodCall call;
  ASSERT_EQ(call.route(), SAMEBITS_OK);
  const auto ids = call.ids;
  // A caller that knows no bookkeeping and no kernel_name: what lies there is not read or written.
  call.outputs.struct_size = offsetof(samebits_outputs, router_logits);
  std::memset(&call.outputs.router_logits, 0xff, sizeof(call.outputs) - call.outputs.struct_size);
  call.inputs.struct_size = offsetof(samebits_inputs, num_valid_rows);
  std::memset(&call.inputs.num_valid_rows, 0xff, sizeof(call.inputs) - call.inputs.struct_size);
  EXPECT_EQ(call.route(), SAMEBITS_OK) << call.error();
  EXPECT_EQ(call.ids, ids);
  EXPECT_EQ(static_cast<unsigned char>(call.outputs.kernel_name[0]), 0xff);
}

TEST(Abi, NewerCallersMaySetNothingUnknown) {
  struct Newer {
    samebits_router_spec spec;
    std::int32_t new_field;
  } newer{plain_spec(0, 4, 2), 0};
  newer.spec.struct_size = sizeof(Newer);
  EXPECT_EQ(samebits_supports(&newer.spec, nullptr, 0), SAMEBITS_OK);
  newer.new_field = 1;
  char reason[200];
  EXPECT_EQ(samebits_supports(&newer.spec, reason, sizeof(reason)), SAMEBITS_UNSUPPORTED);
  EXPECT_NE(std::string(reason).find("beyond"), std::string::npos) << reason;
}

TEST(Abi, DescribeCutsNoFieldAndWritesToNoSizeThatNobodySet) {
  for (const std::uint32_t size :
       {0u, 8u, 20u, static_cast<std::uint32_t>(sizeof(samebits_info)) - 1u, 65537u, 0xffffffffu}) {
    samebits_info info;
    std::memset(&info, 0xff, sizeof(info));
    info.struct_size = size;
    EXPECT_EQ(samebits_describe(&info), SAMEBITS_INVALID_ARGUMENT) << size;
    EXPECT_EQ(static_cast<unsigned char>(info.name[0]), 0xff) << size;
  }
}

TEST(Abi, Describe) {
  samebits_info info;
  std::memset(&info, 0xff, sizeof(info));
  info.struct_size = sizeof(info);
  ASSERT_EQ(samebits_describe(&info), SAMEBITS_OK);
  EXPECT_EQ(samebits_abi_version(), SAMEBITS_ABI_VERSION);
  EXPECT_EQ(info.abi_version, SAMEBITS_ABI_VERSION);
  EXPECT_STREQ(info.name, "samebits-cpu");
  EXPECT_STREQ(info.arithmetic, "tc256");
  EXPECT_EQ(info.memory_kinds, static_cast<std::uint32_t>(SAMEBITS_MEMORY_HOST));
  EXPECT_EQ(info.determinism, SAMEBITS_BATCH_INVARIANT);
  EXPECT_EQ(info.max_tokens, 0);
}

TEST(Constants, WithoutAGateWeightOnlyLogitsCanBeRouted) {
  GoodCall good;
  const Constants values = random_constants(good.spec, 1);
  samebits_constants constants = abi_constants(good.spec, values);
  constants.gate_weight = {};
  samebits_router* router = nullptr;
  ASSERT_EQ(samebits_create(&good.spec, &constants, &router), SAMEBITS_OK);
  EXPECT_EQ(samebits_route(router, &good.inputs, &good.outputs, good.workspace.data(), nullptr),
            SAMEBITS_INVALID_ARGUMENT);
  EXPECT_NE(std::string(samebits_last_error(router)).find("gate_weight: absent"), std::string::npos);
  EXPECT_EQ(samebits_route_from_logits(router, &good.inputs, &good.outputs, good.workspace.data(), nullptr),
            SAMEBITS_OK);
  samebits_destroy(router);
}

TEST(PaddingRows, HaveNoExpertsAndKeepTheirLogits) {
  GoodCall call;
  for (const std::int32_t valid : {-3, 0, 2, 5, 100}) {
    const std::int64_t rows = std::clamp<std::int64_t>(valid, 0, kRows);
    std::vector<float> logits(kRows * kExperts, 77.0f);
    call.outputs.router_logits = tensor(logits, kRows, kExperts, SAMEBITS_FP32);
    call.inputs.num_valid_rows = &valid;
    ASSERT_EQ(call.route(), SAMEBITS_OK) << call.error();
    for (std::int64_t i = 0; i < kRows * kTopK; ++i) {
      EXPECT_EQ(call.ids[static_cast<std::size_t>(i)] == -1, i >= rows * kTopK);
      EXPECT_EQ(call.weights[static_cast<std::size_t>(i)] == 0.0f, i >= rows * kTopK);
    }
    for (std::int64_t i = 0; i < kRows * kExperts; ++i) {
      EXPECT_EQ(logits[static_cast<std::size_t>(i)] == 77.0f, i >= rows * kExperts);
    }
  }
}

TEST(EmptyCall, NeedsNoBuffers) {
  GoodCall call;
  std::vector<std::int32_t> offsets(kExperts + 1, -9);
  call.inputs.num_tokens = 0;
  call.inputs.hidden_states = {nullptr, 0, kHidden, kHidden, SAMEBITS_BF16, 0};
  call.outputs.topk_ids = {nullptr, 0, kTopK, kTopK, SAMEBITS_INT32, 0};
  call.outputs.topk_weights = {nullptr, 0, kTopK, kTopK, SAMEBITS_FP32, 0};
  call.outputs.expert_offsets = offsets.data();
  EXPECT_EQ(call.route(), SAMEBITS_OK) << call.error();
  EXPECT_EQ(offsets, std::vector<std::int32_t>(kExperts + 1, 0));
}

// Buffers with gaps between rows, 2-byte aligned hidden states, int64 ids and bf16 weights.
TEST(Layout, StridesAlignmentAndDtypesChangeNoBit) {
  GoodCall call;
  ASSERT_EQ(call.route(), SAMEBITS_OK);
  constexpr std::int64_t kGap = 3;
  std::vector<std::uint16_t> hidden(1 + kRows * (kHidden + kGap), 0x7fff);
  for (std::int64_t r = 0; r < kRows; ++r) {
    std::copy_n(call.hidden.begin() + r * kHidden, kHidden, hidden.begin() + 1 + r * (kHidden + kGap));
  }
  std::vector<std::int64_t> ids(kRows * (kTopK + kGap), -9);
  std::vector<std::uint16_t> weights(kRows * (kTopK + kGap), 0x1234);
  std::vector<float> logits(kRows * (kExperts + kGap), 77.0f);
  call.inputs.hidden_states = {hidden.data() + 1, kRows, kHidden, kHidden + kGap, SAMEBITS_BF16, 0};
  GoodCall wide;
  wide.inputs.hidden_states = call.inputs.hidden_states;
  wide.outputs.topk_ids = {ids.data(), kRows, kTopK, kTopK + kGap, SAMEBITS_INT64, 0};
  wide.outputs.topk_weights = {weights.data(), kRows, kTopK, kTopK + kGap, SAMEBITS_BF16, 0};
  wide.outputs.router_logits = {logits.data(), kRows, kExperts, kExperts + kGap, SAMEBITS_FP32, 0};
  ASSERT_EQ(wide.route(), SAMEBITS_OK) << wide.error();
  const Routed plain = call.router.route(call.hidden);
  for (std::int64_t r = 0; r < kRows; ++r) {
    for (std::int64_t c = 0; c < kTopK + kGap; ++c) {
      const auto at = static_cast<std::size_t>(r * (kTopK + kGap) + c),
                 slot = static_cast<std::size_t>(r * kTopK + c % kTopK);
      EXPECT_EQ(ids[at], c < kTopK ? plain.ids[slot] : -9);
      const std::uint16_t rounded = c < kTopK ? weight_to_bf16(plain.weights[slot]) : std::uint16_t{0x1234};
      EXPECT_EQ(weights[at], rounded);
    }
    for (std::int64_t e = 0; e < kExperts + kGap; ++e) {
      EXPECT_EQ(logits[static_cast<std::size_t>(r * (kExperts + kGap) + e)],
                e < kExperts ? plain.logits[static_cast<std::size_t>(r * kExperts + e)] : 77.0f);
    }
  }
}

}  // namespace
}  // namespace samebits::cpu::test
