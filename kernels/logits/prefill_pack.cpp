#include "kernels/logits/prefill.h"
#include "kernels/plan/plan.h"

namespace samebits::cuda {
namespace {

constexpr std::int64_t kUnitColumns = 8;  // bf16 values of 16 bytes

}  // namespace

std::vector<std::uint16_t> pack_tiles(const std::vector<std::uint16_t>& rows, std::int64_t parts,
                                      std::int64_t padded_gate_rows, std::int64_t padded_hidden_size) {
  const std::int64_t num_blocks = ceil_div(padded_hidden_size, kTileColumns);
  std::vector<std::uint16_t> tiles(static_cast<std::size_t>(parts * num_blocks * padded_gate_rows * kTileColumns));
  for (std::int64_t part = 0; part < parts; ++part) {
    for (std::int64_t g = 0; g < padded_gate_rows; ++g) {
      const std::uint16_t* row = rows.data() + (part * padded_gate_rows + g) * padded_hidden_size;
      for (std::int64_t k = 0; k < padded_hidden_size; ++k) {
        const std::int64_t line = (part * num_blocks + k / kTileColumns) * padded_gate_rows + g;
        const std::int64_t unit = (k % kTileColumns / kUnitColumns) ^ (g % 8);
        tiles[static_cast<std::size_t>(line * kTileColumns + unit * kUnitColumns + k % kUnitColumns)] = row[k];
      }
    }
  }
  return tiles;
}

}  // namespace samebits::cuda
