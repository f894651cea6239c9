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
// Value passes of their own: the order of the keys in place of the values.
Pass ranks_for_values();
// k = 1, and one of the chosen experts before all others: neither can be had without the other when it is a later one.
Pass one_of_the_chosen();
// Whether the tensors are explicit, and few enough to be simplified number by number.
bool has_small_data(const Case& c);
// How far the explicit tensors are from simple. Every simplification of values lowers it, so shrinking ends.
std::int64_t total_complexity(const Case& c);
// Shape, then values.
const std::vector<Pass>& all_passes();

}  // namespace samebits::properties
