// The weight layout of the prefill form of the logits (prefill.cu).
//
// [parts][ceil(Hp / 64)][Gp][64] bf16: blocks of 64 columns, and in a block each expert is a line of 128 bytes. Columns
// from Hp on are +0. The eight 16-byte units of a line are permuted as the 128-byte swizzle of the tensor cores wants
// them: unit u of expert g lies in place u ^ (g % 8). So any run of experts that starts at a multiple of 8 is one
// contiguous copy into shared memory, ready for wgmma, whatever the width of the tile.
#pragma once

#include <cstdint>
#include <vector>

namespace samebits::cuda {

inline constexpr int kTileColumns = 64;  // bf16 values of one line of 128 bytes

// rows: [parts][Gp][Hp] bf16 in host memory, the layout of RouterView::weight_rows; Gp a multiple of 8.
std::vector<std::uint16_t> pack_tiles(const std::vector<std::uint16_t>& rows, std::int64_t parts,
                                      std::int64_t padded_gate_rows, std::int64_t padded_hidden_size);

}  // namespace samebits::cuda
