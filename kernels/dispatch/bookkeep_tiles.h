// The bookkeeping of rows in tiles, of which the selection counted the slots of each expert: one launch behind it.
#pragma once

#include "kernels/dispatch/slots.h"

namespace samebits::cuda {

inline constexpr std::int64_t kMostTiles = 256, kMostTileRows = 128, kMostTileExperts = 1024;
inline constexpr std::size_t kTileCountBytes = kMostTiles * kMostTileExperts;
static_assert(kMostTileRows < 256, "a count is a byte");

// In the header of the workspace, 0 at first; every launch of the bookkeeping leaves it so.
struct TileState {
  std::uint32_t* counts;      // kTileCountBytes
  std::uint32_t* tiles_done;  // of this launch
};

inline constexpr std::int64_t kFewSlotsForTiles = std::int64_t{1} << 15;  // up to here bookkeep_at_once is as fast

// block_size: of the padded form, 0 without one.
bool can_bookkeep_tiles(const RouterView& router, std::int64_t num_tokens, std::int64_t block_size);
// How the selection counts for it, in a slice of a call of num_tokens rows that begins at first_row. Without ids.
CallSlots counted_slots(const RouterView& router, std::int64_t num_tokens, std::int64_t first_row,
                        const TileState& state);

// From call.slots.ids and state.counts; outputs that are null are not written.
cudaError_t launch_bookkeep_tiles(const RouterView& router, const CallView& call, const BookkeepOutputs& outputs,
                                  const TileState& state, cudaStream_t stream);

}  // namespace samebits::cuda
