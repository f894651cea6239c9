// Many cases of a kind, by number: case i of a seed is the same wherever and in whatever order it is run.
#pragma once

#include <cstdint>

#include "oracle/second/test/compare/compare.h"
#include "oracle/second/test/compare/inputs.h"
#include "oracle/second/test/compare/specs.h"

namespace samebits::second {

inline constexpr std::int64_t kRowsOfCase = 16;

// Reduced sizes; the specs take turns, each with hidden states and with given logits, ordinary numbers and hazards.
Case reduced_case(const std::vector<NamedSpec>& specs, std::uint64_t seed, std::int64_t index);

// `num_rows` rows of one spec at its own size; from given logits for variants and overrides, whose gate is that of
// their base.
Case full_size_case(const NamedSpec& spec, std::uint64_t seed, std::int64_t num_rows);

// Indices of shard i of n when 0 .. count - 1 are cut into n runs of neighbours, so that each meets every spec.
struct Range {
  std::int64_t first;
  std::int64_t end;
};
inline Range shard_range(std::int64_t count, std::int64_t shard, std::int64_t shards) {
  return {count * shard / shards, count * (shard + 1) / shards};
}

}  // namespace samebits::second
