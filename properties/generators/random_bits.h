// Counter-based randomness: 64 bits that depend on (key, stream, row, column) alone, the same on any machine.
#pragma once

#include <Random123/philox.h>

#include <cstdint>

namespace samebits::properties {

// Streams of one data key. Tensors that must agree (the two sides of a cancelling pair) share none of them.
enum class Stream : std::uint32_t {
  kHidden,
  kHiddenExponent,
  kWeight,
  kWeightExponent,
  kExpertClass,
  kLinearBias,
  kSelectionBias,
  kLogits,
  kCase,  // data keys of the cases of a seed
  kInputScaleVector,
  kPerExpertScale,
  kGlobalScale,
  kHashTable,
  kTokenIds,
  kRowClass,
  kShape,  // sizes of the cases of a seed
};

// Two columns share one Philox4x32-10 block, so reading columns in ascending order costs half a block each.
class RandomRow {
 public:
  RandomRow(std::uint64_t key, Stream stream, std::int64_t row)
      : key_{{static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)}},
        stream_(static_cast<std::uint32_t>(stream)),
        row_(row) {}

  std::uint64_t at(std::int64_t column) {
    const std::int64_t index = column >> 1;
    if (index != index_) {
      index_ = index;
      const r123::Philox4x32::ctr_type counter{{static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(row_),
                                                stream_, static_cast<std::uint32_t>(row_ >> 32)}};
      block_ = r123::Philox4x32{}(counter, key_);
    }
    const std::size_t half = static_cast<std::size_t>(column & 1) * 2;
    return (static_cast<std::uint64_t>(block_[half + 1]) << 32) | block_[half];
  }

 private:
  r123::Philox4x32::key_type key_;
  std::uint32_t stream_;
  std::int64_t row_;
  std::int64_t index_ = -1;
  r123::Philox4x32::ctr_type block_{};
};

inline std::uint64_t random_bits(std::uint64_t key, Stream stream, std::int64_t row, std::int64_t column) {
  return RandomRow(key, stream, row).at(column);
}

// Approximately N(0, 1) by the sum of four uniform 16-bit integers (Irwin-Hall): variance (2^32 - 1) / 3, range +-3.46.
// The sum is exact and the one product is correctly rounded, so no libm can change a bit.
inline float normal(std::uint64_t bits) {
  const std::uint64_t sum = (bits & 0xffff) + ((bits >> 16) & 0xffff) + ((bits >> 32) & 0xffff) + (bits >> 48);
  return static_cast<float>(static_cast<std::int32_t>(sum) - 2 * 0xffff) * 0x1.bb67aep-16f;  // sqrt(3) / 2^16
}

// Uniform integer in [0, n), n below 2^32 (bias at most n / 2^32).
inline std::int64_t uniform_below(std::uint64_t bits, std::int64_t n) {
  return static_cast<std::int64_t>(((bits >> 32) * static_cast<std::uint64_t>(n)) >> 32);
}

}  // namespace samebits::properties
