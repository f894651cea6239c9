// The bookkeeping of whole calls beyond those of one launch (few_rows_test.cpp), by a launch behind all selections.
// Calls of other rows follow one another on one workspace; against the CPU backend by bits.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/router.h"
#include "kernels/test_cuda/device_router.h"
#include "kernels/test_cuda/select_case.h"

namespace samebits::cuda::test {
namespace {

using cpu::test::abi_constants;
using cpu::test::normal_bf16;
using cpu::test::plain_spec;
using cpu::test::random_constants;
using cpu::test::sigmoid_bias_spec;
using cpu::test::TestRouter;

class BookkeepRouteTest : public DeviceTest {};

samebits_router_spec grouped() {
  samebits_router_spec spec = sigmoid_bias_spec(256, 256, 8);
  spec.n_group = 8;
  spec.topk_group = 4;
  spec.group_score = SAMEBITS_GROUP_SCORE_TOP2_SUM;
  spec.group_mask = SAMEBITS_GROUP_MASK_NEG_INF;
  return spec;
}
samebits_router_spec softmax(std::int32_t experts, std::int32_t k) {
  samebits_router_spec spec = plain_spec(256, experts, k);
  spec.renormalize = SAMEBITS_RENORM_L1;
  return spec;
}
// An id may come twice in a row.
samebits_router_spec zero_experts_as_id0() {
  samebits_router_spec spec = plain_spec(256, 24, 6);
  spec.zero_experts = 12;
  spec.zero_type = SAMEBITS_ZERO_EXPERTS_IDENTITY_REMAPPED_TO_ID0_WEIGHT0;
  return spec;
}

// By the selection of a block a row in its two forms, by a warp a row, and by that for any spec.
std::vector<samebits_router_spec> specs() {
  return {sigmoid_bias_spec(256, 288, 8),
          sigmoid_bias_spec(256, 896, 16),
          grouped(),
          softmax(128, 8),
          softmax(37, 3),
          sigmoid_bias_spec(256, 600, 32),
          plain_spec(256, 288, 8),
          zero_experts_as_id0()};
}

struct Case {
  explicit Case(const samebits_router_spec& s)
      : spec(s),
        constants(random_constants(s, 7)),
        abi(abi_constants(spec, constants)),
        shapes(spec, abi),
        cpu_router(spec, constants) {
    make_router(&spec, &abi, router);
  }
  samebits_router_spec spec;
  Constants constants;
  samebits_constants abi;
  Router router;
  DeviceRouter shapes;  // of the buffers
  TestRouter cpu_router;
};

// Calls of all routers and row counts in turn, on one workspace.
void compare_calls(const std::vector<std::int64_t>& row_counts, bool from_logits) {
  constexpr std::int32_t kBlockSizes[] = {64, 1, 0, 16, 3, 100000, 128};
  std::vector<std::unique_ptr<Case>> cases;
  std::size_t bytes = 0;
  const std::int64_t most = *std::max_element(row_counts.begin(), row_counts.end());
  for (const samebits_router_spec& spec : specs()) {
    cases.push_back(std::make_unique<Case>(spec));
    bytes = std::max(bytes, workspace_bytes(cases.back()->router, most));
  }
  DeviceArray<unsigned char> workspace(bytes);
  workspace.fill_bytes(0x5a);
  for (const auto& one : cases) init_workspace(one->router, workspace.data(), workspace.size(), nullptr);
  std::uint64_t call = 0;
  for (const std::int64_t t : row_counts) {
    for (const auto& one : cases) {
      CallOptions options;
      options.bookkeeping = call % 5 != 4;
      options.block_size = options.bookkeeping ? kBlockSizes[call % std::size(kBlockSizes)] : 0;
      if (call % 4 == 3) options.num_valid_rows = static_cast<std::int32_t>(t * 2 / 3);
      // The same few experts are best in every row of some calls.
      std::vector<std::uint16_t> hidden = normal_bf16(call, t * one->spec.hidden_size);
      if (call % 6 == 5) std::fill(hidden.begin(), hidden.end(), std::uint16_t{0});
      std::vector<float> logits = draw_logits(one->spec, call, t);
      std::unique_ptr<DeviceCall> on_device;
      on_device = from_logits ? std::make_unique<DeviceCall>(one->shapes, logits, options)
                              : std::make_unique<DeviceCall>(one->shapes, hidden, options);
      cuda::route(one->router, from_logits ? Source::kLogits : Source::kHiddenStates, &on_device->inputs(),
                  &on_device->outputs(), workspace.data(), nullptr);
      const std::string what = "call " + std::to_string(call) + ", T = " + std::to_string(t) + ", E " +
                               std::to_string(one->spec.num_experts) + ", block " + std::to_string(options.block_size);
      expect_same(
          on_device->read(),
          from_logits ? one->cpu_router.route_from_logits(logits, options) : one->cpu_router.route(hidden, options),
          what);
      ++call;
    }
    if (testing::Test::HasFailure()) return;
  }
}

TEST_F(BookkeepRouteTest, OfFewRows) {
  compare_calls({17, 128, 32, 16, 33, 127, 116, 256, 97, 117, 128}, false);
}

TEST_F(BookkeepRouteTest, FromGivenLogits) {
  compare_calls({1, 16, 256, 31, 300, 129, 1025}, true);
}

TEST_F(BookkeepRouteTest, ByTilesOfRows) {
  compare_calls({257, 1024, 33, 300, 256, 4200, 1, 1025, 2057}, false);
}

// Where the caller's ids are not int32 without gaps, the selection writes those of slots as well.
TEST_F(BookkeepRouteTest, IdsOfTheCallerThatAreNoSlots) {
  const samebits_router_spec spec = sigmoid_bias_spec(256, 128, 8);
  const Constants constants = random_constants(spec, 3);
  const DeviceRouter router(spec, abi_constants(spec, constants));
  const TestRouter cpu_router(spec, constants);
  for (const std::int64_t t : {1, 9, 40, 100, 300, 1500}) {
    CallOptions options;
    options.bookkeeping = true;
    options.block_size = 16;
    const std::vector<std::uint16_t> hidden = normal_bf16(9, t * 256);
    const Routed right = cpu_router.route(hidden, options);
    for (const bool wide : {false, true}) {
      DeviceCall call(router, hidden, options);
      const std::int64_t stride = wide ? 8 : 9;
      const DeviceArray<std::int64_t> ids(static_cast<std::size_t>(t * stride));
      samebits_tensor& tensor = call.outputs().topk_ids;
      tensor.data = ids.data(), tensor.row_stride = stride, tensor.dtype = wide ? SAMEBITS_INT64 : SAMEBITS_INT32;
      ASSERT_EQ(call.launch(), SAMEBITS_OK) << router.error();
      Routed found = call.read();
      found.ids = right.ids;
      expect_same(found, right, "T = " + std::to_string(t) + (wide ? ", int64" : ", with a gap"));
    }
  }
}

// Tiles of up to 128 rows, and the sort beyond them.
TEST_F(BookkeepRouteTest, OfManyRows) {
  for (const samebits_router_spec& spec : {sigmoid_bias_spec(16, 96, 4), softmax(40, 6)}) {
    samebits_router_spec narrow = spec;
    narrow.hidden_size = 16;
    const Constants constants = random_constants(narrow, 3);
    const DeviceRouter router(narrow, abi_constants(narrow, constants));
    const TestRouter cpu_router(narrow, constants);
    for (const std::int64_t t : {2049, 8192, 8193, 20000, 32768, 32769, 70000}) {
      CallOptions options;
      options.bookkeeping = true;
      options.block_size = 64;
      options.num_valid_rows = static_cast<std::int32_t>(t - 3);
      const std::vector<std::uint16_t> hidden = normal_bf16(9, t * 16);
      expect_same(route(router, hidden, options), cpu_router.route(hidden, options), "T = " + std::to_string(t));
    }
  }
}

}  // namespace
}  // namespace samebits::cuda::test
