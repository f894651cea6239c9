// The prefill form of the logits against the plain form, by bits.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/common/bits.h"
#include "kernels/cuda/launch.h"
#include "kernels/logits/output_pieces.h"
#include "kernels/logits/prefill.h"
#include "kernels/test/data_categories.h"
#include "kernels/test_cuda/device_array.h"

namespace samebits::cuda::test {
namespace {

using cpu::test::Category;
using cpu::test::kNumCategories;
using cpu::test::operand;

constexpr std::uint16_t kNaN = 0x7fff;
constexpr int kPoisonByte = 0xa5;
constexpr std::uint32_t kPoison = 0xa5a5a5a5;
constexpr std::int64_t kRowsBeyond = 160;  // more than a tile

// All operands of one category, or (-1) row and expert i of category i mod 12.
Category category_of(int category, std::int64_t i) {
  return static_cast<Category>(category < 0 ? i % kNumCategories : category);
}

// Rows that the gate reads: 8 columns between them and the rows from num_rows on are NaN.
struct InputRows {
  std::int64_t stride;
  DeviceArray<std::uint16_t> values;

  InputRows(int category, std::int64_t num_rows, std::int64_t hidden_size)
      : stride(padded_hidden_size(hidden_size) + 8), values(make(category, num_rows, hidden_size, stride)) {}

 private:
  static std::vector<std::uint16_t> make(int category, std::int64_t num_rows, std::int64_t hidden_size,
                                         std::int64_t row_stride) {
    std::vector<std::uint16_t> rows(static_cast<std::size_t>((num_rows + kRowsBeyond) * row_stride), kNaN);
    for (std::int64_t t = 0; t < num_rows; ++t) {
      std::uint16_t* row = rows.data() + t * row_stride;
      for (std::int64_t k = 0; k < hidden_size; ++k)
        row[k] = operand(category_of(category, t), 0, static_cast<std::uint64_t>(t), k);
      std::fill(row + hidden_size, row + padded_hidden_size(hidden_size), std::uint16_t{0});
    }
    return rows;
  }
};

// The parts of a gate weight, each of any value (the parts of an fp32 weight have falling exponents): [parts][G][H].
std::vector<std::uint16_t> make_weight(int category, int parts, std::int64_t gate_rows, std::int64_t hidden_size) {
  std::vector<std::uint16_t> weight;
  weight.reserve(static_cast<std::size_t>(parts * gate_rows * hidden_size));
  for (std::int64_t part = 0; part < parts; ++part) {
    for (std::int64_t g = 0; g < gate_rows; ++g) {
      for (std::int64_t k = 0; k < hidden_size; ++k)
        weight.push_back(operand(category_of(category, g), 1, static_cast<std::uint64_t>(part * 100000 + g), k));
    }
  }
  return weight;
}

// The first G gate rows of a weight of `pool_rows` rows, in the layouts of both forms.
struct Gate {
  RouterView view{};
  std::unique_ptr<DeviceArray<std::uint16_t>> rows, tiles;

  Gate(const std::vector<std::uint16_t>& weight, int parts, std::int64_t pool_rows, std::int64_t gate_rows,
       std::int64_t hidden_size) {
    const std::int64_t Gp = round_up(gate_rows, kGateRowPad), Hp = padded_hidden_size(hidden_size);
    std::vector<std::uint16_t> padded(static_cast<std::size_t>(parts * Gp * Hp));
    for (std::int64_t part = 0; part < parts; ++part) {
      for (std::int64_t g = 0; g < gate_rows; ++g)
        std::copy_n(weight.data() + (part * pool_rows + g) * hidden_size, hidden_size,
                    padded.data() + (part * Gp + g) * Hp);
    }
    rows = std::make_unique<DeviceArray<std::uint16_t>>(padded);
    tiles = std::make_unique<DeviceArray<std::uint16_t>>(pack_tiles(padded, parts, Gp, Hp));
    view.hidden_size = static_cast<std::int32_t>(hidden_size);
    view.padded_hidden_size = static_cast<std::int32_t>(Hp);
    view.num_chunks = static_cast<std::int32_t>(num_chunks(hidden_size));
    view.num_parts = parts;
    view.gate_rows = static_cast<std::int32_t>(gate_rows);
    view.padded_gate_rows = static_cast<std::int32_t>(Gp);
    view.input_scale = 1.0f;
    view.weight_rows = rows->data();
    view.weight_tiles = tiles->data();
  }
};

CallView call_of(const InputRows& input, std::int64_t num_tokens, float* sums) {
  CallView call{};
  call.num_tokens = num_tokens;
  call.input = input.values.data();
  call.input_stride = input.stride;
  call.sums = sums;
  call.num_sums = 1;
  return call;
}

using LaunchLogits = std::function<cudaError_t(const RouterView&, const CallView&, cudaStream_t)>;

// Bits of the sums [T + kRowsBeyond][Gp], poisoned before.
std::vector<std::uint32_t> run(const LaunchLogits& launch, const Gate& gate, const InputRows& input,
                               std::int64_t num_tokens, const std::int32_t* num_valid_rows = nullptr) {
  DeviceArray<std::uint32_t> sums(static_cast<std::size_t>((num_tokens + kRowsBeyond) * gate.view.padded_gate_rows));
  sums.fill_bytes(kPoisonByte);
  CallView call = call_of(input, num_tokens, reinterpret_cast<float*>(sums.data()));
  call.num_valid_rows = num_valid_rows;
  check(launch(gate.view, call, nullptr), "launch");
  return sums.read();
}

// Rows [0, num_rows) equal, and the rows after them as they were. Tells the first difference and how many there are.
void expect_equal(const Gate& gate, const std::vector<std::uint32_t>& prefill, const std::vector<std::uint32_t>& plain,
                  std::int64_t num_rows, const std::string& what) {
  const std::int64_t G = gate.view.gate_rows, Gp = gate.view.padded_gate_rows;
  std::int64_t differences = 0, first = -1;
  for (std::int64_t t = 0; t < num_rows; ++t) {
    for (std::int64_t g = 0; g < G; ++g) {
      const auto i = static_cast<std::size_t>(t * Gp + g);
      if (prefill[i] == plain[i]) continue;
      if (differences++ == 0) first = t * G + g;
    }
  }
  if (differences != 0) {
    const auto i = static_cast<std::size_t>(first / G * Gp + first % G);
    ADD_FAILURE() << what << ": " << differences << " of " << num_rows * G << " differ; the first at t " << first / G
                  << ", g " << first % G << ": bits " << std::hex << prefill[i] << ", expected " << plain[i];
  }
  const auto written =
      std::find_if(prefill.begin() + num_rows * Gp, prefill.end(), [](std::uint32_t bits) { return bits != kPoison; });
  if (written != prefill.end()) {
    ADD_FAILURE() << what << ": row " << (written - prefill.begin()) / Gp << " was written, of " << num_rows;
  }
}

// Of the logits [num_rows][G], those that are finite and not 0.
double share_of_numbers(const Gate& gate, const std::vector<std::uint32_t>& sums, std::int64_t num_rows) {
  const std::int64_t G = gate.view.gate_rows, Gp = gate.view.padded_gate_rows;
  std::int64_t numbers = 0;
  for (std::int64_t i = 0; i < num_rows * Gp; ++i) {
    const std::uint32_t magnitude = sums[static_cast<std::size_t>(i)] & 0x7fffffff;
    if (i % Gp < G && magnitude != 0 && magnitude < 0x7f800000) ++numbers;
  }
  return static_cast<double>(numbers) / static_cast<double>(num_rows * G);
}

std::string shape_of(int parts, std::int64_t T, std::int64_t G, std::int64_t H) {
  return "parts " + std::to_string(parts) + ", T " + std::to_string(T) + ", G " + std::to_string(G) + ", H " +
         std::to_string(H);
}

class Prefill : public DeviceTest {};

TEST(PackTiles, SwizzlesLinesOfSixtyFourColumns) {
  constexpr std::int64_t kParts = 2, kRows = 16, kColumns = 80;
  std::vector<std::uint16_t> rows(kParts * kRows * kColumns);
  for (std::size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::uint16_t>(i + 1);
  const std::vector<std::uint16_t> tiles = pack_tiles(rows, kParts, kRows, kColumns);
  ASSERT_EQ(tiles.size(), std::size_t{kParts * 2 * kRows * 64});
  std::vector<std::uint16_t> expected(tiles.size());
  for (std::int64_t i = 0; i < std::ssize(expected); ++i) {
    const std::int64_t place = i % 64, g = i / 64 % kRows, block = i / 64 / kRows % 2, part = i / 64 / kRows / 2;
    const std::int64_t k = block * 64 + (((place / 8) ^ (g % 8)) * 8 + place % 8);
    if (k < kColumns)
      expected[static_cast<std::size_t>(i)] = rows[static_cast<std::size_t>((part * kRows + g) * kColumns + k)];
  }
  EXPECT_EQ(tiles, expected);
}

// (H, parts)
class PrefillShapes : public Prefill, public testing::WithParamInterface<std::tuple<std::int64_t, int>> {};

TEST_P(PrefillShapes, EqualThePlainForm) {
  constexpr std::int64_t kMaxTokens = 1000, kMaxGateRows = 2304;
  const auto [H, parts] = GetParam();
  const InputRows input(-1, kMaxTokens, H);
  const std::vector<std::uint16_t> weight = make_weight(-1, parts, kMaxGateRows, H);
  for (const std::int64_t G : {1, 8, 60, 288, 384, 896, 2304}) {
    const Gate gate(weight, parts, kMaxGateRows, G, H);
    const std::vector<std::uint32_t> plain = run(launch_logits_plain, gate, input, kMaxTokens);
    // Of the 144 pairs of categories, 49 give NaN in long rows.
    if (G >= kNumCategories) {
      EXPECT_GT(share_of_numbers(gate, plain, kMaxTokens), 0.4) << shape_of(parts, kMaxTokens, G, H);
    }
    for (const std::int64_t T : {1, 63, 64, 65, 128, 257, 1000})
      expect_equal(gate, run(launch_logits_prefill, gate, input, T), plain, T, shape_of(parts, T, G, H));
  }
}

INSTANTIATE_TEST_SUITE_P(, PrefillShapes,
                         testing::Combine(testing::Values(8, 16, 48, 256, 272, 2880, 3001, 4096, 7168),
                                          testing::Values(1, 3)),
                         [](const auto& shape) {
                           return "H" + std::to_string(std::get<0>(shape.param)) + "Parts" +
                                  std::to_string(std::get<1>(shape.param));
                         });

// Whatever the choice among the tiles is. Row counts and widths beyond a tile's, short last chunks, an odd number of
// blocks of 64 columns, one block alone, and more chunks than the second of two blocks keeps.
TEST_F(Prefill, EveryTileEqualsThePlainForm) {
  constexpr std::int64_t kTokens = 700;
  for (const int parts : {1, 3}) {
    for (const auto& [G, H] :
         {std::pair<std::int64_t, std::int64_t>{440, 2896}, {72, 4096}, {200, 16}, {8, 1344}, {40, 8000}}) {
      const InputRows input(-1, kTokens, H);
      const Gate gate(make_weight(-1, parts, G, H), parts, G, G, H);
      const std::vector<std::uint32_t> plain = run(launch_logits_plain, gate, input, kTokens);
      for (int tile = 0; tile < num_prefill_tiles(gate.view); ++tile) {
        for (const std::int64_t T : {std::int64_t{65}, kTokens}) {
          const auto launch = [tile](const RouterView& router, const CallView& call, cudaStream_t stream) {
            return launch_prefill_tile_outputs(tile, router, call, {}, stream);
          };
          expect_equal(gate, run(launch, gate, input, T), plain, T,
                       "tile " + std::to_string(tile) + ", " + shape_of(parts, T, G, H));
        }
      }
    }
  }
}

// Pieces that begin and end within tiles, columns between them that are of none, strides of their own.
TEST_F(Prefill, EveryTileStoresPieces) {
  struct Piece {
    std::int32_t first_column, end_column, bf16;
    std::int64_t stride;
  };
  // Above 2,048 rows two blocks of some tiles copy their rows together; the width has an even number of slices of each
  // of them.
  constexpr std::int64_t kTokens = 2100, kGateRows = 384, kHiddenSize = 528;
  const std::vector<Piece> pieces{{0, 56, 0, 58}, {64, 264, 1, 204}, {272, 280, 0, 8}, {288, 384, 1, 96}};
  const InputRows input(-1, kTokens, kHiddenSize);
  const Gate gate(make_weight(-1, 1, kGateRows, kHiddenSize), 1, kGateRows, kGateRows, kHiddenSize);
  const std::vector<std::uint32_t> plain = run(launch_logits_plain, gate, input, kTokens);
  for (int tile = 0; tile < num_prefill_tiles(gate.view); ++tile) {
    for (const auto& [T, valid] : {std::pair<std::int64_t, std::int64_t>{3, 3}, {64, 64}, {200, 200}, {2100, 1990}}) {
      OutputPieces outputs{};
      std::vector<std::unique_ptr<DeviceArray<std::uint8_t>>> arrays;
      for (const Piece& piece : pieces) {
        const auto bytes = static_cast<std::size_t>((T + kRowsBeyond) * piece.stride * (piece.bf16 ? 2 : 4));
        arrays.push_back(std::make_unique<DeviceArray<std::uint8_t>>(bytes));
        arrays.back()->fill_bytes(kPoisonByte);
        outputs.pieces[outputs.count++] = {arrays.back()->data(), piece.stride, piece.first_column, piece.end_column,
                                           piece.bf16};
      }
      CallView call = call_of(input, T, nullptr);
      const DeviceArray<std::int32_t> num_valid_rows(std::vector<std::int32_t>{static_cast<std::int32_t>(valid)});
      if (valid < T) call.num_valid_rows = num_valid_rows.data();
      check(launch_prefill_tile_outputs(tile, gate.view, call, outputs, nullptr), "launch");
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        const Piece& piece = pieces[i];
        const std::int64_t width = piece.bf16 ? 2 : 4;
        std::vector<std::uint8_t> right(arrays[i]->size(), kPoisonByte);
        for (std::int64_t place = 0; place < valid * piece.stride; ++place) {
          const std::int64_t column = piece.first_column + place % piece.stride;
          if (column >= piece.end_column) continue;
          const std::uint32_t bits =
              plain[static_cast<std::size_t>(place / piece.stride * gate.view.padded_gate_rows + column)];
          const std::uint32_t value = piece.bf16 ? float_to_bf16(std::bit_cast<float>(bits)) : bits;
          std::memcpy(right.data() + place * width, &value, static_cast<std::size_t>(width));
        }
        EXPECT_TRUE(arrays[i]->read() == right) << "tile " << tile << ", T " << T << ", piece " << i;
      }
    }
  }
}

TEST_F(Prefill, ManyRowsEqualThePlainForm) {
  struct Shape {
    int parts;
    std::int64_t T, G, H;
  };
  // Wide tiles, by the choice for this number of rows.
  for (const Shape& shape : {Shape{1, 8193, 288, 4096}, Shape{3, 8193, 288, 4096}, Shape{1, 4100, 384, 272},
                             Shape{1, 6200, 192, 528}, Shape{1, 8193, 60, 272}}) {
    const auto [parts, T, G, H] = shape;
    const InputRows input(-1, T, H);
    const Gate gate(make_weight(-1, parts, G, H), parts, G, G, H);
    expect_equal(gate, run(launch_logits_prefill, gate, input, T), run(launch_logits_plain, gate, input, T), T,
                 shape_of(parts, T, G, H));
  }
}

TEST_F(Prefill, EveryCategoryEqualsThePlainForm) {
  constexpr std::int64_t kTokens = 150, kGateRows = 200;
  for (int category = 0; category < kNumCategories; ++category) {
    for (const std::int64_t H : {16, 272, 4096}) {
      const InputRows input(category, kTokens, H);
      for (const int parts : {1, 3}) {
        const Gate gate(make_weight(category, parts, kGateRows, H), parts, kGateRows, kGateRows, H);
        expect_equal(gate, run(launch_logits_prefill, gate, input, kTokens),
                     run(launch_logits_plain, gate, input, kTokens), kTokens,
                     "category " + std::to_string(category) + ", " + shape_of(parts, kTokens, kGateRows, H));
      }
    }
  }
}

TEST_F(Prefill, WritesNoRowThatIsPadding) {
  constexpr std::int64_t kTokens = 300, kGateRows = 72, kHiddenSize = 272;
  const InputRows input(-1, kTokens, kHiddenSize);
  const Gate gate(make_weight(-1, 1, kGateRows, kHiddenSize), 1, kGateRows, kGateRows, kHiddenSize);
  const std::vector<std::uint32_t> plain = run(launch_logits_plain, gate, input, kTokens);
  for (const std::int32_t valid : {-1, 0, 1, 64, 70, 300, 400}) {
    const DeviceArray<std::int32_t> num_valid_rows(std::vector<std::int32_t>{valid});
    expect_equal(gate, run(launch_logits_prefill, gate, input, kTokens, num_valid_rows.data()), plain,
                 clamp_rows(valid, kTokens), "num_valid_rows " + std::to_string(valid));
  }
}

TEST_F(Prefill, NoRows) {
  const InputRows input(-1, 1, 16);
  const Gate gate(make_weight(-1, 1, 8, 16), 1, 8, 8, 16);
  expect_equal(gate, run(launch_logits_prefill, gate, input, 0), {}, 0, "T 0");
}

// A kernel that starts before the one that writes its input has ended, or goes on when the next one overwrites it,
// reads the other rows.
TEST_F(Prefill, KeepsItsPlaceBetweenOverlappingKernels) {
  constexpr std::int64_t kTokens = 700, kGateRows = 288, kHiddenSize = 1000, kCalls = 8;
  const InputRows sources[2] = {InputRows(-1, kTokens, kHiddenSize), InputRows(0, kTokens, kHiddenSize)};
  for (const int parts : {1, 3}) {
    const Gate gate(make_weight(-1, parts, kGateRows, kHiddenSize), parts, kGateRows, kGateRows, kHiddenSize);
    const std::vector<std::uint32_t> plain[2] = {run(launch_logits_plain, gate, sources[0], kTokens),
                                                 run(launch_logits_plain, gate, sources[1], kTokens)};
    const auto call_sums = static_cast<std::size_t>((kTokens + kRowsBeyond) * gate.view.padded_gate_rows);
    const DeviceArray<std::uint16_t> prepared(static_cast<std::size_t>(kTokens * gate.view.padded_hidden_size));
    DeviceArray<std::uint32_t> sums(kCalls * call_sums);

    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    const auto launch_calls = [&] {
      for (std::size_t i = 0; i < kCalls; ++i) {
        const InputRows& source = sources[i % 2];
        CallView call = call_of(source, kTokens, reinterpret_cast<float*>(sums.data() + i * call_sums));
        call.input = prepared.data();
        call.input_stride = gate.view.padded_hidden_size;
        check(launch_prepare(gate.view, call, source.values.data(), source.stride, prepared.data(), stream), "prepare");
        check(launch_logits_prefill(gate.view, call, stream), "launch");
      }
    };
    const auto expect_all_equal = [&](const std::string& what) {
      check(cudaStreamSynchronize(stream), "kernels");
      for (std::size_t i = 0; i < kCalls; ++i) {
        expect_equal(gate, sums.read(i * call_sums, call_sums), plain[i % 2], kTokens,
                     what + ", call " + std::to_string(i) + ", parts " + std::to_string(parts));
      }
      sums.fill_bytes(kPoisonByte);
      check(cudaDeviceSynchronize(), "poison");
    };
    sums.fill_bytes(kPoisonByte);
    check(cudaDeviceSynchronize(), "poison");
    launch_calls();
    expect_all_equal("stream");

    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "begin of the capture");
    launch_calls();
    check(cudaStreamEndCapture(stream, &graph), "end of the capture");
    check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    for (int replay = 0; replay < 3; ++replay) {
      check(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
      expect_all_equal("graph replay " + std::to_string(replay));
    }
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    cudaStreamDestroy(stream);
  }
}

// 2^20 rows, which repeat 256 rows: more than 2^31 sums, then more than 2^31 input values.
TEST_F(Prefill, IndicesBeyondThirtyTwoBits) {
  constexpr std::int64_t kTokens = std::int64_t{1} << 20, kPool = 256;
  for (const auto& [G, H] : {std::pair<std::int64_t, std::int64_t>{2304, 16}, {8, 4096}}) {
    const InputRows pool(-1, kPool, H);
    const Gate gate(make_weight(-1, 1, G, H), 1, G, G, H);
    const std::vector<std::uint32_t> plain = run(launch_logits_plain, gate, pool, kPool);

    const auto pool_values = static_cast<std::size_t>(kPool * pool.stride);
    const std::int64_t Gp = gate.view.padded_gate_rows;
    const DeviceArray<std::uint16_t> input(static_cast<std::size_t>(kTokens / kPool) * pool_values);
    for (std::int64_t i = 0; i < kTokens / kPool; ++i) {
      check(cudaMemcpyAsync(input.data() + i * kPool * pool.stride, pool.values.data(),
                            pool_values * sizeof(std::uint16_t), cudaMemcpyDeviceToDevice),
            "copy");
    }
    DeviceArray<std::uint32_t> sums(static_cast<std::size_t>(kTokens * Gp));
    sums.fill_bytes(kPoisonByte);
    CallView call = call_of(pool, kTokens, reinterpret_cast<float*>(sums.data()));
    call.input = input.data();
    check(launch_logits_prefill(gate.view, call, nullptr), "launch");
    // Around 2^31 sums, 2^31 input values, 2^32 bytes of them, and at the end.
    for (const std::int64_t row : {std::int64_t{0}, (std::int64_t{1} << 31) / Gp, (std::int64_t{1} << 31) / pool.stride,
                                   (std::int64_t{1} << 30) / Gp, kTokens - 1}) {
      const std::int64_t first = std::min(row, kTokens - 1) / kPool * kPool;
      expect_equal(gate, sums.read(static_cast<std::size_t>(first * Gp), static_cast<std::size_t>(kPool * Gp)), plain,
                   kPool, shape_of(1, kTokens, G, H) + ", rows from " + std::to_string(first));
    }
  }
}

}  // namespace
}  // namespace samebits::cuda::test
