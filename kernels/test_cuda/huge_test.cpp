// Matrices of more than 2^31 elements: rows on both sides of that element get the answers of a small call.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/test_cuda/device_router.h"

namespace samebits::cuda::test {
namespace {

using cpu::test::abi_constants;
using cpu::test::normal_bf16;
using cpu::test::plain_spec;
using cpu::test::random_constants;
using cpu::test::sigmoid_bias_spec;
using cpu::test::TestRouter;

constexpr std::int64_t kRows = std::int64_t{1} << 20;

class HugeTest : public DeviceTest {
 protected:
  // All rows are equal but a few, which lie at both ends, around element 2^31 of the matrix, and at multiples of 2^16.
  static void run(const samebits_router_spec& spec, std::int64_t row_elements) {
    const std::int64_t h = spec.hidden_size, k = cpu::test::columns_of(spec), g = cpu::test::rows_of_gate(spec);
    const std::size_t bytes = static_cast<std::size_t>(kRows * (2 * h + 4 * g + 8 * k)) + (std::size_t{2} << 30);
    std::size_t free_bytes = 0, all_bytes = 0;
    check(cudaMemGetInfo(&free_bytes, &all_bytes), "cudaMemGetInfo");
    if (free_bytes < bytes)
      GTEST_SKIP() << bytes << " bytes of device memory are needed, " << free_bytes << " are free";
    ASSERT_GT(kRows * row_elements, std::int64_t{1} << 31);
    const std::int64_t boundary = (std::int64_t{1} << 31) / row_elements;
    const std::vector<std::int64_t> places = {
        0, 1, 65535, 65536, kRows / 4, boundary - 1, boundary, boundary + 1, kRows - 65536, kRows - 2, kRows - 1};

    DeviceArray<std::uint16_t> hidden(static_cast<std::size_t>(kRows * h));
    hidden.fill_bytes(0x3c);
    const std::vector<std::uint16_t> special = normal_bf16(7, static_cast<std::int64_t>(places.size()) * h);
    std::vector<std::uint16_t> probe = special;  // the special rows, then an equal one
    probe.resize(probe.size() + static_cast<std::size_t>(h), std::uint16_t{0x3c3c});
    for (std::size_t i = 0; i < places.size(); ++i) {
      hidden.write(static_cast<std::size_t>(places[i] * h),
                   cpu::test::rows_of(special, h, static_cast<std::int64_t>(i), 1));
    }
    const Constants constants = random_constants(spec, 1);
    const DeviceRouter router(spec, abi_constants(spec, constants));
    const Routed right = TestRouter(spec, constants).route(probe);

    const DeviceArray<std::int32_t> ids(static_cast<std::size_t>(kRows * k));
    const DeviceArray<float> weights(static_cast<std::size_t>(kRows * k)), logits(static_cast<std::size_t>(kRows * g));
    const CudaLibrary& library = CudaLibrary::get();
    DeviceArray<unsigned char> workspace(library.workspace_bytes(router.get(), kRows));
    ASSERT_EQ(library.workspace_init(router.get(), workspace.data(), workspace.size(), nullptr), SAMEBITS_OK);
    samebits_inputs inputs{};
    inputs.struct_size = sizeof(inputs);
    inputs.num_tokens = kRows;
    inputs.hidden_states = matrix(hidden.data(), kRows, h, SAMEBITS_BF16);
    samebits_outputs outputs{};
    outputs.struct_size = sizeof(outputs);
    outputs.topk_ids = matrix(ids.data(), kRows, k, SAMEBITS_INT32);
    outputs.topk_weights = matrix(weights.data(), kRows, k, SAMEBITS_FP32);
    outputs.router_logits = matrix(logits.data(), kRows, g, SAMEBITS_FP32);
    const auto expect_right = [&](const std::string& what) {
      check(cudaDeviceSynchronize(), what.c_str());
      std::vector<std::int64_t> rows = places;
      for (const std::int64_t place : places) rows.push_back(std::clamp<std::int64_t>(place + 3, 0, kRows - 5));
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const auto found = std::find(places.begin(), places.end(), rows[i]);
        const std::int64_t at = found - places.begin();  // the last row of the probe where the row is not special
        const auto row = [&](std::int64_t width) { return static_cast<std::size_t>(rows[i] * width); };
        const auto n = [](std::int64_t width) { return static_cast<std::size_t>(width); };
        EXPECT_EQ(ids.read(row(k), n(k)), cpu::test::rows_of(right.ids, k, at, 1)) << what << ", row " << rows[i];
        EXPECT_TRUE(cpu::test::same_bits(weights.read(row(k), n(k)), cpu::test::rows_of(right.weights, k, at, 1)))
            << what << ", row " << rows[i];
        EXPECT_TRUE(cpu::test::same_bits(logits.read(row(g), n(g)), cpu::test::rows_of(right.logits, g, at, 1)))
            << what << ", row " << rows[i];
      }
    };
    ASSERT_EQ(library.route(router.get(), &inputs, &outputs, workspace.data(), nullptr), SAMEBITS_OK) << router.error();
    expect_right("from hidden states");

    // The finished logits lie where the answer was.
    check(cudaMemset(ids.data(), 0xee, ids.size() * sizeof(std::int32_t)), "cudaMemset");
    check(cudaMemset(weights.data(), 0xee, weights.size() * sizeof(float)), "cudaMemset");
    inputs.router_logits = outputs.router_logits;
    outputs.router_logits = {};
    ASSERT_EQ(library.route_from_logits(router.get(), &inputs, &outputs, workspace.data(), nullptr), SAMEBITS_OK)
        << router.error();
    expect_right("from logits");
  }
};

TEST_F(HugeTest, LogitsBeyond2To31) {
  run(sigmoid_bias_spec(16, 2304, 8), 2304);
}

// The padded form of 16 rows, of as many places as an int32 counts: 8.6 GB. In one launch, and in three.
TEST_F(HugeTest, PlacesUpTo2To31) {
  constexpr std::int32_t kTokens = 16, kColumns = 8, kSlots = kTokens * kColumns, kBlockSize = 16777215;
  constexpr std::int64_t kPlaces = std::int64_t{kSlots} * kBlockSize;
  static_assert(kPlaces <= INT32_MAX && kPlaces + 512 > INT32_MAX);
  std::size_t free_bytes = 0, all_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &all_bytes), "cudaMemGetInfo");
  if (free_bytes < kPlaces * 4 + (std::size_t{1} << 30)) GTEST_SKIP() << free_bytes << " bytes of memory are free";
  DeviceArray<std::int32_t> places(static_cast<std::size_t>(kPlaces));
  for (const std::int32_t hidden_size : {4096, 256}) {
    const samebits_router_spec spec = sigmoid_bias_spec(hidden_size, 288, kColumns);
    const Constants constants = random_constants(spec, 1);
    const DeviceRouter router(spec, abi_constants(spec, constants));
    const std::vector<std::uint16_t> hidden = normal_bf16(7, kTokens * hidden_size);
    CallOptions options;
    options.bookkeeping = true;
    const Routed right = TestRouter(spec, constants).route(hidden, options);

    places.fill_bytes(0xee);
    DeviceCall call(router, hidden, options);
    call.outputs().block_size = kBlockSize;
    call.outputs().sorted_token_ids = places.data();
    ASSERT_EQ(call.launch(), SAMEBITS_OK) << router.error();
    const Routed found = call.read();
    EXPECT_EQ(found.kernel_name, hidden_size == 4096 ? "cuda/tc256/fused" : "cuda/tc256/decode");
    expect_same(found, right, "all but the places");
    std::int64_t begin = 0;
    constexpr std::size_t kSome = 1000;
    for (std::size_t e = 0; e < right.tokens_per_expert.size(); ++e) {
      if (right.tokens_per_expert[e] == 0) continue;
      std::vector<std::int32_t> wanted(kSome, kSlots);
      std::copy_n(right.slot_of_position.begin() + right.expert_offsets[e], right.tokens_per_expert[e], wanted.begin());
      EXPECT_EQ(places.read(static_cast<std::size_t>(begin), kSome), wanted) << "expert " << e;
      begin += kBlockSize;
    }
    EXPECT_EQ(places.read(places.size() - kSome, kSome), std::vector<std::int32_t>(kSome, kSlots));
  }
}

TEST_F(HugeTest, HiddenStatesBeyond2To31) {
  run(plain_spec(4096, 16, 2), 4096);
}

}  // namespace
}  // namespace samebits::cuda::test
