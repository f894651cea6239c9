// The tiles of the decode form that take a chunk a block (logits/decode_wide.cuh), against the plain form, by bits.
#include "kernels/logits/decode_wide.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kernels/test_cuda/logits_case.h"

namespace samebits::cuda::test {
namespace {

LaunchLogits by_tile(int tile, const std::int32_t* num_valid_rows = nullptr) {
  return [=](const RouterView& router, const CallView& call, cudaStream_t stream) {
    CallView padded = call;
    padded.num_valid_rows = num_valid_rows;
    return launch_decode_wide_tile(tile, router, padded, stream);
  };
}

class DecodeWide : public DeviceTest {};

// Row counts and widths around a tile's, short last chunks, blocks of 64 columns that end early, one block alone.
TEST_F(DecodeWide, EveryTileEqualsThePlainForm) {
  constexpr std::int64_t kRows = 520;
  for (const auto& [hidden_size, gate_rows] :
       {std::pair{2896, 440}, {4096, 288}, {272, 1000}, {1000, 60}, {16, 200}, {1344, 8}}) {
    for (const Category category : {Category::kNormal, Category::kWideExponents}) {
      const LogitsData data({category, kRows, hidden_size, gate_rows});
      DeviceLogits device(data, SAMEBITS_BF16);
      const std::vector<float> wanted = device.run(launch_logits_plain, 1, 0, kRows);
      for (int tile = 0; tile < num_decode_wide_tiles(); ++tile) {
        for (const std::int64_t n : {1, 63, 65, 129, 256, 300, 520}) {
          const std::string what = "tile " + std::to_string(tile) + ", " + std::to_string(n) + " rows";
          // Rows at the end, too: those behind the last are no numbers.
          expect_equal_bits(device.run(by_tile(tile), device.router().num_chunks, 0, n), wanted, data.shape,
                            what.c_str());
          const auto from = wanted.begin() + (kRows - n) * gate_rows;
          expect_equal_bits(device.run(by_tile(tile), device.router().num_chunks, kRows - n, n),
                            std::vector<float>(from, wanted.end()), data.shape, (what + " at the end").c_str());
        }
      }
    }
  }
}

TEST_F(DecodeWide, EveryCategoryEqualsThePlainForm) {
  for (int category = 0; category < cpu::test::kNumCategories; ++category) {
    const LogitsData data({static_cast<Category>(category), 200, 1040, 200});
    DeviceLogits device(data, SAMEBITS_BF16);
    const std::vector<float> wanted = device.run(launch_logits_plain, 1, 0, 200);
    for (int tile = 0; tile < num_decode_wide_tiles(); ++tile)
      expect_equal_bits(device.run(by_tile(tile), device.router().num_chunks, 0, 200), wanted, data.shape, "tile");
  }
}

TEST_F(DecodeWide, WritesNoRowThatIsPadding) {
  constexpr std::int64_t kRows = 300;
  const LogitsData data({Category::kNormal, kRows, 528, 72});
  DeviceLogits device(data, SAMEBITS_BF16);
  const std::int32_t num_sums = device.router().num_chunks;
  const auto row_sums = device.row_sums(num_sums);
  const std::vector<float> wanted = device.run(launch_logits_plain, 1, 0, kRows);
  for (const std::int32_t valid : {-1, 0, 1, 64, 70, 299, 300, 400}) {
    const DeviceArray<std::int32_t> num_valid_rows(std::vector<std::int32_t>{valid});
    const std::int64_t valid_rows = clamp_rows(valid, kRows);
    for (int tile = 0; tile < num_decode_wide_tiles(); ++tile) {
      DeviceArray<float> sums(static_cast<std::size_t>(kRows * row_sums));
      sums.fill_bytes(0x5a);
      const CallView call = device.call(0, kRows, sums.data(), num_sums);
      check(by_tile(tile, num_valid_rows.data())(device.router(), call, nullptr), "launch");
      const std::vector<float> found = sums.read();
      for (std::int64_t i = valid_rows * row_sums; i < kRows * row_sums; ++i) {
        if (std::bit_cast<std::uint32_t>(found[static_cast<std::size_t>(i)]) == 0x5a5a5a5au) continue;
        ADD_FAILURE() << "tile " << tile << " wrote row " << i / row_sums << " of " << valid_rows;
        break;
      }
      expect_equal_bits(device.fold(found, num_sums, valid_rows), wanted, data.shape, "valid rows");
    }
  }
}

}  // namespace
}  // namespace samebits::cuda::test
