// The simplifications of a case, as numbered candidates.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "properties/case.h"

namespace samebits::properties {

// One kind of simplification. Candidates are numbered 0 .. count - 1, and after one was taken, the same number of the
// simpler case is the next to try: removed or finished elements leave the numbering.
struct Pass {
  std::function<std::int64_t(const Case&)> count;
  std::function<std::optional<Case>(const Case&, std::int64_t)> candidate;  // nothing: no valid simpler case there
};

// Explicit tensors are worth having, and their values worth simplifying, up to this many numbers.
inline constexpr std::int64_t kMaxExplicitNumbers = 50000;

// The most drastic first.
std::vector<Pass> shape_passes();
std::vector<Pass> value_passes();
// Shape, then values.
const std::vector<Pass>& all_passes();

}  // namespace samebits::properties
