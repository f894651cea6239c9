// The bookkeeping of up to 2^17 slots of routers with up to 1,024 experts, behind whatever selects: in one launch, of
// many rows in two.
#pragma once

#include "kernels/dispatch/slots.h"

namespace samebits::cuda {

inline constexpr std::int64_t kMostTiles = 256, kMostTileRows = 128, kMostTileExperts = 1024;
inline constexpr std::size_t kTileCountBytes = kMostTiles * kMostTileExperts;
static_assert(kMostTileRows < 256, "a count is a byte");

// block_size: of the padded form, 0 without one. Also asks the current device what it has.
bool can_bookkeep_rows(const RouterView& router, std::int64_t num_tokens, std::int64_t block_size);

// From call.slot_ids; outputs that are null are not written. tile_counts: scratch of kTileCountBytes, 4-byte aligned.
cudaError_t launch_bookkeep_rows(const RouterView& router, const CallView& call, const BookkeepOutputs& outputs,
                                 unsigned char* tile_counts, cudaStream_t stream);

}  // namespace samebits::cuda
