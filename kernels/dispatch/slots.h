// Sizes of the bookkeeping; and of that of few rows (slots.cuh), and where its arrays lie.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/launch.h"

namespace samebits::cuda {

// The slots of up to 32 rows, in each of which an expert comes once at most. Ids are handled in pairs, one word each.
struct SlotShape {
  std::int32_t rows, columns, experts;
  std::int32_t words_of_row;
  std::uint32_t row_magic;  // word / words_of_row = 2 * word * row_magic >> 32
};
inline SlotShape slot_shape(std::int64_t rows, std::int64_t columns, std::int64_t experts) {
  const std::int64_t words = ceil_div(columns, 2);
  return {static_cast<std::int32_t>(rows), static_cast<std::int32_t>(columns), static_cast<std::int32_t>(experts),
          static_cast<std::int32_t>(words), static_cast<std::uint32_t>(ceil_div(std::int64_t{1} << 31, words))};
}
// How the rows of a call are taken: as they are, or, where an id may come twice in a row, every slot as a row.
struct SlotUnits {
  std::int64_t of_row, columns;
};
inline SlotUnits slot_units(const RouterView& router) {
  const bool repeats = router.spec.zero_type == SAMEBITS_ZERO_EXPERTS_IDENTITY_REMAPPED_TO_ID0_WEIGHT0;
  return repeats ? SlotUnits{router.columns, 1} : SlotUnits{1, router.columns};
}

// The padded form: slots of a block, and how many blocks there is room for. `count` slots take (count + round) /
// divisor of them, as a block of kLargestBlock slots is as good as a larger one; inverse is 2^32 / divisor.
inline constexpr std::int64_t kLargestBlock = std::int64_t{1} << 16;
struct SlotBlocks {
  std::int32_t room, size;
  std::uint32_t round, divisor, inverse;
};
inline SlotBlocks slot_blocks(std::int64_t num_slots, std::int64_t experts, std::int32_t block_size) {
  constexpr std::uint32_t kMost = 0xffffffffu;
  if (block_size == 0) return {0, 0, 0, kMost, 0};
  const auto divisor = static_cast<std::uint32_t>(block_size < kLargestBlock ? block_size : kLargestBlock);
  const std::int64_t fill = (num_slots < experts ? num_slots : experts) * (std::int64_t{block_size} - 1);
  return {static_cast<std::int32_t>((num_slots + fill) / block_size), block_size, divisor - 1, divisor,
          divisor == 1 ? kMost : static_cast<std::uint32_t>((std::uint64_t{1} << 32) / divisor)};
}

// Where the arrays of slots.cuh lie in shared memory, in 4-byte words.
struct SlotLayout {
  std::int32_t ids, sorted, first, to_place, words;
};
SAMEBITS_HOST_DEVICE inline SlotLayout slot_layout(const SlotShape& shape) {
  SlotLayout layout{};
  layout.ids = shape.experts;  // bits come first
  layout.sorted = layout.ids + shape.rows * shape.words_of_row;
  layout.first = layout.sorted + shape.rows * shape.columns;
  layout.to_place = layout.first + shape.experts;
  layout.words = layout.to_place + shape.experts;
  return layout;
}
inline std::size_t slot_bytes(const SlotShape& shape) {
  return static_cast<std::size_t>(slot_layout(shape).words) * sizeof(std::uint32_t);
}

// The bookkeeping that a launch does, too.
struct SlotTask {
  bool wanted;
  SlotShape shape;
  SlotBlocks blocks;
  BookkeepOutputs outputs;
  const std::int32_t* slot_ids;  // of the call, for whoever did not wait
};

// [T * K] ids, where the selection writes those of slots, or has none of them to write as topk_ids are the same.
inline std::int32_t* ids_of_slots(const CallView& call) {
  return call.slot_ids != nullptr ? call.slot_ids : static_cast<std::int32_t*>(call.topk_ids);
}

inline SlotTask slot_task(const RouterView& router, const CallView& call, const BookkeepOutputs* outputs) {
  if (outputs == nullptr) return {};
  const SlotUnits units = slot_units(router);
  return {true, slot_shape(call.num_tokens * units.of_row, units.columns, router.gate_rows),
          slot_blocks(call.num_tokens * router.columns, router.gate_rows, outputs->block_size), *outputs,
          ids_of_slots(call)};
}

}  // namespace samebits::cuda
