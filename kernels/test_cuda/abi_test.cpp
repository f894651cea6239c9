// libsamebits_cuda.so: what it refuses, what a workspace must be, and that a refused call launches nothing.
#include <gtest/gtest.h>

#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "kernels/test_cuda/device_router.h"

namespace samebits::cuda::test {
namespace {

using cpu::test::abi_constants;
using cpu::test::normal_bf16;
using cpu::test::normal_fp32;
using cpu::test::plain_spec;
using cpu::test::random_constants;
using cpu::test::sigmoid_bias_spec;

constexpr std::int32_t kHidden = 24, kExperts = 9, kTopK = 2;
constexpr std::int64_t kRows = 5;

const CudaLibrary& library() {
  return CudaLibrary::get();
}

// --- without a device ---

TEST(CudaAbi, Describe) {
  samebits_info info;
  std::memset(&info, 0xff, sizeof(info));
  info.struct_size = sizeof(info);
  ASSERT_EQ(library().describe(&info), SAMEBITS_OK);
  EXPECT_EQ(info.abi_version, SAMEBITS_ABI_VERSION);
  EXPECT_STREQ(info.name, "samebits-cuda");
  EXPECT_STREQ(info.arithmetic, "tc256");
  EXPECT_EQ(info.memory_kinds, static_cast<std::uint32_t>(SAMEBITS_MEMORY_DEVICE));
  EXPECT_EQ(info.determinism, SAMEBITS_BATCH_INVARIANT);
  EXPECT_EQ(info.tie_break, SAMEBITS_TIES_LOWEST_INDEX);
  EXPECT_EQ(info.output_order, SAMEBITS_ORDER_KEY_DESC_THEN_INDEX);
  EXPECT_EQ(info.returns_logits, 1);
  EXPECT_EQ(info.returns_bookkeeping, 1);
  EXPECT_EQ(info.max_experts, 2560);
  EXPECT_EQ(info.max_top_k, 64);
  EXPECT_EQ(info.max_hidden_size, 0);
  EXPECT_EQ(info.max_tokens, std::numeric_limits<std::int32_t>::max());
}

TEST(CudaAbi, ExportsTheAbiAlone) {
  EXPECT_NE(dlsym(library().handle, "samebits_abi_version"), nullptr);
  EXPECT_EQ(dlsym(library().handle, "_ZN8samebits4cuda12check_limitsERK20samebits_router_spec"), nullptr);
  EXPECT_EQ(dlsym(library().handle, "cudaMalloc"), dlsym(RTLD_DEFAULT, "cudaMalloc"));
}

TEST(CudaAbi, SupportsNamesTheLimit) {
  const auto reason = [](const samebits_router_spec& spec, samebits_status expected) {
    char text[256];
    EXPECT_EQ(library().supports(&spec, text, sizeof(text)), expected);
    return std::string(text);
  };
  samebits_router_spec spec = plain_spec(64, 2560, 64);
  EXPECT_EQ(reason(spec, SAMEBITS_OK), "");
  spec.top_k = 65;
  EXPECT_EQ(reason(spec, SAMEBITS_UNSUPPORTED), "top_k: found 65, this router has at most 64");
  const std::string too_many =
      "num_experts, zero_experts and shared experts in the gate together: found 2561, this router has at most 2560";
  EXPECT_EQ(reason(plain_spec(64, 2561, 8), SAMEBITS_UNSUPPORTED), too_many);
  spec = sigmoid_bias_spec(64, 2304, 64);
  spec.shared_mode = SAMEBITS_SHARED_IN_GATE;
  spec.shared_experts = 256;
  EXPECT_EQ(reason(spec, SAMEBITS_OK), "");
  spec.shared_experts = 257;
  EXPECT_EQ(reason(spec, SAMEBITS_UNSUPPORTED), too_many);
  spec = plain_spec(64, 8, 9);
  EXPECT_NE(reason(spec, SAMEBITS_INVALID_ARGUMENT).find("top_k: found 9"), std::string::npos);
}

TEST(CudaAbi, NullRouters) {
  samebits_inputs inputs{};
  samebits_outputs outputs{};
  EXPECT_EQ(library().route(nullptr, &inputs, &outputs, nullptr, nullptr), SAMEBITS_INVALID_ARGUMENT);
  EXPECT_EQ(library().workspace_init(nullptr, nullptr, 0, nullptr), SAMEBITS_INVALID_ARGUMENT);
  EXPECT_EQ(library().workspace_bytes(nullptr, 1), 0u);
  EXPECT_EQ(library().describe(nullptr), SAMEBITS_INVALID_ARGUMENT);
  library().destroy(nullptr);
}

// --- with one ---

class CudaAbiTest : public DeviceTest {};

// A call that works; each test changes one thing.
struct GoodCall {
  samebits_router_spec spec = sigmoid_bias_spec(kHidden, kExperts, kTopK);
  Constants constants = random_constants(spec, 1);
  DeviceRouter router{spec, abi_constants(spec, constants)};
  DeviceCall call{router, normal_bf16(2, kRows* kHidden), CallOptions{}};
  samebits_inputs& inputs = call.inputs();
  samebits_outputs& outputs = call.outputs();
};

struct BadCall {
  const char* text;  // part of the error
  std::function<void(GoodCall&)> change;
};

const BadCall kBadCalls[] = {
    {"inputs.struct_size: found 0", [](GoodCall& c) { c.inputs.struct_size = 0; }},
    {"outputs.struct_size: found 0", [](GoodCall& c) { c.outputs.struct_size = 0; }},
    {"num_tokens: found -1", [](GoodCall& c) { c.inputs.num_tokens = -1; }},
    {"hidden_states: found shape [5, 24], allowed [4, 24]", [](GoodCall& c) { c.inputs.num_tokens = 4; }},
    {"hidden_states: found dtype 1 (fp32), allowed 2 (bf16)",
     [](GoodCall& c) { c.inputs.hidden_states.dtype = SAMEBITS_FP32; }},
    {"hidden_states: found dtype 5, allowed 2 (bf16)", [](GoodCall& c) { c.inputs.hidden_states.dtype = 5; }},
    {"hidden_states: data is null", [](GoodCall& c) { c.inputs.hidden_states.data = nullptr; }},
    {"hidden_states: data is not aligned",
     [](GoodCall& c) { c.inputs.hidden_states.data = static_cast<char*>(c.inputs.hidden_states.data) + 1; }},
    {"hidden_states: found row_stride 23", [](GoodCall& c) { c.inputs.hidden_states.row_stride = 23; }},
    {"topk_ids: data is null", [](GoodCall& c) { c.outputs.topk_ids.data = nullptr; }},
    {"topk_ids: found dtype 2 (bf16)", [](GoodCall& c) { c.outputs.topk_ids.dtype = SAMEBITS_BF16; }},
    {"topk_weights: found dtype 0 (none)", [](GoodCall& c) { c.outputs.topk_weights.dtype = 0; }},
    {"outputs.router_logits: found shape", [](GoodCall& c) { c.outputs.router_logits.cols = kExperts - 1; }},
    {"block_size: found -1", [](GoodCall& c) { c.outputs.block_size = -1; }},
    {"block_size: found 0, allowed 1 or more",
     [](GoodCall& c) { c.outputs.expert_ids = static_cast<std::int32_t*>(c.outputs.topk_ids.data); }},
    {"num_tokens: found 5, but bookkeeping", [](GoodCall& c) { c.outputs.block_size = INT32_MAX; }},
    {"workspace: not initialised",
     [](GoodCall& c) { c.call.set_workspace(static_cast<char*>(c.call.workspace()) + 256); }},
};

TEST_F(CudaAbiTest, BadCallsHaveClearErrorsAndLaunchNothing) {
  for (const BadCall& bad : kBadCalls) {
    GoodCall good;
    bad.change(good);
    EXPECT_EQ(good.call.launch(), SAMEBITS_INVALID_ARGUMENT) << bad.text;
    EXPECT_NE(good.router.error().find(bad.text), std::string::npos) << bad.text << "\nfound: " << good.router.error();
    const Routed untouched = good.call.read();
    for (const std::int32_t id : untouched.ids) EXPECT_EQ(id, static_cast<std::int32_t>(0xdeadbeef)) << bad.text;
    for (const float w : untouched.weights) EXPECT_EQ(std::bit_cast<std::uint32_t>(w), 0xdeadbeefu) << bad.text;
  }
}

TEST_F(CudaAbiTest, BadConstants) {
  const samebits_router_spec spec = sigmoid_bias_spec(kHidden, kExperts, kTopK);
  const Constants values = random_constants(spec, 1);
  const auto error = [&](const samebits_constants& constants) {
    samebits_router* router = nullptr;
    EXPECT_EQ(library().create(&spec, &constants, &router), SAMEBITS_INVALID_ARGUMENT);
    EXPECT_EQ(router, nullptr);
    return std::string(library().last_error(nullptr));
  };
  samebits_constants constants = abi_constants(spec, values);
  constants.memory = 3;
  EXPECT_EQ(error(constants), "constants.memory: found 3, allowed 1 (host), 2 (device)");
  constants = abi_constants(spec, values);
  constants.gate_weight.cols = kHidden - 1;
  EXPECT_NE(error(constants).find("gate_weight: found shape [9, 23], allowed [9, 24]"), std::string::npos);
  constants = abi_constants(spec, values);
  constants.selection_bias = {};
  EXPECT_NE(error(constants).find("selection_bias"), std::string::npos);

  samebits_router_spec table_spec = plain_spec(kHidden, kExperts, kTopK);
  table_spec.selection_method = SAMEBITS_SELECT_HASH_TABLE;
  table_spec.hash_vocab_size = 3;
  const DeviceArray<std::int32_t> table(std::vector<std::int32_t>{0, 1, 2, 3, 4, 4});
  const DeviceArray<std::uint16_t> weight(random_constants(table_spec, 1).gate_weight);
  constants = {};
  constants.struct_size = sizeof(constants);
  constants.memory = SAMEBITS_MEMORY_DEVICE;
  constants.gate_weight = matrix(weight.data(), kExperts, kHidden, SAMEBITS_BF16);
  constants.hash_table = matrix(table.data(), 3, kTopK, SAMEBITS_INT32);
  samebits_router* router = nullptr;
  EXPECT_EQ(library().create(&table_spec, &constants, &router), SAMEBITS_INVALID_ARGUMENT);
  EXPECT_NE(std::string(library().last_error(nullptr)).find("hash_table: found id 4 a second time in row 2, column 1"),
            std::string::npos)
      << library().last_error(nullptr);
}

TEST_F(CudaAbiTest, TooManyRowsAreRefused) {
  GoodCall good;
  const std::int64_t rows = std::int64_t{1} << 31;
  good.inputs.num_tokens = good.inputs.hidden_states.rows = rows;
  good.outputs.topk_ids.rows = good.outputs.topk_weights.rows = good.outputs.router_logits.rows = rows;
  EXPECT_EQ(good.call.launch(), SAMEBITS_UNSUPPORTED);
  EXPECT_EQ(good.router.error(), "inputs.num_tokens: found 2147483648, this router has at most 2147483647 rows a call");
}

TEST_F(CudaAbiTest, WithoutAGateWeightOnlyLogitsCanBeRouted) {
  GoodCall good;
  samebits_constants constants = abi_constants(good.spec, good.constants);
  constants.gate_weight = {};
  const DeviceRouter router(good.spec, constants);
  DeviceCall hidden(router, normal_bf16(2, kRows * kHidden), {});
  EXPECT_EQ(hidden.launch(), SAMEBITS_INVALID_ARGUMENT);
  EXPECT_NE(router.error().find("gate_weight: absent"), std::string::npos) << router.error();
  const std::vector<float> logits = normal_fp32(3, kRows * kExperts);
  expect_same(route(router, logits), cpu::test::TestRouter(good.spec, good.constants).route_from_logits(logits),
              "from logits");
}

TEST_F(CudaAbiTest, FieldsBeyondTheStructSizeAreZero) {
  GoodCall good;
  ASSERT_EQ(good.call.launch(), SAMEBITS_OK);
  const std::vector<std::int32_t> ids = good.call.read().ids;
  good.outputs.struct_size = offsetof(samebits_outputs, router_logits);
  std::memset(&good.outputs.router_logits, 0xff, sizeof(good.outputs) - good.outputs.struct_size);
  good.inputs.struct_size = offsetof(samebits_inputs, num_valid_rows);
  std::memset(&good.inputs.num_valid_rows, 0xff, sizeof(good.inputs) - good.inputs.struct_size);
  EXPECT_EQ(good.call.launch(), SAMEBITS_OK) << good.router.error();
  EXPECT_EQ(good.call.read().ids, ids);
  EXPECT_EQ(static_cast<unsigned char>(good.outputs.kernel_name[0]), 0xff);
}

TEST_F(CudaAbiTest, WorkspacesGrowWithTheRows) {
  for (const samebits_router_spec& spec :
       {sigmoid_bias_spec(7168, 256, 8), plain_spec(2048, 128, 8), plain_spec(16384, 2304, 64), plain_spec(8, 1, 1)}) {
    const Constants constants = spec.hidden_size > 4096 ? Constants{} : random_constants(spec, 1);
    samebits_constants abi = abi_constants(spec, constants);
    const std::vector<std::uint16_t> weight(static_cast<std::size_t>(spec.num_experts) *
                                            static_cast<std::size_t>(spec.hidden_size));
    const std::vector<float> bias(static_cast<std::size_t>(spec.num_experts));
    abi.gate_weight = matrix(weight.data(), spec.num_experts, spec.hidden_size, SAMEBITS_BF16);
    if (spec.selection_bias_dtype != SAMEBITS_DTYPE_NONE) {
      abi.selection_bias = matrix(bias.data(), 1, spec.num_experts, SAMEBITS_FP32);
    }
    const DeviceRouter router(spec, abi);
    std::size_t last = 0;
    for (std::int64_t t = 0; t <= std::int64_t{1} << 20; t += t < 600 ? 1 : 1 + t / 9) {
      const std::size_t bytes = library().workspace_bytes(router.get(), t);
      EXPECT_GE(bytes, last) << "T = " << t;
      last = bytes;
    }
    EXPECT_EQ(library().workspace_bytes(router.get(), -1), 0u);
    EXPECT_EQ(library().workspace_bytes(router.get(), std::int64_t{1} << 31), 0u);
    EXPECT_GT(library().workspace_bytes(router.get(), (std::int64_t{1} << 31) - 1), last);
  }
}

TEST_F(CudaAbiTest, WorkspaceTooSmallForTheRows) {
  GoodCall good;
  DeviceArray<unsigned char> workspace(library().workspace_bytes(good.router.get(), kRows));
  EXPECT_EQ(library().workspace_init(good.router.get(), workspace.data(), 10, nullptr), SAMEBITS_INVALID_ARGUMENT);
  EXPECT_NE(good.router.error().find("workspace_bytes: found 10, allowed"), std::string::npos) << good.router.error();
  const std::size_t small = library().workspace_bytes(good.router.get(), kRows - 1);
  ASSERT_LT(small, workspace.size());
  ASSERT_EQ(library().workspace_init(good.router.get(), workspace.data(), small, nullptr), SAMEBITS_OK);
  good.call.set_workspace(workspace.data());
  EXPECT_EQ(good.call.launch(), SAMEBITS_INVALID_ARGUMENT);
  EXPECT_NE(good.router.error().find("workspace: found"), std::string::npos) << good.router.error();
  ASSERT_EQ(library().workspace_init(good.router.get(), workspace.data(), workspace.size(), nullptr), SAMEBITS_OK);
  EXPECT_EQ(good.call.launch(), SAMEBITS_OK) << good.router.error();
}

TEST_F(CudaAbiTest, EmptyCallNeedsNoBuffers) {
  GoodCall good;
  DeviceArray<std::int32_t> offsets(std::vector<std::int32_t>(kExperts + 1, -9));
  good.inputs.num_tokens = 0;
  good.inputs.hidden_states = {nullptr, 0, kHidden, kHidden, SAMEBITS_BF16, 0};
  good.outputs.topk_ids = {nullptr, 0, kTopK, kTopK, SAMEBITS_INT32, 0};
  good.outputs.topk_weights = {nullptr, 0, kTopK, kTopK, SAMEBITS_FP32, 0};
  good.outputs.router_logits = {};
  good.outputs.expert_offsets = offsets.data();
  EXPECT_EQ(good.call.launch(), SAMEBITS_OK) << good.router.error();
  EXPECT_EQ(offsets.read(), std::vector<std::int32_t>(kExperts + 1, 0));
}

}  // namespace
}  // namespace samebits::cuda::test
