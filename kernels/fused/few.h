// One launch for up to 16 rows of the commonest routers: fused.h with as little code, and as few parameters in as few
// lines, as such a router needs. Where the GPU has done other work in between, both come from memory.
#pragma once

#include <cuda_runtime_api.h>

#include "kernels/dispatch/slots.h"
#include "kernels/fused/handover.h"

namespace samebits::cuda {

// How the tiles of a chunk go to blocks: `groups` of them, of `warps` warps that have a tile.
struct TileGroups {
  int groups, warps;
};

// Whether it serves this call of this router, which fused.h does: lean routers with bf16 weights, H a multiple of 256
// up to 7168; up to 512 experts and k up to 8, groups of 32 experts if any.
bool can_route_few(const RouterView& router, const CallView& call);

// launch_fused for such a call.
cudaError_t launch_few(const RouterView& router, const CallView& call, const Handover& handover,
                       const TileGroups& tiles, const SlotTask& slots, cudaStream_t stream);

}  // namespace samebits::cuda
