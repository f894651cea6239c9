// The weight layout of the decode form, made by pack_fragments.
//
// A tensor-core instruction (mma.sync m16n8k16) multiplies 16 experts x 16 columns of H by 8 tokens. Its weights are
// one fragment: 32 lanes of 8 bf16 values, so that a lane loads 16 bytes and a warp 512 without a gap.
//   fragments: [parts][Gp / 16 expert tiles][Hp / 16 steps][32 lanes][8]
// Lane l of a fragment holds the experts l / 4 and l / 4 + 8 of the tile, and the columns 4 * (l % 4) ... + 3 of the
// step. The instruction's own columns of that lane are 2 * (l % 4) + {0, 1, 8, 9}: the order of the 16 products of a
// step is free as long as both operands agree, and this one makes a token's values 8 contiguous bytes a lane.
#pragma once

#include <cstdint>

namespace samebits::cuda {

inline constexpr int kTileExperts = 16;
inline constexpr int kFragmentLanes = 32;
inline constexpr int kLaneValues = 8;

struct FragmentPlace {
  int expert, column;  // in the tile, in the step
};
// Value i of a lane: registers a0 .. a3 of the instruction, two values each.
constexpr FragmentPlace fragment_place(int lane, int i) {
  const int reg = i / 2;
  return {lane / 4 + 8 * (reg % 2), 4 * (lane % 4) + 2 * (reg / 2) + i % 2};
}

}  // namespace samebits::cuda
