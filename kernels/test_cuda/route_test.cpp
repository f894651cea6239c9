// Whole calls of libsamebits_cuda.so against the CPU backend, by bits.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/common/bits.h"
#include "kernels/cuda/force_form.h"
#include "kernels/cuda/router.h"
#include "kernels/test_cuda/device_router.h"
#include "kernels/test_cuda/select_case.h"

namespace samebits::cuda::test {
namespace {

using cpu::test::abi_constants;
using cpu::test::normal_bf16;
using cpu::test::normal_fp32;
using cpu::test::plain_spec;
using cpu::test::random_constants;
using cpu::test::sigmoid_bias_spec;
using cpu::test::TestRouter;

class RouteTest : public DeviceTest {};

CallOptions all_outputs(std::int32_t block_size = 16) {
  CallOptions options;
  options.bookkeeping = true;
  options.block_size = block_size;
  return options;
}

// Token ids and row classes for specs that read them, some of them out of range.
CallOptions options_for(const samebits_router_spec& spec, std::int64_t num_tokens, std::uint64_t seed) {
  CallOptions options = all_outputs();
  for (std::int64_t t = 0; t < num_tokens; ++t) {
    const std::uint64_t bits = draw(seed, static_cast<std::uint64_t>(t));
    const auto below = [&](std::int32_t n) {
      return bits % 13 == 0 ? n : static_cast<std::int32_t>((bits >> 8) % static_cast<std::uint64_t>(n));
    };
    if (spec.selection_method == SAMEBITS_SELECT_HASH_TABLE) options.token_ids.push_back(below(spec.hash_vocab_size));
    if (spec.num_bias_variants > 0) options.row_class.push_back(below(spec.num_bias_variants));
  }
  return options;
}

// The form that serves this many rows where none is forced.
std::string form_of_rows(std::int64_t num_tokens) {
  return num_tokens <= 256 ? "decode" : "prefill";
}

std::string name_of_rows(std::int64_t num_tokens) {
  return "T = " + std::to_string(num_tokens);
}

TEST_F(RouteTest, EveryRowCountGivesTheCpusBits) {
  const samebits_router_spec spec = sigmoid_bias_spec(512, 40, 6);
  const Constants constants = random_constants(spec, 3);
  const DeviceRouter router(spec, abi_constants(spec, constants));
  const TestRouter cpu_router(spec, constants);
  for (const std::int64_t t : {0, 1, 2, 7, 8, 9, 16, 17, 63, 64, 65, 127, 128, 129, 255, 256, 257, 300, 1000}) {
    const std::vector<std::uint16_t> hidden = normal_bf16(4, t * 512);
    const Routed found = route(router, hidden, all_outputs());
    EXPECT_EQ(found.kernel_name, "cuda/tc256/" + form_of_rows(t));
    expect_same(found, cpu_router.route(hidden, all_outputs()), name_of_rows(t));
  }
}

TEST_F(RouteTest, DrawnSpecsGiveTheCpusBits) {
  constexpr std::int32_t kHiddenSizes[] = {8, 100, 256, 272, 1000};
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    samebits_router_spec spec = draw_spec(seed);
    spec.hidden_size = kHiddenSizes[seed % std::size(kHiddenSizes)];
    if (seed % 3 == 0) spec.input_norm = SAMEBITS_INPUT_NORM_RMSNORM_UNWEIGHTED, spec.input_norm_eps = 1e-6f;
    spec.input_scale_vector = seed % 4 == 1;
    spec.input_scale_rsqrt_hidden_size = static_cast<std::int32_t>(seed % 3);
    if (!is_supported(spec)) continue;
    const Constants constants = draw_constants(spec, seed);
    const DeviceRouter router(spec, abi_constants(spec, constants));
    const TestRouter cpu_router(spec, constants);
    for (const std::int64_t t : {1, 33, 259}) {
      CallOptions options = options_for(spec, t, seed);
      if (seed % 2 == 1) options.num_valid_rows = static_cast<std::int32_t>(t * 2 / 3);
      const std::vector<std::uint16_t> hidden = normal_bf16(seed + 9, t * spec.hidden_size, 3.0f);
      const std::string what = "seed " + std::to_string(seed) + ", " + name_of_rows(t);
      expect_same(route(router, hidden, options), cpu_router.route(hidden, options), what);
      const std::vector<float> logits = draw_logits(spec, seed, t);
      expect_same(route(router, logits, options), cpu_router.route_from_logits(logits, options), what + ", logits");
    }
    if (HasFailure()) return;
  }
}

TEST_F(RouteTest, Fp32WeightsInDeviceMemoryGiveTheCpusBits) {
  const samebits_router_spec spec = plain_spec(1040, 33, 4);
  const std::vector<float> weight = normal_fp32(5, 33 * 1040, 0.05f);
  samebits_constants constants{};
  constants.struct_size = sizeof(constants);
  constants.memory = SAMEBITS_MEMORY_HOST;
  constants.gate_weight = matrix(weight.data(), 33, 1040, SAMEBITS_FP32);
  samebits_router* cpu_router = nullptr;
  ASSERT_EQ(samebits_create(&spec, &constants, &cpu_router), SAMEBITS_OK);
  const DeviceArray<float> on_device(weight);
  constants.memory = SAMEBITS_MEMORY_DEVICE;
  constants.gate_weight.data = on_device.data();
  const DeviceRouter router(spec, constants);
  for (const std::int64_t t : {1, 40, 300}) {
    const std::vector<std::uint16_t> hidden = normal_bf16(6, t * 1040);
    const Routed found = route(router, hidden);
    std::vector<float> logits(static_cast<std::size_t>(t * 33)), weights(static_cast<std::size_t>(t * 4));
    std::vector<std::int32_t> ids(weights.size());
    samebits_inputs inputs{};
    inputs.struct_size = sizeof(inputs);
    inputs.num_tokens = t;
    inputs.hidden_states = matrix(hidden.data(), t, 1040, SAMEBITS_BF16);
    samebits_outputs outputs{};
    outputs.struct_size = sizeof(outputs);
    outputs.topk_ids = matrix(ids.data(), t, 4, SAMEBITS_INT32);
    outputs.topk_weights = matrix(weights.data(), t, 4, SAMEBITS_FP32);
    outputs.router_logits = matrix(logits.data(), t, 33, SAMEBITS_FP32);
    std::vector<unsigned char> workspace(samebits_workspace_bytes(cpu_router, t));
    ASSERT_EQ(samebits_workspace_init(cpu_router, workspace.data(), workspace.size(), nullptr), SAMEBITS_OK);
    ASSERT_EQ(samebits_route(cpu_router, &inputs, &outputs, workspace.data(), nullptr), SAMEBITS_OK);
    EXPECT_TRUE(cpu::test::same_bits(found.logits, logits)) << t;
    EXPECT_TRUE(cpu::test::same_bits(found.ids, ids)) << t;
    EXPECT_TRUE(cpu::test::same_bits(found.weights, weights)) << t;
  }
  samebits_destroy(cpu_router);
}

// Buffers with gaps between rows, 2-byte aligned hidden states, int64 ids and bf16 weights.
TEST_F(RouteTest, StridesAlignmentAndDtypesChangeNoBit) {
  constexpr std::int64_t kHidden = 64, kExperts = 24, kTopK = 4, kGap = 3;
  const samebits_router_spec spec = sigmoid_bias_spec(kHidden, kExperts, kTopK);
  const Constants constants = random_constants(spec, 1);
  const DeviceRouter router(spec, abi_constants(spec, constants));
  for (const std::int64_t t : {1, 20, 400}) {
    const std::vector<std::uint16_t> hidden = normal_bf16(2, t * kHidden);
    const Routed plain = TestRouter(spec, constants).route(hidden);
    for (const std::int64_t offset : {0, 1, 4, 8}) {
      for (const std::int64_t gap : {0, 1, 8}) {
        const std::int64_t stride = kHidden + gap;
        std::vector<std::uint16_t> strided(static_cast<std::size_t>(offset + t * stride), 0x7fc1);
        for (std::int64_t r = 0; r < t; ++r) {
          std::copy_n(hidden.begin() + r * kHidden, kHidden, strided.begin() + offset + r * stride);
        }
        const DeviceArray<std::uint16_t> input(strided);
        const DeviceArray<std::int64_t> ids(
            std::vector<std::int64_t>(static_cast<std::size_t>(t * (kTopK + kGap)), -9));
        const DeviceArray<std::uint16_t> weights(
            std::vector<std::uint16_t>(static_cast<std::size_t>(t * (kTopK + kGap)), 0x1234));
        const DeviceArray<float> logits(std::vector<float>(static_cast<std::size_t>(t * (kExperts + kGap)), 77.0f));
        DeviceCall call(router, hidden, {});
        call.inputs().hidden_states = {input.data() + offset, t, kHidden, stride, SAMEBITS_BF16, 0};
        call.outputs().topk_ids = {ids.data(), t, kTopK, kTopK + kGap, SAMEBITS_INT64, 0};
        call.outputs().topk_weights = {weights.data(), t, kTopK, kTopK + kGap, SAMEBITS_BF16, 0};
        call.outputs().router_logits = {logits.data(), t, kExperts, kExperts + kGap, SAMEBITS_FP32, 0};
        ASSERT_EQ(call.launch(), SAMEBITS_OK) << router.error();
        const bool aligned = offset % 8 == 0 && (gap % 8 == 0 || t == 1);
        const std::string name = call.read().kernel_name;
        EXPECT_EQ(name, "cuda/tc256/" + form_of_rows(t) + (aligned ? "" : "+copy"));
        const auto found_ids = ids.read();
        const auto found_weights = weights.read();
        const auto found_logits = logits.read();
        for (std::int64_t r = 0; r < t; ++r) {
          for (std::int64_t c = 0; c < kTopK + kGap; ++c) {
            const auto at = static_cast<std::size_t>(r * (kTopK + kGap) + c),
                       slot = static_cast<std::size_t>(r * kTopK + c % kTopK);
            ASSERT_EQ(found_ids[at], c < kTopK ? plain.ids[slot] : -9) << name << " " << offset << " " << gap;
            ASSERT_EQ(found_weights[at], c < kTopK ? weight_to_bf16(plain.weights[slot]) : std::uint16_t{0x1234});
          }
          for (std::int64_t e = 0; e < kExperts + kGap; ++e) {
            ASSERT_EQ(found_logits[static_cast<std::size_t>(r * (kExperts + kGap) + e)],
                      e < kExperts ? plain.logits[static_cast<std::size_t>(r * kExperts + e)] : 77.0f);
          }
        }
      }
    }
  }
}

// More rows than one slice, and more than one slice of padding.
TEST_F(RouteTest, SlicesChangeNoBit) {
  constexpr std::int64_t kRows = 140000;
  samebits_router_spec spec = sigmoid_bias_spec(16, 6, 2);
  const Constants constants = random_constants(spec, 1);
  const DeviceRouter router(spec, abi_constants(spec, constants));
  const TestRouter cpu_router(spec, constants);
  const std::vector<std::uint16_t> hidden = normal_bf16(2, kRows * 16);
  const std::vector<float> logits = normal_fp32(3, kRows * 6);
  for (const std::int32_t valid : {-1, 65536, 66000, 200000}) {
    CallOptions options = all_outputs(64);
    options.num_valid_rows = valid;
    expect_same(route(router, hidden, options), cpu_router.route(hidden, options), "valid " + std::to_string(valid));
    expect_same(route(router, logits, options), cpu_router.route_from_logits(logits, options),
                "logits, valid " + std::to_string(valid));
  }
}

// Through the library's own functions, because the hook is not part of the ABI.
TEST_F(RouteTest, FormsGiveTheSameBits) {
  constexpr std::int64_t kHidden = 4096, kExperts = 72, kTopK = 8;
  const samebits_router_spec spec = sigmoid_bias_spec(kHidden, kExperts, kTopK);
  const Constants constants = random_constants(spec, 1);
  const samebits_constants abi = abi_constants(spec, constants);
  Router router;
  make_router(&spec, &abi, router);
  const DeviceRouter shapes(spec, abi);  // of the buffers
  for (const std::int64_t t : {1, 9, 100, 700}) {
    const std::vector<std::uint16_t> hidden = normal_bf16(2, t * kHidden);
    const Routed right = TestRouter(spec, constants).route(hidden, all_outputs());
    for (const Form form : {Form::kPlain, Form::kDecode, Form::kPrefill, Form::kFused}) {
      DeviceCall call(shapes, hidden, all_outputs());
      DeviceArray<unsigned char> workspace(workspace_bytes(router, t));
      workspace.fill_bytes(0xff);
      init_workspace(router, workspace.data(), workspace.size(), nullptr);
      force_form(form);
      cuda::route(router, Source::kHiddenStates, &call.inputs(), &call.outputs(), workspace.data(), nullptr);
      force_form(std::nullopt);
      const Routed found = call.read();
      const std::string name = form == Form::kFused && t > 16 ? form_of_rows(t) : form_name(form);
      EXPECT_EQ(found.kernel_name, "cuda/tc256/" + name);
      expect_same(found, right, name_of_rows(t));
    }
  }
}

// Calls of other rows and other numbers of rows on one workspace. Where the selecting blocks do not wait, words come
// after their launch had a use for them, and must not be taken for those of the next one.
TEST_F(RouteTest, FusedCallsFollowOneAnotherWithAndWithoutWaiting) {
  constexpr std::int64_t kHidden = 4096, kExperts = 72, kTopK = 8, kCalls = 60;
  const samebits_router_spec spec = sigmoid_bias_spec(kHidden, kExperts, kTopK);
  const Constants constants = random_constants(spec, 1);
  const samebits_constants abi = abi_constants(spec, constants);
  Router router;
  make_router(&spec, &abi, router);
  const DeviceRouter shapes(spec, abi);  // of the buffers
  const TestRouter cpu_router(spec, constants);
  DeviceArray<unsigned char> workspace(workspace_bytes(router, 16));
  workspace.fill_bytes(0x5a);
  init_workspace(router, workspace.data(), workspace.size(), nullptr);
  for (std::int64_t i = 0; i < kCalls; ++i) {
    const std::int64_t t = 1 + i * 7 % 16;
    CallOptions options = all_outputs();
    if (i % 5 == 4) options.num_valid_rows = static_cast<std::int32_t>(t / 2);
    const std::vector<std::uint16_t> hidden = normal_bf16(static_cast<std::uint64_t>(i), t * kHidden);
    DeviceCall call(shapes, hidden, options);
    force_no_waiting(i / 2 % 2 == 1);
    force_form(Form::kFused);
    cuda::route(router, Source::kHiddenStates, &call.inputs(), &call.outputs(), workspace.data(), nullptr);
    force_form(std::nullopt);
    force_no_waiting(false);
    const Routed found = call.read();
    EXPECT_EQ(found.kernel_name, "cuda/tc256/fused");
    expect_same(found, cpu_router.route(hidden, options), "call " + std::to_string(i));
  }
}

class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

TEST_F(RouteTest, GraphsReplayWithOtherContents) {
  constexpr std::int64_t kHidden = 200, kExperts = 30, kTopK = 4;
  samebits_router_spec spec = sigmoid_bias_spec(kHidden, kExperts, kTopK);
  spec.input_scale = 0.5f;  // every stage
  const Constants constants = random_constants(spec, 1);
  const DeviceRouter router(spec, abi_constants(spec, constants));
  const TestRouter cpu_router(spec, constants);
  for (const std::int64_t t : {3, 256, 500}) {
    const Stream stream;
    CallOptions options = all_outputs();
    options.num_valid_rows = 0;
    DeviceCall call(router, normal_bf16(2, t * kHidden), options);
    check(cudaDeviceSynchronize(), "preparing");
    cudaGraph_t graph = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
    ASSERT_EQ(call.launch(static_cast<cudaStream_t>(stream)), SAMEBITS_OK) << router.error();
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    cudaGraphExec_t executable = nullptr;
    check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    for (const std::int32_t valid : {static_cast<std::int32_t>(t), 0, static_cast<std::int32_t>(t / 2), 9999}) {
      const std::vector<std::uint16_t> hidden = normal_bf16(100 + static_cast<std::uint64_t>(valid), t * kHidden, 2.0f);
      call.write_input(hidden);
      call.write_num_valid_rows(valid);
      check(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
      const Routed found = call.read();
      options.num_valid_rows = valid;
      Routed right = cpu_router.route(hidden, options);
      // Logits of padding rows are those of the replay before.
      const auto written = static_cast<std::size_t>(std::min<std::int64_t>(valid, t) * kExperts);
      std::copy(found.logits.begin() + static_cast<std::ptrdiff_t>(written), found.logits.end(),
                right.logits.begin() + static_cast<std::ptrdiff_t>(written));
      expect_same(found, right, name_of_rows(t) + ", valid " + std::to_string(valid));
    }
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
  }
}

TEST_F(RouteTest, TwoStreamsAtOnce) {
  constexpr std::int64_t kHidden = 1024, kExperts = 64, kTopK = 8;
  const samebits_router_spec first_spec = sigmoid_bias_spec(kHidden, kExperts, kTopK),
                             second_spec = plain_spec(kHidden, 48, 2);
  const Constants first_constants = random_constants(first_spec, 1),
                  second_constants = random_constants(second_spec, 2);
  const DeviceRouter first(first_spec, abi_constants(first_spec, first_constants)),
      second(second_spec, abi_constants(second_spec, second_constants));
  const Stream first_stream, second_stream;
  for (const std::int64_t t : {5, 2000}) {
    const std::vector<std::uint16_t> hidden = normal_bf16(2, t * kHidden);
    DeviceCall one(first, hidden, all_outputs()), other(second, hidden, all_outputs());
    check(cudaDeviceSynchronize(), "preparing");
    for (int i = 0; i < 30; ++i) {
      ASSERT_EQ(one.launch(static_cast<cudaStream_t>(first_stream)), SAMEBITS_OK) << first.error();
      ASSERT_EQ(other.launch(static_cast<cudaStream_t>(second_stream)), SAMEBITS_OK) << second.error();
    }
    expect_same(one.read(), TestRouter(first_spec, first_constants).route(hidden, all_outputs()), "first");
    expect_same(other.read(), TestRouter(second_spec, second_constants).route(hidden, all_outputs()), "second");
  }
}

}  // namespace
}  // namespace samebits::cuda::test
