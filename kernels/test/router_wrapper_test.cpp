// The C++ wrapper of the C ABI.
#include <gtest/gtest.h>
#include <samebits/router.hpp>

#include <utility>
#include <vector>

#include "kernels/test/test_router.h"

namespace samebits::cpu::test {
namespace {

TEST(RouterWrapper, GivesWhatTheAbiGives) {
  const samebits_router_spec spec = sigmoid_bias_spec(40, 9, 2);
  const Constants constants = random_constants(spec, 1);
  const auto hidden = normal_bf16(2, 5 * 40);
  const Routed expected = TestRouter(spec, constants).route(hidden);

  Router first(spec, abi_constants(spec, constants));
  const Router router = std::move(first);
  std::vector<unsigned char> workspace(router.workspace_bytes(5));
  router.init_workspace(workspace.data(), workspace.size());
  std::vector<std::int32_t> ids(10);
  std::vector<float> weights(10);
  auto inputs = sized<samebits_inputs>();
  inputs.num_tokens = 5;
  inputs.hidden_states = tensor(hidden, 5, 40, SAMEBITS_BF16);
  auto outputs = sized<samebits_outputs>();
  outputs.topk_ids = tensor(ids, 5, 2, SAMEBITS_INT32);
  outputs.topk_weights = tensor(weights, 5, 2, SAMEBITS_FP32);
  router.route(inputs, outputs, workspace.data());
  EXPECT_EQ(ids, expected.ids);
  EXPECT_TRUE(same_bits(weights, expected.weights));

  weights.assign(10, 0.0f);
  inputs.router_logits = tensor(expected.logits, 5, 9, SAMEBITS_FP32);
  router.route_from_logits(inputs, outputs, workspace.data());
  EXPECT_TRUE(same_bits(weights, expected.weights));
}

TEST(RouterWrapper, FailuresAreExceptions) {
  samebits_router_spec spec = sigmoid_bias_spec(40, 9, 2);
  const Constants constants = random_constants(spec, 1);
  const samebits_constants abi = abi_constants(spec, constants);
  const Router router(spec, abi);
  auto inputs = sized<samebits_inputs>();
  auto outputs = sized<samebits_outputs>();
  inputs.num_tokens = -1;
  try {
    router.route(inputs, outputs, nullptr);
    ADD_FAILURE() << "no exception";
  } catch (const RouterError& error) {
    EXPECT_EQ(error.status(), SAMEBITS_INVALID_ARGUMENT);
    EXPECT_STREQ(error.what(), samebits_last_error(router.get()));
  }
  EXPECT_THROW(router.init_workspace(nullptr, 0), RouterError);
  spec.top_k = 10;
  EXPECT_THROW(Router(spec, abi), RouterError);
}

}  // namespace
}  // namespace samebits::cpu::test
