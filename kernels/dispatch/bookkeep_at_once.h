// The bookkeeping in one launch, for slots up to a number at which sorting them is faster (bookkeep_at_once.cu).
#pragma once

#include "kernels/cuda/launch.h"

namespace samebits::cuda {

bool can_bookkeep_at_once(std::int64_t num_slots, std::int64_t gate_rows, std::int64_t block_size);

// slot_ids [num_slots], ids or -1. num_places: elements of sorted_token_ids, a multiple of the block size. Outputs that
// are null are not written.
cudaError_t launch_bookkeep_at_once(const std::int32_t* slot_ids, std::int64_t num_slots, std::int64_t num_places,
                                    std::int64_t gate_rows, const BookkeepOutputs& outputs, cudaStream_t stream);

}  // namespace samebits::cuda
