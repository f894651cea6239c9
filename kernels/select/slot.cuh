// The slots of a row, as the bookkeeping reads them.
#pragma once

#include "kernels/cuda/view.h"

namespace samebits::cuda {

// Of one slot: its id, and the counts of its tile, null if not wanted.
struct SlotPlace {
  std::int32_t* id;
  std::uint32_t* counts;
};
__device__ __forceinline__ SlotPlace slot_place(const CallSlots& slots, std::int64_t row, int columns, int column) {
  SlotPlace place{slots.ids + (row * columns + column), nullptr};
  if (slots.counts != nullptr) {
    const std::int64_t unit = slots.first_unit + row * slots.units_of_row + (slots.units_of_row > 1 ? column : 0);
    place.counts = slots.counts + (unit >> slots.shift) * slots.words_of_tile;
  }
  return place;
}
__device__ __forceinline__ void write_slot(const SlotPlace& place, std::int32_t id) {
  *place.id = id;
  if (place.counts != nullptr && id >= 0) atomicAdd(place.counts + id / 4, 1u << 8 * (id & 3));
}

}  // namespace samebits::cuda
