// Which slots each expert gets: counts, offsets, permutation, and the padded block form of grouped GEMMs.
#pragma once

#include "kernels/cpu/steps.h"

namespace samebits::cpu {

// Blocks of the padded form that fit any assignment of num_slots slots to num_ids experts, block_size > 0.
std::int64_t num_blocks(std::int64_t num_slots, std::int64_t num_ids, std::int64_t block_size);

// Steps::bookkeep of tc256.
void bookkeep_tc256(const RouterConstants& constants, const std::int32_t* ids, std::int64_t num_tokens,
                    std::int32_t* scratch, samebits_outputs& outputs);

}  // namespace samebits::cpu
