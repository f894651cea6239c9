// Up to 16 rows, of routers of the shapes that the fused form serves and of others, one after the other on one
// workspace, against the CPU backend by bits: in one launch, and in the form that is chosen.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/force_form.h"
#include "kernels/cuda/router.h"
#include "kernels/fused/fused.h"
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

class FewRows : public DeviceTest {};

samebits_router_spec grouped(std::int32_t hidden_size, std::int32_t groups, std::int32_t kept) {
  samebits_router_spec spec = sigmoid_bias_spec(hidden_size, 32 * groups, 8);
  spec.n_group = groups;
  spec.topk_group = kept;
  spec.group_score = SAMEBITS_GROUP_SCORE_TOP2_SUM;
  spec.group_mask = SAMEBITS_GROUP_MASK_NEG_INF;
  return spec;
}
samebits_router_spec sqrt_softplus(std::int32_t hidden_size, std::int32_t experts, std::int32_t k) {
  samebits_router_spec spec = sigmoid_bias_spec(hidden_size, experts, k);
  spec.score_func = SAMEBITS_SCORE_SQRT_SOFTPLUS;
  spec.num_bias_variants = 2;
  spec.scale_stage = SAMEBITS_SCALE_ON_EXPERT_OUTPUT;
  return spec;
}
samebits_router_spec softmax(std::int32_t hidden_size, std::int32_t experts, std::int32_t k) {
  samebits_router_spec spec = plain_spec(hidden_size, experts, k);
  spec.logits_dtype = SAMEBITS_BF16;  // many equal keys
  spec.renormalize = SAMEBITS_RENORM_L1;
  spec.weights_dtype = SAMEBITS_BF16;
  return spec;
}

samebits_router_spec softmax_with_bias(std::int32_t hidden_size, std::int32_t experts, std::int32_t k) {
  samebits_router_spec spec = sigmoid_bias_spec(hidden_size, experts, k);
  spec.score_func = SAMEBITS_SCORE_SOFTMAX;
  return spec;
}

std::vector<samebits_router_spec> specs() {
  samebits_router_spec floor = sigmoid_bias_spec(1024, 5, 5);
  floor.eps_mode = SAMEBITS_EPS_CLAMP_MIN;
  floor.eps = 3.0f;
  return {sigmoid_bias_spec(4096, 288, 8),
          sigmoid_bias_spec(4096, 17, 3),
          sigmoid_bias_spec(7168, 384, 8),
          sigmoid_bias_spec(7152, 289, 8),  // no multiple of 256
          sigmoid_bias_spec(1040, 72, 8),
          sigmoid_bias_spec(2304, 130, 3),
          grouped(7168, 8, 4),
          grouped(7168, 2, 1),
          grouped(2560, 4, 1),
          sqrt_softplus(5120, 384, 6),
          sqrt_softplus(5120, 40, 1),
          sqrt_softplus(256, 512, 1),
          softmax(2048, 128, 8),
          softmax(768, 200, 7),
          softmax(512, 385, 8),
          softmax(512, 512, 8),
          softmax(512, 20, 4),  // fewer experts than lanes
          sigmoid_bias_spec(512, 24, 8),
          sqrt_softplus(512, 17, 3),
          softmax_with_bias(512, 160, 6),
          softmax_with_bias(512, 480, 8),
          sigmoid_bias_spec(7168, 896, 16),
          sigmoid_bias_spec(512, 520, 8),
          sqrt_softplus(1280, 768, 16),
          floor};
}

// Each other expert is like the one before it, so that keys are equal.
void make_pairs(const samebits_router_spec& spec, Constants& constants) {
  const auto hidden = static_cast<std::size_t>(spec.hidden_size), experts = static_cast<std::size_t>(spec.num_experts);
  for (std::size_t e = 1; e < experts; e += 2) {
    for (std::size_t h = 0; h < hidden; ++h)
      constants.gate_weight[e * hidden + h] = constants.gate_weight[(e - 1) * hidden + h];
    for (std::size_t v = 0; v * experts < constants.selection_bias.size(); ++v)
      constants.selection_bias[v * experts + e] = constants.selection_bias[v * experts + e - 1];
  }
}

struct Case {
  samebits_router_spec spec;
  Constants constants;
  Router router;
  std::unique_ptr<DeviceRouter> shapes;  // of the buffers
  std::unique_ptr<TestRouter> cpu_router;
};

// Rows of usual size, of logits beyond 40, of equal values, with an infinity, and with NaN.
std::vector<std::uint16_t> rows_of_call(std::uint64_t call, std::int64_t t, std::int32_t hidden_size) {
  constexpr std::uint16_t kInf = 0x7f80, kNaN = 0x7fff;
  std::vector<std::uint16_t> hidden = normal_bf16(call, t * hidden_size, call % 4 == 3 ? 60.0f : 1.0f);
  const auto width = static_cast<std::size_t>(hidden_size);
  if (call % 3 == 1) hidden[0] = kInf;
  if (call % 3 == 2) hidden[hidden.size() - width] = kNaN;
  if (call % 5 == 4) std::fill(hidden.begin(), hidden.begin() + hidden_size, std::uint16_t{0});
  return hidden;
}

TEST_F(FewRows, OfManyShapesOnOneWorkspaceWithAndWithoutWaiting) {
  constexpr std::int64_t kRows[] = {1, 4, 5, 8, 9, 16};
  constexpr std::int32_t kBlockSizes[] = {16, 0, 3, 64, 1000, 1, 128};
  std::vector<std::unique_ptr<Case>> cases;
  std::size_t bytes = 0;
  for (const samebits_router_spec& spec : specs()) {
    for (const bool pairs : {false, true}) {
      auto made = std::make_unique<Case>();
      made->spec = spec;
      made->constants = random_constants(spec, 7);
      if (pairs) make_pairs(spec, made->constants);
      const samebits_constants abi = abi_constants(spec, made->constants);
      make_router(&spec, &abi, made->router);
      made->shapes = std::make_unique<DeviceRouter>(spec, abi);
      made->cpu_router = std::make_unique<TestRouter>(spec, made->constants);
      bytes = std::max(bytes, workspace_bytes(made->router, 16));
      cases.push_back(std::move(made));
    }
  }
  DeviceArray<unsigned char> workspace(bytes);
  workspace.fill_bytes(0x5a);
  for (const auto& one : cases) init_workspace(one->router, workspace.data(), workspace.size(), nullptr);
  for (std::uint64_t call = 0; call < 12 * cases.size(); ++call) {
    const Case& one = *cases[call % cases.size()];
    const std::uint64_t round = call / cases.size();
    const std::int64_t t = kRows[round % std::size(kRows)];
    CallOptions options;
    options.bookkeeping = round % 5 != 0;
    options.block_size = options.bookkeeping ? kBlockSizes[call % std::size(kBlockSizes)] : 0;
    if (round % 4 == 3) options.num_valid_rows = static_cast<std::int32_t>(t / 2);
    for (std::int64_t row = 0; row < t && one.spec.num_bias_variants > 1; ++row)
      options.row_class.push_back(static_cast<std::int32_t>(draw(call, static_cast<std::uint64_t>(row)) % 3));
    const std::vector<std::uint16_t> hidden = rows_of_call(call, t, one.spec.hidden_size);
    DeviceCall device_call(*one.shapes, hidden, options);
    force_no_waiting(round % 3 == 2);
    const bool forced = round % 2 == 0;
    if (forced) force_form(Form::kFused);
    cuda::route(one.router, Source::kHiddenStates, &device_call.inputs(), &device_call.outputs(), workspace.data(),
                nullptr);
    force_form(std::nullopt);
    force_no_waiting(false);
    const Routed found = device_call.read();
    const bool fused = can_fuse(one.router.view, t) && (forced || options.bookkeeping);
    EXPECT_EQ(found.kernel_name, fused ? "cuda/tc256/fused" : "cuda/tc256/decode");
    expect_same(found, one.cpu_router->route(hidden, options),
                "call " + std::to_string(call) + ", T = " + std::to_string(t) + ", H " +
                    std::to_string(one.spec.hidden_size) + ", E " + std::to_string(one.spec.num_experts));
  }
}

}  // namespace
}  // namespace samebits::cuda::test
