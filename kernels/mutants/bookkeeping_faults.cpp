// Counting, scanning and sorting of the slots by expert: arrays of the right bookkeeping, spoiled.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "kernels/common/sizes.h"
#include "kernels/cpu/bookkeep.h"
#include "kernels/mutants/mutants.h"

namespace samebits::mutants {
namespace {

using cpu::bookkeep_tc256;
using cpu::RouterConstants;

struct Sizes {
  std::int64_t ids, columns, slots, blocks;  // G, K, T * K, blocks of the padded form
};

Sizes sizes_of(const RouterConstants& constants, std::int64_t num_tokens, const samebits_outputs& outputs) {
  Sizes sizes{gate_rows(constants.spec), topk_columns(constants.spec), 0, 0};
  sizes.slots = num_tokens * sizes.columns;
  if (outputs.block_size > 0) sizes.blocks = cpu::num_blocks(sizes.slots, sizes.ids, outputs.block_size);
  return sizes;
}

// An array of the bookkeeping; empty: the caller does not want it.
std::span<std::int32_t> array(std::int32_t* data, std::int64_t size) {
  return data == nullptr ? std::span<std::int32_t>() : std::span(data, static_cast<std::size_t>(size));
}

void first_slot_of_each_thread(const RouterConstants& constants, const std::int32_t* ids, std::int64_t num_tokens,
                               std::int32_t* scratch, samebits_outputs& outputs) {
  constexpr std::int32_t kSlotsOfThread = 4;
  bookkeep_tc256(constants, ids, num_tokens, scratch, outputs);
  const Sizes sizes = sizes_of(constants, num_tokens, outputs);
  for (std::int32_t& slot : array(outputs.slot_of_position, sizes.slots)) {
    if (slot % kSlotsOfThread != 0) slot = -1;
  }
  for (std::int32_t& slot : array(outputs.sorted_token_ids, sizes.blocks * outputs.block_size)) {
    if (slot % kSlotsOfThread != 0) slot = static_cast<std::int32_t>(sizes.slots);
  }
}

void inclusive_offsets(const RouterConstants& constants, const std::int32_t* ids, std::int64_t num_tokens,
                       std::int32_t* scratch, samebits_outputs& outputs) {
  bookkeep_tc256(constants, ids, num_tokens, scratch, outputs);
  const auto offsets = array(outputs.expert_offsets, gate_rows(constants.spec) + 1);
  if (!offsets.empty()) std::copy(offsets.begin() + 1, offsets.end(), offsets.begin());
}

void expert_blocks_wrap(const RouterConstants& constants, const std::int32_t* ids, std::int64_t num_tokens,
                        std::int32_t* scratch, samebits_outputs& outputs) {
  constexpr std::int64_t kBlockExperts = 32;
  bookkeep_tc256(constants, ids, num_tokens, scratch, outputs);
  const std::int64_t num_ids = gate_rows(constants.spec);
  const std::int64_t end = (num_ids + kBlockExperts - 1) / kBlockExperts * kBlockExperts;
  const auto counts = array(outputs.tokens_per_expert, num_ids);
  const std::vector<std::int32_t> right(counts.begin(), counts.end());
  for (std::int64_t e = num_ids; e < end && !counts.empty(); ++e) {
    const auto again = static_cast<std::size_t>(e % num_ids);
    counts[again] += right[again];
  }
}

void last_block_lost(const RouterConstants& constants, const std::int32_t* ids, std::int64_t num_tokens,
                     std::int32_t* scratch, samebits_outputs& outputs) {
  bookkeep_tc256(constants, ids, num_tokens, scratch, outputs);
  const Sizes sizes = sizes_of(constants, num_tokens, outputs);
  if (sizes.blocks == 0) return;
  const auto experts = array(outputs.expert_ids, sizes.blocks);
  const auto slots = array(outputs.sorted_token_ids, sizes.blocks * outputs.block_size);
  if (!experts.empty()) experts.back() = -1;
  if (!slots.empty()) {
    std::ranges::fill(slots.last(static_cast<std::size_t>(outputs.block_size)), static_cast<std::int32_t>(sizes.slots));
  }
}

void token_for_slot(const RouterConstants& constants, const std::int32_t* ids, std::int64_t num_tokens,
                    std::int32_t* scratch, samebits_outputs& outputs) {
  bookkeep_tc256(constants, ids, num_tokens, scratch, outputs);
  const Sizes sizes = sizes_of(constants, num_tokens, outputs);
  for (std::int32_t& slot : array(outputs.slot_of_position, sizes.slots)) {
    if (slot >= 0) slot /= static_cast<std::int32_t>(sizes.columns);
  }
}

void positions_transposed(const RouterConstants& constants, const std::int32_t* ids, std::int64_t num_tokens,
                          std::int32_t* scratch, samebits_outputs& outputs) {
  bookkeep_tc256(constants, ids, num_tokens, scratch, outputs);
  const Sizes sizes = sizes_of(constants, num_tokens, outputs);
  const auto positions = array(outputs.position_of_slot, sizes.slots);
  const std::vector<std::int32_t> right(positions.begin(), positions.end());
  for (std::int64_t slot = 0; slot < static_cast<std::int64_t>(right.size()); ++slot) {
    const std::int64_t token = slot / sizes.columns, column = slot % sizes.columns;
    positions[static_cast<std::size_t>(column * num_tokens + token)] = right[static_cast<std::size_t>(slot)];
  }
}

// Shared memory is laid out as if 32 experts were the least: with fewer, the offsets begin on the last count.
void arrays_overlap(const RouterConstants& constants, const std::int32_t* ids, std::int64_t num_tokens,
                    std::int32_t* scratch, samebits_outputs& outputs) {
  bookkeep_tc256(constants, ids, num_tokens, scratch, outputs);
  const std::int64_t num_ids = gate_rows(constants.spec);
  const auto counts = array(outputs.tokens_per_expert, num_ids);
  if (num_ids < 32 && !counts.empty()) counts.back() = 0;
}

}  // namespace

std::vector<Mutant> bookkeeping_mutants() {
  using cpu::Steps;
  return {
      {"M73",
       "first_slot_of_each_thread",
       "a thread has four slots and scatters the first of them",
       "bookkeeping",
       "vllm-project/vllm-xpu-kernels#453",
       {"glm-5.3-flash"},
       with(&Steps::bookkeep, first_slot_of_each_thread)},
      {"M74",
       "inclusive_offsets",
       "the offset of an expert counts its own slots",
       "bookkeeping",
       "vllm-project/vllm-xpu-kernels#282",
       {"glm-5.3-flash"},
       with(&Steps::bookkeep, inclusive_offsets)},
      {"M75",
       "expert_blocks_wrap",
       "experts are counted in blocks of 32; a last block that is not full goes on with expert 0",
       "bookkeeping",
       "ModelTC/lightllm#1369",
       {"granite-3.0-3b-a800m"},
       with(&Steps::bookkeep, expert_blocks_wrap)},
      {"M76",
       "last_block_lost",
       "the bound on the number of blocks is too small by one",
       "bookkeeping",
       "flashinfer-ai/flashinfer#3198, vllm-project/vllm#27917",
       {"glm-5.3-flash"},
       with(&Steps::bookkeep, last_block_lost)},
      {"M77",
       "token_for_slot",
       "positions name the token of a slot instead of the slot",
       "bookkeeping",
       "flashinfer-ai/flashinfer#2629",
       {"glm-5.3-flash"},
       with(&Steps::bookkeep, token_for_slot)},
      {"M78",
       "positions_transposed",
       "the positions of the slots are stored as [K, T] instead of [T, K]",
       "bookkeeping",
       "vllm-project/vllm-xpu-kernels#102",
       {"glm-5.3-flash"},
       with(&Steps::bookkeep, positions_transposed)},
      {"M79",
       "arrays_overlap",
       "below 32 experts the offsets begin on the count of the last expert",
       "bookkeeping",
       "vllm-project/vllm#12413",
       {"mixtral-8x7b"},
       with(&Steps::bookkeep, arrays_overlap)},
  };
}

}  // namespace samebits::mutants
