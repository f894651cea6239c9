// Work on the rows of a case in parallel.
#pragma once

#include <cstdint>
#include <functional>

namespace samebits::properties {

// f(row) for every row 0 .. num_rows - 1, in any order, on as many threads as the machine has. The first exception
// that f throws ends the work and is thrown again.
void for_each_row(std::int64_t num_rows, const std::function<void(std::int64_t)>& f);

}  // namespace samebits::properties
